"""CLAIMS = None: everything goes on, and nothing excludes anybody."""

import asyncio
import gc
import math
import threading

import pytest

from django_claims import (
    LossReason,
    ReleaseResult,
    aclear_stop,
    aforce_release,
    alist_claims,
    arequest_stop,
    astop_flag,
    claim,
    clear_stop,
    current_hold,
    draining,
    force_release,
    heartbeat,
    hold,
    list_claims,
    list_stop_flags,
    liveness,
    release_all,
    request_stop,
    start_draining,
    stop_flag,
)
from tests.helpers import listening, run_in_thread, threads, tidy, wait_for_no_threads

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)


@pytest.fixture(autouse=True)
def off(settings):
    settings.CLAIMS = None


def test_a_claim_is_always_held():
    with claim("x", label="job") as held:
        assert (held.held, held.lost, held.loss_reason) == (True, False, None)
        assert held.remaining() == math.inf
        assert held.lease is None
        assert held.fence == 0
        assert held.name == "x"
        assert held.label == "job"
        assert current_hold() is held
        assert held.renew() is True
        assert held.verify() is True
        held.ensure(10**6)
        assert held.sleep(0.01) is False
        held.checkpoint(1, 2, "half")
        assert list(held.track([1, 2])) == [1, 2]
        assert (held.stop_requested, held.stop_flag) == (False, None)
        assert not held.lost_event.is_set()
        assert not held.stop_event.is_set()

    assert not held.held
    assert not held.lost
    assert current_hold() is None


def test_release_is_released_and_once():
    held = claim("x").acquire()

    assert held.release() is ReleaseResult.RELEASED
    assert held.release() is ReleaseResult.NOT_HELD
    assert held.renew() is False
    assert held.verify() is False


def test_nobody_is_excluded_not_even_oneself():
    with claim("x") as one, claim("x", timeout=5) as two:
        assert one.held
        assert two.held
        assert run_in_thread(lambda: claim("x").acquire().held)


@pytest.mark.parametrize(
    "recipe", [{"ttl": 0.1}, {"max_hold": 0.05}, {"min_hold": 5}, {"on_lost": "raise"}, {"using": "any"}], ids=str
)
def test_no_part_of_a_recipe_matters(recipe):
    with claim("x", **recipe) as held:
        assert held.sleep(0.15) is False
        assert held.held

    assert claim("x", **recipe).acquire().held


def test_hold_gives_none_and_takes_its_arguments_all_the_same():
    assert hold("x", stop="y", signal=threading.Event()) is None


def test_the_functions_say_that_there_is_nothing():
    assert claim("x").available() is True
    assert claim("x").lease() is None
    assert request_stop("x") is None
    assert request_stop("x", keep=True) is None
    assert stop_flag("x") is None
    assert clear_stop("x") is False
    assert list_stop_flags() == []
    page = list_claims(page=2, per_page=7)
    assert (page.leases, page.total, page.page, page.per_page, page.complete) == ([], 0, 2, 7, True)
    assert force_release("x", fence=1) is False
    assert liveness("x") == "running"


def test_the_twins_say_so_too():
    async def main():
        async with claim("x") as held:
            assert await held.averify()
            assert await held.arenew()
            await held.aensure(5)
            await held.acheckpoint()
            assert await held.asleep(0.01) is False
            assert [item async for item in held.atrack([1])] == [1]
        assert await claim("x").aavailable()
        assert await claim("x").alease() is None
        assert await arequest_stop("x") is None
        assert await astop_flag("x") is None
        assert await aclear_stop("x") is False
        assert list(await alist_claims()) == []
        assert await aforce_release("x", fence=1) is False
        return await held.arelease()

    assert asyncio.run(main()) is ReleaseResult.NOT_HELD


def test_a_wrong_name_or_number_is_still_wrong():
    from django_claims import InvalidClaim

    for ask in (lambda: request_stop(""), lambda: liveness(" "), lambda: list_claims(page=0), lambda: hold("x", ttl=0)):
        with pytest.raises(InvalidClaim):
            ask()


def test_nothing_is_sent_and_no_thread_is_started(heard, monkeypatch):
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 0.1)
    wait_for_no_threads()

    with claim("x"):
        request_stop("x")

    assert heard.sent == []
    assert threads() == []


def test_a_dropped_hold_is_no_matter(recwarn):
    held = claim("x").acquire()

    del held
    gc.collect()

    assert len(recwarn) == 0


def test_a_drain_asks_nobody_to_stop():
    with claim("x", stop_on_shutdown=True) as held:
        start_draining("SIGTERM")

        assert draining() is True
        assert held.held
        assert not held.stop_requested
        assert release_all("exit") == 0
        assert held.held


def test_turned_off_while_held_a_hold_is_still_released(settings):
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}}
    held = claim("x").acquire()
    settings.CLAIMS = None

    result = held.release()

    assert result is ReleaseResult.UNKNOWN
    assert not held.held
    assert held.loss_reason is not LossReason.FORKED
