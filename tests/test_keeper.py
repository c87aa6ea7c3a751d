"""Keeping holds alive: renewals, news, deadlines, and deleting what nobody holds."""

import asyncio
import gc
import logging
import threading
from dataclasses import replace

import pytest

from django_claims import (
    BackendUnavailable,
    ClaimError,
    LossReason,
    StopRequested,
    claim,
    claim_backends,
    clear_stop,
    current_hold,
    force_release,
    heartbeat,
    hold,
    holds,
    keeper,
    looking,
    registry,
    release_all,
    request_stop,
    stop_flag,
    trying,
)
from django_claims.backends.base import AcquireRequest, Notice
from django_claims.clock import clock
from django_claims.keeper import deadlines, keeper_of
from tests.helpers import (
    FLAKY,
    ShiftedClock,
    claims_settings,
    faults,
    listening,
    messages,
    run_in_thread,
    stays,
    threads,
    tidy,
    wait_for_no_threads,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)


@pytest.fixture(autouse=True)
def short(settings):
    """One alias with a TTL of 1.2 s: a beat each 0.4 s, lost after 0.8 s."""
    settings.CLAIMS = claims_settings(TTL=1.2)
    return settings


@pytest.fixture
def short_idle(monkeypatch):
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 0.2)


# Renewal.


def test_a_healthy_hold_lives_on_far_beyond_its_ttl():
    with claim("x") as held:
        first = held.lease.expires_at

        assert stays(lambda: held.held and not claim("x").available(), 3)
        assert claim("x").lease().fence == held.fence
        assert claim("x").lease().expires_at > first


def test_renewals_that_are_due_travel_together():
    entered, go_on, sizes = threading.Event(), threading.Event(), []

    def renew(real, requests):
        sizes.append(len(requests))
        if not entered.is_set():
            entered.set()
            go_on.wait(5)
        return real(requests)

    faults.on("renew", renew)
    holds = [claim(f"job {number}", ttl=6, heartbeat=0.4).acquire() for number in range(100)]
    assert entered.wait(3)
    wait_until(lambda: clock() > max(held._since for held in holds) + 0.4, 2)

    go_on.set()
    wait_until(lambda: sum(sizes) >= 100, 3)

    assert len(sizes) <= 2  # those that were due when it was free, and soon after, went together
    assert [held for held in holds if not held.held] == []
    assert release_all("done") == 100


def test_a_failed_renewal_is_tried_again_before_the_hold_runs_out(caplog):
    refused, late = BackendUnavailable("default", "refused"), BackendUnavailable("default", "timed out")
    refused.__cause__, late.__cause__ = ConnectionError(), TimeoutError()
    faults.fail_in_turn("renew", refused, late)

    with claim("x") as held:
        wait_until(lambda: faults.count("renew") >= 3, 3)
        assert stays(lambda: held.held, 1.5)

    failures = messages(caplog, "Renewal failed, still held")
    assert len(failures) == 2
    assert "refused" in failures[0]
    assert "timed out" in failures[1]
    assert messages(caplog, "Claim lost") == []


def test_an_error_that_no_backend_should_raise_ends_no_renewals(caplog):
    faults.fail_in_turn("renew", ValueError("a bug"), ZeroDivisionError())

    with claim("x") as held:
        wait_until(lambda: faults.count("renew") >= 4, 3)

        assert held.held
    assert len(messages(caplog, "Renewal failed unexpectedly")) == 2


def test_a_store_that_stays_away_costs_the_hold_at_its_deadline(caplog, heard):
    with claim("x") as held:
        faults.fail("renew")
        started = clock()
        left = held.remaining()

        assert held.lost_event.wait(3)

        assert clock() - started <= left + 0.3
        assert (held.held, held.lost, held.loss_reason) == (False, True, LossReason.EXPIRED)
        faults.off("renew")
        assert stays(lambda: held.lost and not held.held, 0.8)
    assert len(messages(caplog, "Claim lost name=x")) == 1
    assert heard.one("claim_lost")["reason"] == LossReason.EXPIRED


def test_the_deadlines_thread_says_lost_while_the_store_hangs():
    with claim("x") as held, faults.hanging("renew") as entered:
        assert entered.wait(3)

        assert held.lost_event.wait(2)

        assert keeper_of("default").heartbeat.running
        assert held.loss_reason is LossReason.EXPIRED


def test_a_late_yes_revives_nothing():
    answered = threading.Event()

    def renew(real, requests):
        answers = real(requests)
        wait_until(lambda: held.lost, 5)
        answered.set()
        return answers

    with claim("x") as held:
        faults.on("renew", renew)
        assert answered.wait(5)

        assert stays(lambda: held.lost and not held.held, 0.3)
        assert held.remaining() == 0.0
        assert held.renew() is False


def test_a_frozen_store_does_not_starve_another_alias(short):
    short.CLAIMS = {"default": {"BACKEND": FLAKY, "TTL": 1.2}, "other": {"BACKEND": FLAKY, "TTL": 1.2}}
    entered, over = threading.Event(), threading.Event()

    def renew(real, requests):
        if real.__self__.alias == "other":
            entered.set()
            over.wait(30)
            raise BackendUnavailable("other")
        return real(requests)

    faults.on("renew", renew)
    try:
        with claim("x") as healthy, claim("x", using="other") as frozen:
            assert entered.wait(3)
            assert frozen.lost_event.wait(3)

            assert stays(lambda: healthy.held, 1.5)
    finally:
        over.set()


def test_a_hold_that_was_released_is_renewed_no_more():
    held = claim("x").acquire()
    wait_until(lambda: faults.count("renew") >= 1, 3)

    held.release()

    before = faults.count("renew")
    assert stays(lambda: faults.count("renew") == before, 1.0)


def test_release_waits_for_a_renewal_on_the_wire():
    order, entered = [], threading.Event()

    def renew(real, requests):
        entered.set()
        threading.Event().wait(0.05)
        order.append("renewed")
        return real(requests)

    def release(real, requests):
        order.append("released")
        return real(requests)

    held = claim("x", ttl=6, heartbeat=0.4).acquire()
    faults.on("renew", renew)
    faults.on("release", release)
    assert entered.wait(3)

    result = held.release()

    assert result
    assert order == ["renewed", "released"]
    assert claim("x").lease() is None


def test_release_does_not_wait_for_ever_for_a_renewal_that_hangs(short):
    short.CLAIMS = claims_settings(TTL=6, HEARTBEAT=0.6, STORE_TIMEOUT=0.3)
    held = claim("x").acquire()

    with faults.hanging("renew") as entered:
        assert entered.wait(3)
        started = clock()
        result = held.release()
        took = clock() - started

    assert result
    assert took < 0.6


# News.


def test_a_stop_reaches_the_hold_at_once_and_the_operator_sees_that_it_was_heard(heard):
    with claim("x", ttl=60) as held:
        flag = request_stop("x", reason="bad feed", by="ana")

        assert held.stop_event.wait(1)
        assert replace(held.stop_flag, seen_at=None) == flag
        assert wait_until(lambda: claim("x").lease().state == "stopping", 2)
        assert wait_until(lambda: stop_flag("x").seen_at, 2)
    assert heard.one("stop_observed")["flag"].reason == "bad feed"


def test_a_stop_set_by_another_process_is_seen_within_a_second():
    with claim("x", ttl=60) as held:
        started = clock()
        claim_backends["default"].set_flag("x", keep=False, fence=None, reason="", by="", ttl_ms=None)

        wait_until(lambda: held.stop_requested, 3)

        assert clock() - started < 1.5


def test_a_stop_comes_along_with_a_renewal_while_polls_fail():
    faults.fail("poll")
    with claim("x") as held:
        claim_backends["default"].set_flag("x", keep=False, fence=None, reason="", by="", ttl_ms=None)

        wait_until(lambda: held.stop_requested, 3)

        assert held.stop_requested


def test_stop_flags_that_cannot_be_read_are_logged_once_and_again_when_they_can(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "django_claims")
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.1)
    with claim("x", ttl=60):
        faults.fail("poll")
        wait_until(lambda: faults.count("poll") >= 4, 3)
        faults.off("poll")
        wait_until(lambda: messages(caplog, "Stop flags can be read again"), 3)

    assert len(messages(caplog, "Stop flags cannot be read")) == 1
    assert len(messages(caplog, "Stop flags can be read again")) == 1


def test_a_stop_stands_while_the_store_is_away():
    with claim("x", ttl=60) as held:
        request_stop("x")
        assert held.stop_event.wait(1)
        faults.fail("poll", "renew")
        before = faults.count("poll")

        wait_until(lambda: faults.count("poll") > before, 3)

        assert held.stop_requested
        with pytest.raises(StopRequested):
            held.checkpoint()


def test_a_forced_end_reaches_the_hold_at_once():
    with claim("x", ttl=60) as held:
        assert force_release("x", fence=held.fence)

        assert held.lost_event.wait(1)
        assert held.loss_reason is LossReason.FORCED


def test_a_forced_end_of_an_earlier_run_does_not_touch_the_next():
    with claim("x", ttl=60) as first:
        force_release("x", fence=first.fence)
        assert first.lost_event.wait(1)

    with claim("x", ttl=60) as second:
        heartbeat.poke("default")

        assert stays(lambda: second.held, 0.3)
        assert second.renew()


def test_a_lost_hold_is_polled_for_no_more():
    with claim("x", ttl=60) as held:
        force_release("x", fence=held.fence)
        assert held.lost_event.wait(1)
        before = faults.count("poll")

        assert stays(lambda: faults.count("poll") == before, 1.5)


def test_a_checkpoint_with_fresh_news_asks_nobody():
    with claim("x", ttl=60) as held:
        claim_backends["default"].set_flag("x", keep=False, fence=None, reason="", by="", ttl_ms=None)
        before = faults.count("poll")

        held.checkpoint()

        assert faults.count("poll") == before


def test_a_checkpoint_with_stale_news_asks_the_store_itself(monkeypatch):
    with claim("x", ttl=60) as held:
        claim_backends["default"].set_flag("x", keep=False, fence=None, reason="why", by="ana", ttl_ms=None)
        shifted = ShiftedClock()
        monkeypatch.setattr(keeper, "clock", shifted)
        before = faults.count("poll")

        shifted.by = 5.0  # as after SIGCONT: no thread has run meanwhile
        with pytest.raises(StopRequested) as asked:
            held.checkpoint()

        assert faults.count("poll") == before + 1
        assert (asked.value.name, asked.value.reason, asked.value.by) == ("x", "why", "ana")


def test_a_checkpoint_with_stale_news_finds_a_forced_end_too(monkeypatch):
    from django_claims import ClaimLost

    with claim("x", ttl=60) as held:
        claim_backends["default"].force_release("x", held.fence)
        shifted = ShiftedClock()
        monkeypatch.setattr(keeper, "clock", shifted)

        shifted.by = 5.0
        with pytest.raises(ClaimLost) as lost:
            held.checkpoint()

        assert lost.value.reason is LossReason.FORCED


def test_a_checkpoint_that_cannot_ask_goes_by_the_last_answer(monkeypatch, caplog):
    with claim("x", ttl=60) as held:
        faults.fail("poll")
        shifted = ShiftedClock()
        monkeypatch.setattr(keeper, "clock", shifted)

        shifted.by = 5.0
        held.checkpoint()

        assert held.held
    assert len(messages(caplog, "Stop flags cannot be read; the last answer stands")) == 1


def test_an_acheckpoint_with_stale_news_asks_the_store_too(monkeypatch):
    async def main():
        async with claim("x", ttl=60) as held:
            claim_backends["default"].set_flag("x", keep=False, fence=None, reason="", by="", ttl_ms=None)
            await held.acheckpoint()
            shifted = ShiftedClock()
            monkeypatch.setattr(keeper, "clock", shifted)
            shifted.by = 5.0
            with pytest.raises(StopRequested):
                await held.acheckpoint()

    asyncio.run(main())


# Progress.


def test_progress_is_written_within_five_seconds_without_waiting_for_the_beat():
    assert looking.PROGRESS_SECONDS == 5.0


def test_progress_is_written_soon_in_one_batch(monkeypatch):
    monkeypatch.setattr(looking, "PROGRESS_SECONDS", 0.3)
    with claim("x", ttl=60) as held:
        for done in range(50):
            held.checkpoint(done, 50, "half way")
        assert faults.count("renew") == 0

        wait_until(lambda: claim("x").lease().progress, 2)

        assert claim("x").lease().progress.done == 49
        assert claim("x").lease().progress.note == "half way"
        assert faults.count("renew") == 1
        assert held.lease.progress.done == 49


def test_progress_goes_along_with_the_next_beat_and_is_not_sent_twice():
    sent = []

    def renew(real, requests):
        sent.append(requests[0].progress)
        return real(requests)

    faults.on("renew", renew)
    with claim("x") as held:
        held.checkpoint(1, 2)

        wait_until(lambda: len(sent) >= 3, 5)

    assert sent[0] is not None
    assert sent[1:3] == [None, None]


def test_progress_of_a_failed_renewal_is_sent_again():
    sent = []

    def renew(real, requests):
        sent.append(requests[0].progress)
        if len(sent) == 1:
            raise BackendUnavailable("default")
        return real(requests)

    faults.on("renew", renew)
    with claim("x") as held:
        held.checkpoint(1, 2)

        wait_until(lambda: (lease := claim("x").lease()) and lease.progress, 3)

    assert sent[0] == sent[1] != None  # noqa: E711


def test_progress_made_while_a_renewal_is_on_the_wire_is_written_too(monkeypatch):
    monkeypatch.setattr(looking, "PROGRESS_SECONDS", 0.2)
    entered, go_on = threading.Event(), threading.Event()

    def renew(real, requests):
        if not entered.is_set():
            entered.set()
            go_on.wait(5)
        return real(requests)

    faults.on("renew", renew)
    with claim("x", ttl=60) as held:
        held.checkpoint(1)
        assert entered.wait(3)
        held.checkpoint(2)
        go_on.set()

        wait_until(lambda: (done := claim("x").lease().progress) and done.done == 2, 3)


# Deleting what nobody holds.


def late_copy(name, token):
    """Do what a request does that comes late: take the name for the token."""
    lease_of_nobody = AcquireRequest(name, token, 60_000, 20_000, trying.this_holder("late"))
    super_acquire = super(type(claim_backends["default"]), claim_backends["default"]).acquire
    return super_acquire([lease_of_nobody])


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setattr(trying, "new_token", lambda: "the one token")
    return "the one token"


def free():
    return claim("x").lease() is None


def test_an_acquire_without_an_answer_is_deleted_again_and_again_for_a_ttl(token):
    faults.lose_reply("acquire")

    with pytest.raises(BackendUnavailable):
        claim("x").acquire()

    ends = clock() + 1.2
    wait_until(free, 1)
    late_copy("x", token)
    assert not free()
    wait_until(free, 1)
    late_copy("x", token)
    wait_until(free, 1)
    assert clock() < ends, "too slow to tell"
    wait_until(lambda: not keeper_of("default").orphans(), 3)
    before = faults.count("release")
    assert stays(lambda: faults.count("release") == before, 0.6)


def test_an_acquire_that_never_reached_the_store_is_deleted_all_the_same(token):
    faults.fail("acquire")

    with pytest.raises(BackendUnavailable):
        claim("x").acquire()

    late_copy("x", token)
    wait_until(free, 1)


def test_a_delete_that_fails_is_tried_again_until_the_store_answers(token, caplog):
    faults.lose_reply("acquire")
    faults.fail_in_turn("release", *[BackendUnavailable("default", "down") for _ in range(3)])

    with pytest.raises(BackendUnavailable):
        claim("x").acquire()

    wait_until(free, 2)
    assert len(messages(caplog, "A lease that may be left could not be deleted yet")) == 3


def test_a_delete_never_touches_another_token():
    faults.lose_reply("acquire")
    with pytest.raises(BackendUnavailable):
        claim("x").acquire()
    wait_until(free, 1)
    faults.off("acquire")

    with claim("x") as held:
        assert keeper_of("default").orphans()
        assert stays(lambda: held.held and held.verify(), 0.8)


def test_a_slow_acquire_is_deleted_again_after_a_clean_release(monkeypatch, token):
    monkeypatch.setattr(trying, "SLOW_SECONDS", 0.05)
    faults.delay("acquire", 0.1)
    held = claim("x").acquire()

    assert held.release()

    late_copy("x", token)
    wait_until(free, 1)


def test_a_quick_acquire_costs_no_second_delete():
    held = claim("x").acquire()

    assert held.release()

    assert stays(lambda: faults.count("release") == 1, 0.5)


def test_a_slow_try_that_was_refused_is_deleted_too(monkeypatch, token):
    """A client that sent its request twice may have the first one granted after the second was refused."""
    monkeypatch.setattr(trying, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(trying, "new_token", lambda: "another token")
    other = run_in_thread(claim("x").acquire)
    monkeypatch.setattr(trying, "new_token", lambda: token)
    faults.delay("acquire", 0.1)
    assert claim("x").acquire() is None
    other.release()

    late_copy("x", token)

    wait_until(free, 1)


def test_a_grant_after_a_slow_try_is_deleted_again_after_a_clean_release(monkeypatch, token):
    monkeypatch.setattr(trying, "SLOW_SECONDS", 0.05)
    monkeypatch.setattr(trying, "new_token", lambda: "another token")
    other = run_in_thread(claim("x").acquire)
    monkeypatch.setattr(trying, "new_token", lambda: token)
    tries = []

    def acquire(real, requests):
        tries.append(real(requests))
        if len(tries) == 1:  # refused, and slowly: a copy of the request may still be under way
            threading.Event().wait(0.1)
            other.release()
        return tries[-1]

    faults.on("acquire", acquire)
    held = claim("x").acquire(timeout=2)
    assert held.release()

    late_copy("x", token)

    wait_until(free, 1)


def test_a_grant_that_comes_too_late_is_given_back(token):
    def acquire(real, requests):
        answer = real(requests)
        shifted.by = 0.75  # of the 0.8 s until the deadline
        return answer

    shifted = ShiftedClock()
    faults.on("acquire", acquire)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trying, "clock", shifted)
        with pytest.raises(BackendUnavailable, match="too late to be of use"):
            claim("x").acquire()

    wait_until(free, 1)


def test_a_dropped_hold_is_released_with_a_warning_and_an_error_that_names_it(caplog):
    held = claim("forgotten job", ttl=60).acquire()
    wait_until(lambda: not claim("forgotten job").available(), 1)

    with pytest.warns(ResourceWarning, match="'forgotten job' was dropped without release"):
        del held
        gc.collect()

    wait_until(claim("forgotten job").available, 3)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "dropped without release" in record.getMessage()
    assert "name=forgotten job" in record.getMessage()
    assert keeper_of("default").orphans() == []


@pytest.fixture
def finalizers_cut_short(monkeypatch):
    """As by an exception of a signal handler, which Python drops there."""
    monkeypatch.delattr(holds.Hold, "__del__")


def test_a_hold_whose_finalizer_was_cut_short_is_released_at_its_next_beat(finalizers_cut_short, caplog):
    held = claim("forgotten job", ttl=60, heartbeat=0.3).acquire()
    assert held is not None

    del held
    gc.collect()

    wait_until(claim("forgotten job").available, 5)
    assert "dropped without release, and is released now" in caplog.text
    wait_until(lambda: keeper_of("default").orphans() == [], 2)


def test_a_hold_whose_finalizer_was_cut_short_is_released_at_exit(finalizers_cut_short):
    held = claim("forgotten job", ttl=60).acquire()
    assert held is not None
    del held
    gc.collect()

    assert release_all("exit") == 0, "nobody holds it"
    assert claim("forgotten job").lease() is None
    wait_until(lambda: registry.vanished("default") == {}, 5)


def test_an_exception_on_the_way_out_of_the_block_releases_the_hold(monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(holds, "warn_once", interrupted)
    with pytest.raises(KeyboardInterrupt), claim("job", ttl=60) as held:
        pass

    assert not held.is_open
    assert claim("job").lease() is None


def test_a_dropped_hold_keeps_no_thread_alive(short_idle):
    wait_for_no_threads()
    held = claim("x", ttl=60).acquire()

    with pytest.warns(ResourceWarning):
        del held
        gc.collect()

    wait_until(lambda: not threads(), 4)


def test_the_trap_of_an_unnamed_hold_is_told():
    with pytest.warns(ResourceWarning, match="dropped without release"):
        if claim("x", ttl=60).acquire():
            gc.collect()

    wait_until(claim("x").available, 3)


def test_a_dropped_hold_does_not_end_the_next_one():
    held = claim("x", ttl=60).acquire()
    force_release("x", fence=held.fence)
    assert held.lost_event.wait(1)
    with claim("x", ttl=60) as second:
        with pytest.warns(ResourceWarning):
            del held
            gc.collect()

        assert stays(lambda: second.held, 0.5)
        assert second.verify()


# Threads.


def test_a_thousand_holds_of_one_alias_need_two_threads_and_each_further_alias_one_more(short, short_idle):
    wait_for_no_threads()
    aliases = ("default", "other", "third")
    short.CLAIMS = {alias: {"BACKEND": FLAKY, "TTL": 60} for alias in aliases}

    holds = [claim(f"job {number}").acquire() for number in range(1000)]
    with_one = threads()
    holds += [claim(f"job {number}", using=alias).acquire() for alias in aliases[1:] for number in range(10)]

    assert with_one == ["django-claims deadlines", "django-claims default"]
    assert threads() == [
        "django-claims deadlines", "django-claims default", "django-claims other", "django-claims third",
    ]  # fmt: skip
    for held in holds:
        assert held.release()


def test_after_500_claims_the_number_of_threads_is_back(short_idle):
    wait_for_no_threads()
    before = threading.active_count()

    for number in range(500):
        with claim(f"job {number}"):
            pass

    wait_until(lambda: threading.active_count() == before, 5)


def test_after_the_last_hold_no_thread_waits_for_a_deadline_that_is_none(short_idle):
    wait_for_no_threads()
    with claim("x", ttl=60):
        pass

    wait_until(lambda: not threads(), 4)


def test_a_loop_of_short_holds_starts_one_thread_only(monkeypatch):
    started = []
    start = threading.Thread.start

    def counted(self):
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)

    for number in range(100):
        with claim(f"job {number}"):
            pass

    assert len(started) <= 2


def refuse_threads(patch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", refuse)


@pytest.fixture
def fresh_alias(short):
    """An alias that has no thread yet."""
    short.CLAIMS = {"default": {"BACKEND": FLAKY}, "fresh": {"BACKEND": FLAKY, "TTL": 60}}
    keeper._keepers.pop("fresh", None)
    yield "fresh"
    keeper._keepers.pop("fresh", None)


def test_without_a_thread_nothing_is_taken(fresh_alias, monkeypatch):
    with monkeypatch.context() as patch:
        refuse_threads(patch)
        with pytest.raises(ClaimError, match="Claim 'x' was not taken: no thread could be started") as error:
            claim("x", using=fresh_alias).acquire()

    assert not isinstance(error.value, BackendUnavailable)
    assert faults.count("acquire") == 0
    assert claim("x", using=fresh_alias).lease() is None
    with claim("x", using=fresh_alias) as held:
        assert held.held


def test_without_a_thread_for_deadlines_nothing_is_taken(fresh_alias, monkeypatch, short_idle):
    wait_for_no_threads()
    keeper_of(fresh_alias).heartbeat.call_by(clock() + 2)

    with monkeypatch.context() as patch:
        refuse_threads(patch)
        with pytest.raises(ClaimError, match="no thread could be started"):
            claim("x", using=fresh_alias).acquire()

    assert faults.count("acquire") == 0


def test_a_delete_without_a_thread_is_logged_and_raises_nothing(fresh_alias, monkeypatch, caplog):
    orphan = keeper.Orphan(("x",), "t", clock() + 1, 0.1)

    with monkeypatch.context() as patch:
        refuse_threads(patch)
        keeper_of(fresh_alias).delete_later(orphan)

    assert messages(caplog, "No thread to delete a lease that may be left")


# Deadlines and errands.


def test_an_errand_is_done_in_the_deadlines_thread():
    done = []

    deadlines.run_at(clock() + 0.05, lambda: done.append(threading.current_thread().name))

    wait_until(lambda: done, 2)
    assert done == ["django-claims deadlines"]


def test_an_errand_that_fails_harms_no_other(caplog):
    done = []

    def fails():
        raise ValueError("x")

    deadlines.run_at(0.0, fails)
    deadlines.run_at(0.0, lambda: done.append(1))

    wait_until(lambda: done, 2)
    wait_until(lambda: messages(caplog, "An errand failed"), 2)


def test_a_deadline_moves_on_with_each_renewal():
    with claim("x") as held:
        first = held.deadline

        wait_until(lambda: held.deadline > first + 1, 5)

        assert held.held
        assert not held.lost_event.is_set()


def test_a_callable_that_fails_keeps_no_other_hold_from_being_told(caplog):
    def fails():
        raise ValueError("x")

    holds = [hold(f"job {number}", signal=fails) for number in range(5)]
    faults.fail("renew")

    for held in holds:
        assert held.lost_event.wait(3)
    wait_until(lambda: len(messages(caplog, "A signal= callable failed")) == 5, 2)
    release_all("done")


@pytest.mark.parametrize("news", ["stop", "loss"])
def test_a_callable_that_exits_ends_no_thread_of_ours(news):
    """`signal=sys.exit` looks natural; it must not stop all renewals of the process."""

    def leaves():
        raise SystemExit(3)

    first = hold("first", signal=leaves)
    if news == "stop":
        request_stop("first")
        wait_until(lambda: first.stop_requested, 2)
    else:
        force_release("first", fence=first.fence)
        wait_until(lambda: first.lost, 2)
    with claim("second") as second:
        assert stays(lambda: second.held, 2.0)
    first.release()


def test_a_loss_that_cannot_be_told_to_a_closed_loop_keeps_nothing_from_the_others(heard, caplog):
    async def take():
        return await claim("first", on_lost="cancel").aacquire()

    first = asyncio.run(take())
    others = [claim(f"job {number}").acquire() for number in range(3)]
    faults.fail("renew")

    for held in others:
        assert held.lost_event.wait(3)
    assert first.lost
    lost = ["first", "job 0", "job 1", "job 2"]
    wait_until(lambda: sorted(about["name"] for about in heard.all("claim_lost")) == lost)  # after the event
    assert "Heartbeat work failed" not in caplog.text
    release_all("done")


# What else may be in the way.


def test_a_grant_that_cannot_be_kept_is_given_back(monkeypatch):
    def keep(self, *args, **kwargs):
        raise MemoryError("no room")

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(type(keeper_of("default")), "keep", keep)
        claim("x").acquire()

    assert current_hold() is None
    wait_until(lambda: claim("x").available())


def test_an_alias_that_is_gone_is_looked_at_once_a_second_and_listens_to_nothing():
    """As one that was there for a test."""
    gone = keeper_of("gone")

    gone._begin_to_listen()

    assert not gone.heartbeat.poked
    assert gone._look_at() == gone._asked_at + 1.0


def test_news_of_another_run_are_none():
    with claim("x") as held:
        flag = request_stop("x", keep=True)
        clear_stop("x")

        assert held.told([Notice("x", replace(flag, keep=False, fence=held.fence + 1))]) is False
        assert held.stop_requested is False
