"""How the guarded code looks: sleep, checkpoint, track, events, progress."""

import threading
from datetime import timedelta

import pytest

from django_claims import (
    ClaimLost,
    InvalidClaim,
    LossReason,
    StopRequested,
    claim,
    clear_stop,
    force_release,
    request_stop,
)
from django_claims.clock import clock
from tests.helpers import (
    calm,
    faults,
    shift_holds,
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
calm = pytest.fixture(autouse=True)(calm)
shifted = pytest.fixture(shift_holds)


def soon(func, seconds=0.1):
    threading.Timer(seconds, func).start()


# Sleep.


def test_an_undisturbed_sleep_lasts_its_time():
    with claim("x") as hold:
        started = clock()

        cut_short = hold.sleep(0.2)

        assert cut_short is False
        assert 0.2 <= clock() - started < 0.5


def test_a_stop_ends_a_sleep():
    with claim("x") as hold:
        soon(lambda: request_stop("x"))
        started = clock()

        assert hold.sleep(30) is True

        assert clock() - started < 2


def test_a_loss_ends_a_sleep():
    with claim("x") as hold:
        soon(lambda: force_release("x", fence=hold.fence))
        started = clock()

        assert hold.sleep(30) is True

        assert clock() - started < 2


def test_the_deadline_ends_a_sleep_though_no_thread_tells(shifted):
    with claim("x") as hold:
        shifted.by = 39.9

        assert hold.sleep(30) is True

        assert hold.loss_reason is LossReason.EXPIRED


def test_a_release_elsewhere_ends_a_sleep():
    hold = claim("x").acquire()
    soon(hold.release, 0.05)
    started = clock()

    assert hold.sleep(3) is True

    assert clock() - started < 2


def test_a_sleep_goes_on_over_renewals():
    with claim("x", ttl=0.6) as hold:
        started = clock()

        assert hold.sleep(1.3) is False

        assert clock() - started >= 1.3
        assert hold.held


def test_a_sleep_with_a_stop_already_there_is_none():
    with claim("x") as hold:
        request_stop("x")
        assert hold.stop_event.wait(2)
        started = clock()

        assert hold.sleep(30) is True

        assert clock() - started < 0.5


def test_a_stop_that_was_cleared_lets_one_sleep_again():
    with claim("x") as hold:
        request_stop("x")
        assert hold.sleep(5) is True
        clear_stop("x")
        wait_until(lambda: not hold.stop_requested, 2)

        assert hold.sleep(timedelta(seconds=0.1)) is False
        assert not hold.stop_event.is_set()


@pytest.mark.parametrize("seconds", [-1, "5", None, float("nan"), True])
def test_a_sleep_of_what_is_no_duration_is_refused(seconds):
    with claim("x") as hold, pytest.raises(InvalidClaim):
        hold.sleep(seconds)


def test_a_sleep_of_nothing_only_looks():
    with claim("x") as hold:
        assert hold.sleep(0) is False
        hold.lose(LossReason.FORCED)
        assert hold.sleep(0) is True


# Checkpoint.


def test_a_checkpoint_lets_a_healthy_run_go_on_without_asking_anybody():
    with claim("x") as hold:
        before = list(faults.calls)

        for _ in range(1000):
            hold.checkpoint()

        assert faults.calls == before


def test_a_checkpoint_raises_what_the_operator_asked():
    with claim("x") as hold:
        request_stop("x", reason="bad feed", by="ana")
        assert hold.stop_event.wait(2)

        with pytest.raises(StopRequested) as asked:
            hold.checkpoint()

        assert (asked.value.name, asked.value.reason, asked.value.by) == ("x", "bad feed", "ana")


def test_a_stop_that_came_between_taking_and_the_first_line_is_seen_at_the_first_check():
    with claim("x") as hold:
        request_stop("x")
        wait_until(lambda: hold.stop_flag_now, 2)

        with pytest.raises(StopRequested):
            hold.checkpoint()


@pytest.mark.parametrize("on_lost", ["flag", "raise"])
def test_a_checkpoint_raises_a_loss_whatever_was_chosen(shifted, on_lost):
    hold = claim("x", on_lost=on_lost).acquire()
    shifted.by = 41.0

    with pytest.raises(ClaimLost) as lost:
        hold.checkpoint()

    assert lost.value.reason is LossReason.EXPIRED
    hold.release()


def test_a_loss_goes_before_a_stop():
    with claim("x") as hold:
        request_stop("x")
        assert hold.stop_event.wait(2)
        hold.lose(LossReason.FORCED)

        with pytest.raises(ClaimLost):
            hold.checkpoint()


def test_a_checkpoint_after_release_is_lost():
    hold = claim("x").acquire()
    hold.release()

    with pytest.raises(ClaimLost) as lost:
        hold.checkpoint()

    assert lost.value.reason is None


# Progress.


def test_progress_is_kept_though_the_run_is_then_stopped():
    with claim("x") as hold:
        request_stop("x")
        assert hold.stop_event.wait(2)

        with pytest.raises(StopRequested):
            hold.checkpoint(3, 10, "third")

        assert (hold.lease.progress.done, hold.lease.progress.total, hold.lease.progress.note) == (3, 10, "third")


def test_a_note_stays_until_another_is_given_and_is_cut():
    with claim("x") as hold:
        hold.checkpoint(1, 3, "first\npart" + "x" * 300)
        hold.checkpoint(2, 3)
        kept = hold.lease.progress
        hold.checkpoint(3, 3, "")

        assert kept.done == 2
        assert kept.note.startswith("first part")
        assert len(kept.note) == 200
        assert hold.lease.progress.note == ""


def test_no_progress_is_none():
    with claim("x") as hold:
        hold.checkpoint()

        assert hold.lease.progress is None


def test_progress_is_in_the_store_after_a_renewal():
    with claim("x") as hold:
        hold.checkpoint(0.5, 1.0, "ünï")

        hold.renew()

        found = claim("x").lease().progress
        assert (found.done, found.total, found.note) == (0.5, 1.0, "ünï")


# Track.


def test_track_yields_all_and_counts_what_is_done():
    seen = []
    with claim("x") as hold:
        for item in hold.track(["a", "b", "c"]):
            seen.append((item, hold.lease.progress.done, hold.lease.progress.total))

        assert seen == [("a", 0, 3), ("b", 1, 3), ("c", 2, 3)]
        assert hold.lease.progress.done == 3


def test_track_of_an_iterator_takes_the_total_that_is_given():
    with claim("x") as hold:
        assert list(hold.track(iter(range(3)), total=3)) == [0, 1, 2]
        assert (hold.lease.progress.done, hold.lease.progress.total) == (3, 3)
        assert list(hold.track(iter(range(2)))) == [0, 1]
        assert hold.lease.progress.total is None


def test_track_of_nothing_is_a_checkpoint():
    with claim("x") as hold:
        assert list(hold.track([])) == []
        assert (hold.lease.progress.done, hold.lease.progress.total) == (0, 0)


def test_track_ends_on_a_stop_between_items_and_says_how_far_it_came():
    seen = []
    with claim("x") as hold:
        with pytest.raises(StopRequested):
            for item in hold.track(range(10)):
                seen.append(item)
                if item == 3:
                    request_stop("x")
                    assert hold.stop_event.wait(2)

        assert seen == [0, 1, 2, 3]
        assert hold.lease.progress.done == 4


def test_track_ends_on_a_loss(shifted):
    seen = []
    with claim("x") as hold, pytest.raises(ClaimLost):
        for item in hold.track(range(10)):
            seen.append(item)
            shifted.by = 41.0

    assert seen == [0]


# Events.


def test_an_event_that_is_asked_for_late_is_set_already():
    with claim("x") as hold:
        request_stop("x")
        wait_until(lambda: hold.stop_flag_now, 2)
        hold.lose(LossReason.FORCED)

        assert hold.stop_event.is_set()
        assert hold.lost_event.is_set()


def test_an_event_is_always_the_same():
    with claim("x") as hold:
        assert hold.stop_event is hold.stop_event
        assert hold.lost_event is hold.lost_event


def test_a_stop_event_is_cleared_with_the_flag():
    with claim("x") as hold:
        event = hold.stop_event
        request_stop("x")
        assert event.wait(2)

        clear_stop("x")

        wait_until(lambda: not event.is_set(), 2)
        assert not hold.stop_requested
        hold.checkpoint()


@pytest.mark.parametrize(
    "look",
    [
        lambda hold: hold.checkpoint(),
        lambda hold: list(hold.track([])),
        lambda hold: hold.sleep(0),
        lambda hold: hold.stop_requested,
        lambda hold: hold.stop_flag,
        lambda hold: hold.stop_event,
    ],
    ids=["checkpoint", "track", "sleep", "stop_requested", "stop_flag", "stop_event"],
)
def test_a_body_that_looks_is_known_to_look(look):
    with claim("x") as hold:
        before = hold.has_looked

        look(hold)

        assert (before, hold.has_looked) == (False, True)


def test_looking_at_held_alone_is_no_looking_for_a_stop():
    with claim("x") as hold:
        assert hold.held
        assert not hold.lost
        assert hold.remaining()
        assert hold.lease
        assert not hold.has_looked


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), True, "7", 10**400])
def test_progress_that_is_no_number_is_refused_and_the_last_one_stands(wrong):
    with claim("x") as hold:
        hold.checkpoint(3, 10)

        with pytest.raises(InvalidClaim, match="finite number"):
            hold.checkpoint(wrong, 10)

        assert hold.lease.progress.done == 3
