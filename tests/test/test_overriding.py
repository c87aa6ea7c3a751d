"""override_claims(): what it keeps apart, what it puts back, and what happens without threads."""

import asyncio
import gc
import threading
import unittest

import pytest
from django.conf import settings as django_settings
from django.test import SimpleTestCase, override_settings

from django_claims import (
    ClaimHeld,
    ClaimStopped,
    InvalidClaimsSetting,
    LossReason,
    claim,
    claim_backends,
    current_hold,
    draining,
    force_release,
    list_claims,
    request_stop,
    single_instance,
    start_draining,
)
from django_claims.backends.memory import MemoryBackend
from django_claims.clock import clock, real_clock
from django_claims.test import FakeClock, assert_claim_held, beat, held, override_claims, wait_until
from tests.helpers import claims_settings, run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

TWO = {
    "default": {"BACKEND": "django_claims.backends.redis.RedisBackend", "TTL": 40, "OPTIONS": {"cache": "none"}},
    "reports": {"BACKEND": "django_claims.backends.file.FileBackend", "OPTIONS": {"directory": "/nowhere/at/all"}},
}


# Where claims are kept.


def test_claims_are_kept_in_memory_whatever_the_settings_say(settings):
    settings.CLAIMS = TWO

    with override_claims(), claim("x") as hold:
        assert isinstance(claim_backends["default"], MemoryBackend)
        assert hold.lease.ttl == 40  # the alias's own
        assert [lease.name for lease in list_claims()] == ["x"]


def test_two_aliases_are_kept_apart(settings):
    settings.CLAIMS = TWO

    with override_claims(), claim("x"), claim("x", using="reports") as other:
        assert other.held
        assert [lease.alias for lease in list_claims(using="reports")] == ["reports"]


def test_an_alias_that_is_not_in_the_settings_is_not_invented(settings):
    settings.CLAIMS = TWO

    with override_claims(), pytest.raises(InvalidClaimsSetting, match="report"):
        claim("x", using="report").acquire()


def test_claims_that_are_off_are_on_in_the_block(settings):
    settings.CLAIMS = None

    with override_claims(), claim("x") as hold:
        assert hold.fence
    assert claim("x").acquire().fence == 0


@pytest.mark.parametrize("ttl, deadline", [(3, 2), (90, 60)])
def test_other_settings_may_be_given(settings, ttl, deadline):
    settings.CLAIMS = {"default": {**TWO["default"], "HEARTBEAT": 10, "RENEW_DEADLINE": 30}}

    with override_claims(TTL=ttl), claim("x") as hold:
        assert hold.lease.ttl == ttl
        assert hold.renew_deadline == deadline  # the alias's goes with the alias's TTL


def test_wrong_settings_are_named_and_change_nothing():
    before = django_settings.CLAIMS

    with override_claims(TLL=3), pytest.raises(InvalidClaimsSetting, match="did you mean 'TTL'"):
        claim("x").acquire()
    with pytest.raises(ValueError, match="clock should be"):
        override_claims(clock=object())
    with pytest.raises(ValueError, match="not both"):
        override_claims(clock=FakeClock(), threads=True)

    assert before == django_settings.CLAIMS
    assert claim("x").acquire().release()


# What is put back.


def test_each_block_begins_with_nothing_and_leaves_nothing():
    with override_claims():
        hold = claim("x").acquire()
    with override_claims():
        assert claim("x").available()

    assert claim("x").available()
    assert not hold.held
    assert not hold.lost  # it was released


def test_blocks_nest_and_give_back_what_was_there():
    with override_claims():
        outer = claim("x").acquire()
        with override_claims():
            assert current_hold() is None
            with claim("x") as inner:
                assert inner.fence != outer.fence
        assert current_hold() is outer
        assert outer.held
        assert assert_claim_held("x").fence == outer.fence
        assert outer.release()


def test_a_hold_from_outside_lives_on_and_is_renewed_again_afterwards(settings):
    settings.CLAIMS = claims_settings(TTL=1.5)
    with claim("x") as outer:
        with override_claims():
            assert claim("x").available()
            wait_until(lambda: outer.remaining() < 0.6)  # its renewals rest
            assert request_stop("x") is None
        renewed = wait_until(lambda: outer.remaining() > 0.8)

        assert renewed
        assert outer.held
        assert outer.verify()


def test_a_drain_ends_with_the_block():
    with override_claims():
        start_draining("a test")
        assert draining()
    assert not draining()


def test_what_is_restored_is_restored_after_an_error_too():
    before = django_settings.CLAIMS

    with pytest.raises(ZeroDivisionError), override_claims(clock=FakeClock()), claim("x"):
        raise ZeroDivisionError

    assert before == django_settings.CLAIMS
    assert abs(clock() - real_clock()) < 1


def test_other_settings_of_a_block_inside_are_respected():
    with override_claims(), override_settings(CLAIMS=None):
        assert claim("x").acquire().fence == 0


# Decorators.


@override_claims
def test_it_decorates_a_function_without_brackets():
    with claim("x") as hold:
        assert isinstance(claim_backends["default"], MemoryBackend)
        assert hold.held


def test_it_decorates_a_function():
    @override_claims(kwarg_name="claims", clock=FakeClock())
    def job(claims):
        claims.clock.tick(1)
        with claims.held("x"):
            claims.assert_refused("x")
        return "done"

    assert job() == job() == "done"


def test_it_decorates_a_coroutine_function():
    @override_claims()
    async def job():
        async with claim("x") as hold:
            return isinstance(claim_backends["default"], MemoryBackend) and hold.held

    assert asyncio.run(job())


@override_claims(attr_name="claims", TTL=30)
class DecoratedTests(SimpleTestCase):
    def setUp(self):
        self.hold = claim("x").acquire()  # each test takes it anew

    def test_one(self):
        self.assertTrue(self.hold.held)
        self.assertEqual(self.hold.lease.ttl, 30)

    def test_two(self):
        self.claims.assert_held("x")

    async def test_three(self):
        self.assertTrue(await claim("y").aavailable())


@override_claims()
class DecoratedPlainTests(unittest.IsolatedAsyncioTestCase):
    async def test_a_claim(self):
        async with claim("x") as hold:
            self.assertTrue(hold.held)


def test_it_decorates_no_other_class():
    with pytest.raises(TypeError, match=r"unittest\.TestCase"):

        @override_claims()
        class Other:
            pass


# Without threads.


def test_no_thread_is_started():
    before = set(threading.enumerate())
    with override_claims():
        with claim("x") as hold:
            request_stop("x")
            assert hold.stop_requested

        async def twins():
            async with claim("x") as hold:
                await hold.acheckpoint()
                return await hold.averify()

        assert asyncio.run(twins())
        assert set(threading.enumerate()) == before


def test_a_stop_is_known_when_the_call_returns():
    with override_claims(), claim("x") as hold:
        event = hold.stop_event
        request_stop("x", by="ann")

        assert hold.stop_flag.by == "ann"
        assert event.is_set()
        assert claim("x").lease().state == "stopping"


def test_a_force_release_is_known_when_the_call_returns():
    with override_claims(), claim("x") as hold:
        force_release("x", fence=hold.fence)

        assert hold.loss_reason is LossReason.FORCED


def test_a_kept_stop_refuses(settings):
    with override_claims():
        request_stop("x", keep=True, reason="broken")
        with pytest.raises(ClaimStopped, match="broken"), claim("x"):
            pass


def test_a_beat_renews_and_writes_progress():
    with override_claims(), claim("x") as hold:
        first = claim("x").lease()
        wait_until(lambda: real_clock() > hold._since + 0.01)
        hold.checkpoint(3, 10)

        beat()

        assert claim("x").lease().renewed_at > first.renewed_at
        assert claim("x").lease().progress.done == 3


def test_a_hold_that_gets_no_beat_is_lost_in_time():
    with override_claims(TTL=0.3), claim("x") as hold:
        wait_until(lambda: not hold.held)

        assert hold.loss_reason is LossReason.EXPIRED


def test_a_hold_that_sleeps_is_renewed():
    with override_claims(TTL=1.5), claim("x") as hold:
        assert not hold.sleep(1.2)  # its deadline, unless renewed, was after 1 s
        assert hold.held


def test_a_hold_is_renewed_while_its_process_waits_for_another_claim():
    with override_claims(TTL=1.5), claim("x") as hold, held("y"):
        assert claim("y").acquire(timeout=1.2) is None
        assert hold.held


def test_a_dropped_hold_is_free_for_the_next_acquire():
    with override_claims():
        with pytest.warns(ResourceWarning, match="dropped"):
            claim("x").acquire()
            gc.collect()
        with claim("x") as hold:
            assert hold.held


def test_a_waiter_in_another_thread_is_woken():
    with override_claims():
        hold, found = claim("x").acquire(), []
        waiter = threading.Thread(target=lambda: found.append(claim("x").acquire(timeout=5)))
        waiter.start()
        hold.release()
        waiter.join(10)

        assert found[0].release()


def test_a_stop_from_another_thread_wakes_a_sleeper():
    with override_claims(), claim("x") as hold:
        asker = threading.Timer(0.05, lambda: request_stop("x"))
        asker.start()
        assert hold.sleep(20)
        asker.join(10)


def test_a_guarded_function_is_refused_as_elsewhere():
    @single_instance(name="x")
    def job():
        return "done"

    with override_claims():
        assert job() == "done"
        with held("x"), pytest.raises(ClaimHeld):
            job()


def test_work_that_asks_for_a_beat_itself_does_not_run_in_circles():
    from django_claims.signals import stop_observed

    def ask_again(**about):
        request_stop("x")
        beat()

    with override_claims(), claim("x") as hold:
        stop_observed.connect(ask_again)
        try:
            request_stop("x")
        finally:
            stop_observed.disconnect(ask_again)
        assert hold.stop_requested


def test_a_beat_leaves_the_connections_of_the_test_alone(monkeypatch):
    """In a thread of ours they would be closed: what a receiver opened there is of no use to others."""
    from django.db import connection

    closed = []
    monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", lambda: closed.append(True))
    with override_claims(), claim("x"):
        beat()
        claim("x").acquire(timeout=0.05)

    assert closed == []


# With threads.


def test_with_threads_a_hold_is_renewed_by_itself_and_the_threads_end_with_the_block():
    before = set(threading.enumerate())  # those of tests before may be there for some seconds still
    with override_claims(threads=True, TTL=1.5):
        with claim("x") as hold:
            wait_until(lambda: real_clock() > hold._since + 1.2)  # its deadline, unless renewed, was after 1 s
            assert hold.held
            beat()
        assert {thread.name for thread in set(threading.enumerate()) - before} >= {"django-claims default"}
    assert set(threading.enumerate()) <= before


def test_with_threads_the_twins_work():
    async def job():
        async with claim("x") as hold:
            return hold.held

    with override_claims(threads=True):
        assert asyncio.run(job())


def test_a_hold_of_another_thread_is_released_at_the_end():
    with override_claims():
        hold = run_in_thread(claim("x").acquire)
    assert not hold.held
