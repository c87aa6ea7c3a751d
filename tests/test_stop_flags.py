"""Asking work to stop."""

import threading
from datetime import timedelta

import pytest

from django_claims import (
    Claim,
    ClaimStopped,
    InvalidClaim,
    StopRequested,
    claim,
    clear_stop,
    list_stop_flags,
    request_stop,
    stop_flag,
)
from django_claims.clock import clock
from tests.helpers import (
    calm,
    faults,
    listening,
    run_in_thread,
    stays,
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
calm = pytest.fixture(autouse=True)(calm)
heard = pytest.fixture(listening)


# This run.


def test_a_stop_for_nobody_is_none_and_leaves_no_flag(heard):
    assert request_stop("x") is None

    assert stop_flag("x") is None
    assert list_stop_flags() == []
    assert heard.sent == []
    with claim("x") as hold:
        hold.checkpoint()


def test_a_stop_is_bound_to_the_run_that_is(heard):
    with claim("x") as hold:
        flag = request_stop("x", reason="bad feed", by="ana")

        assert (flag.name, flag.alias, flag.fence, flag.keep) == ("x", "default", hold.fence, False)
        assert (flag.reason, flag.by) == ("bad feed", "ana")
        assert flag.requested_at is not None
        assert flag.expires_at is None
        assert stop_flag("x").reason == "bad feed"
        assert [found.name for found in list_stop_flags()] == ["x"]
    assert heard.one("stop_requested") == {"sender": Claim, "name": "x", "alias": "default", "flag": flag}


def test_the_next_run_is_not_stopped_by_the_flag_of_the_last():
    with claim("x") as first:
        request_stop("x")
        assert first.stop_event.wait(2)

    with claim("x") as second:
        second.checkpoint()
        assert stays(lambda: not second.stop_requested, 0.3)
    assert stop_flag("x") is None


def test_a_stop_just_before_the_end_ends_as_finished():
    with claim("x"):
        request_stop("x")

    assert stop_flag("x") is None
    assert claim("x").available()


def test_a_stop_aimed_at_an_earlier_run_does_not_hit_the_next():
    with claim("x") as first:
        pass
    with claim("x") as second:
        assert request_stop("x", fence=first.fence) is None
        assert stop_flag("x") is None

        assert request_stop("x", fence=second.fence).fence == second.fence


def test_two_stops_act_as_one_and_the_first_is_kept():
    with claim("x") as hold:
        first = request_stop("x", by="ana")
        second = request_stop("x", by="bob")

        assert (first.by, second.by) == ("ana", "ana")
        assert hold.stop_event.wait(2)
        with pytest.raises(StopRequested, match="by ana"):
            hold.checkpoint()
        assert len(list_stop_flags()) == 1


def test_two_stops_at_once_from_two_admins_act_as_one():
    with claim("x"):
        barrier, flags = threading.Barrier(2), []

        def ask(by):
            barrier.wait(5)
            flags.append(request_stop("x", by=by))

        askers = [threading.Thread(target=ask, args=(by,)) for by in ("ana", "bob")]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(5)

        assert len(flags) == 2
        assert flags[0].by == flags[1].by


def test_a_resting_claim_has_no_run_to_stop():
    with claim("x", min_hold=30):
        pass

    assert request_stop("x") is None
    assert stop_flag("x") is None


def test_a_stop_ends_with_the_lease_it_was_aimed_at():
    hold = claim("x", ttl=0.6).acquire()
    request_stop("x")
    faults.fail("renew")

    wait_until(lambda: stop_flag("x") is None, 2)

    assert list_stop_flags() == []
    faults.off("renew")
    hold.release()


# Kept.


def test_a_kept_stop_without_a_run_refuses_those_that_come():
    flag = request_stop("x", keep=True, by="ana")

    assert (flag.keep, flag.fence) == (True, None)
    with pytest.raises(ClaimStopped), claim("x"):
        pytest.fail("entered")
    assert [found.keep for found in list_stop_flags()] == [True]


def test_a_kept_stop_stops_the_run_that_is_and_outlives_it():
    with claim("x") as hold:
        request_stop("x", keep=True)
        assert hold.stop_event.wait(2)

    assert stop_flag("x").keep
    assert claim("x").acquire() is None


def test_a_kept_stop_sends_waiters_home():
    with claim("x"):
        errors = []

        def wait():
            try:
                claim("x", timeout=30).__enter__()
            except ClaimStopped as error:
                errors.append(error)

        waiter = threading.Thread(target=wait)
        started = clock()
        waiter.start()
        wait_until(lambda: faults.count("acquire") >= 2, 2)

        request_stop("x", keep=True, reason="maintenance")
        waiter.join(5)

        assert not waiter.is_alive()
        assert clock() - started < 3
        assert errors[0].flag.reason == "maintenance"


def test_a_kept_stop_is_over_when_cleared(heard):
    flag = request_stop("x", keep=True)

    first, second = clear_stop("x"), clear_stop("x")

    assert (first, second) == (True, False)
    assert heard.one("stop_cleared")["flag"] == flag
    with claim("x") as hold:
        hold.checkpoint()


def test_a_kept_stop_may_have_an_end():
    flag = request_stop("x", keep=True, ttl=0.3)
    assert flag.expires_at - flag.requested_at == timedelta(seconds=0.3)
    assert claim("x").acquire() is None

    wait_until(lambda: stop_flag("x") is None, 2)

    assert claim("x").acquire().release()


def test_a_run_goes_on_when_its_kept_stop_runs_out():
    with claim("x") as hold:
        request_stop("x", keep=True, ttl=0.4)
        assert hold.stop_event.wait(2)

        wait_until(lambda: not hold.stop_requested, 3)

        hold.checkpoint()


def test_a_kept_stop_takes_the_place_of_one_for_the_run():
    with claim("x") as hold:
        request_stop("x")
        assert hold.stop_event.wait(2)

        request_stop("x", keep=True, reason="for good")

        wait_until(lambda: hold.stop_flag.keep, 3)
    assert claim("x").acquire() is None


def test_a_stop_for_the_run_that_comes_on_top_of_a_kept_one_leaves_it():
    with claim("x"):
        request_stop("x", keep=True)

        again = request_stop("x")

        assert again.keep
    assert stop_flag("x").keep


# Arguments.


def test_words_are_cut_and_put_on_one_line():
    flag = request_stop("x", keep=True, reason="a\nb" + "r" * 600, by="c\td" + "b" * 300)

    assert flag.reason.startswith("a brr")
    assert len(flag.reason) == 500
    assert flag.by.startswith("c dbb")
    assert len(flag.by) == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"fence": "1"},
        {"fence": True},
        {"fence": 1.0},
        {"keep": True, "fence": 1},
        {"ttl": 5},
        {"keep": True, "ttl": 0},
        {"keep": True, "ttl": "5"},
        {"keep": True, "ttl": -1},
        {"keep": True, "reason": None},
        {"keep": True, "by": 5},
    ],
    ids=str,
)
def test_what_cannot_be_used_is_refused_before_anything_is_set(wrong):
    with pytest.raises(InvalidClaim):
        request_stop("x", **wrong)

    assert faults.calls == []


@pytest.mark.parametrize("ask", [request_stop, clear_stop, stop_flag])
def test_a_name_that_no_claim_may_have_is_refused(ask):
    with pytest.raises(InvalidClaim):
        ask(" x")


# Names that meet.


def test_a_flag_and_a_cached_value_and_a_claim_of_one_name_do_not_meet():
    from django.core.cache import cache

    cache.set("report", "a big value")
    with claim("report") as hold:
        request_stop("report")
        cache.delete("report")
        assert hold.verify()
        assert stop_flag("report")
        clear_stop("report")
        cache.set("report", "again")
        assert hold.verify()

    assert cache.get("report") == "again"
    assert stop_flag("report") is None
    cache.clear()


def test_flags_are_listed_in_order_of_name():
    for name in ("b", "c", "a"):
        request_stop(name, keep=True)

    assert [flag.name for flag in list_stop_flags()] == ["a", "b", "c"]


def test_a_flag_set_in_one_thread_reaches_a_hold_of_another():
    hold = run_in_thread(claim("x").acquire)

    request_stop("x")

    assert hold.stop_event.wait(2)
    hold.release()
