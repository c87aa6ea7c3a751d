"""on_lost="interrupt": a loss raises in the main thread."""

import contextlib
import gc
import signal
import threading
import time

import pytest

from django_claims import ClaimLost, InvalidClaim, LossReason, claim, force_release, interrupts
from django_claims.clock import clock
from tests.helpers import (
    claims_settings,
    faults,
    listening,
    run_in_thread,
    shift_holds,
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
shifted = pytest.fixture(shift_holds)
heard = pytest.fixture(listening)


@pytest.fixture(autouse=True)
def calm(settings):
    settings.CLAIMS = claims_settings(TTL=60)
    before = signal.getsignal(interrupts.SIGNAL)
    yield settings
    interrupts._depth = 0
    interrupts._lost.clear()
    signal.signal(interrupts.SIGNAL, before)


def handler():
    return signal.getsignal(interrupts.SIGNAL)


def force_soon(hold, seconds=0.1):
    threading.Timer(seconds, lambda: force_release(hold.name, fence=hold.fence)).start()


def test_a_loss_ends_a_blocking_call_of_the_main_thread():
    started = clock()

    with pytest.raises(ClaimLost) as lost, claim("x", on_lost="interrupt") as hold:
        force_soon(hold)
        time.sleep(30)

    assert clock() - started < 3
    assert (lost.value.name, lost.value.reason) == ("x", LossReason.FORCED)


def test_a_loss_just_before_a_blocking_call_ends_it_too():
    """A signal whose handler Python has not run yet when the call begins does not end it: seen each time, here."""
    go, told, started = threading.Event(), [], clock()

    def tell():
        go.wait()
        interrupts.raise_in_main_thread(hold)
        told.append(True)

    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt") as hold:
        threading.Thread(target=tell).start()
        go.set()
        while not told:
            pass
        time.sleep(8)  # no call before it: Python looks for signals after each

    assert clock() - started < 7


def test_a_signal_that_was_sent_once_too_often_is_not_for_the_handler_of_the_project():
    called = []
    signal.signal(interrupts.SIGNAL, lambda signum, frame: called.append(signum))

    with claim("x", on_lost="interrupt") as hold:
        interrupts._lost.append(hold)
        with pytest.raises(ClaimLost):
            interrupts._send(hold, 60.0)
        interrupts._is_ours = True  # sent again by one who has not seen yet that it was heard
        signal.raise_signal(interrupts.SIGNAL)
        signal.raise_signal(interrupts.SIGNAL)

    assert called == [interrupts.SIGNAL]


def spin(seconds):
    ends = clock() + seconds
    while clock() < ends:
        pass


def test_a_loss_ends_a_busy_loop_of_the_main_thread():
    # Not in the block itself: Python 3.13.0 leaves the jump of a loop that ends a with block uncovered, and
    # an exception that a signal raises there runs no __exit__ of anybody's.
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt") as hold:
        force_soon(hold)
        spin(5)


def test_the_deadline_interrupts_while_the_store_hangs():
    with pytest.raises(ClaimLost) as lost, claim("x", ttl=0.6, on_lost="interrupt"), faults.hanging("renew"):
        time.sleep(5)

    assert lost.value.reason is LossReason.EXPIRED


def test_the_handler_is_there_only_while_such_a_hold_is():
    before = handler()

    with claim("x", on_lost="interrupt"):
        within = handler()
        with claim("y", on_lost="interrupt"):
            pass
        after_the_inner = handler()

    assert within is interrupts._handler
    assert after_the_inner is interrupts._handler
    assert handler() == before


def test_a_hold_of_another_kind_sets_no_handler():
    before = handler()

    with claim("x"):
        assert handler() == before


def test_the_handler_is_put_back_after_a_loss():
    before = handler()

    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt") as hold:
        force_soon(hold)
        time.sleep(5)

    assert handler() == before


def test_a_handler_of_the_project_is_called_for_what_is_not_ours_and_put_back():
    called = []

    def of_the_project(signum, frame):
        called.append(signum)

    signal.signal(interrupts.SIGNAL, of_the_project)

    with claim("x", on_lost="interrupt"):
        signal.raise_signal(interrupts.SIGNAL)

    assert called == [interrupts.SIGNAL]
    assert handler() is of_the_project


def test_a_refusal_sets_no_handler():
    other = run_in_thread(claim("x").acquire)
    before = handler()

    assert claim("x", on_lost="interrupt").acquire() is None

    assert handler() == before
    other.release()


def test_only_the_main_thread_may_ask_for_it():
    with pytest.raises(InvalidClaim, match="main thread"):
        run_in_thread(claim("x", on_lost="interrupt").acquire)

    assert faults.calls == []


def test_after_the_body_nothing_is_interrupted_any_more():
    with claim("x", on_lost="interrupt") as hold:
        pass

    interrupts.raise_in_main_thread(hold)
    ends = clock() + 0.2
    while clock() < ends:
        pass

    assert not hold.held


def test_the_name_is_free_after_an_interrupt(heard):
    with pytest.raises(ClaimLost), claim("x", ttl=0.6, on_lost="interrupt"):
        faults.fail("renew")
        time.sleep(5)

    assert heard.one("claim_lost")["name"] == "x"
    assert len(heard.all("claim_released")) == 1


def test_a_loss_that_the_main_thread_itself_finds_is_told_to_all_the_same(shifted, heard):
    """As after SIGSTOP: the main thread may look before any other thread has run."""
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt") as hold:
        shifted.by = 41.0
        hold.checkpoint()

    assert heard.one("claim_lost")["reason"] is LossReason.EXPIRED


def test_a_loss_that_the_main_thread_itself_finds_interrupts_it_as_any_other(shifted):
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt") as hold:
        shifted.by = 41.0
        assert not hold.held
        time.sleep(2)
        pytest.fail("went on")


def test_a_loss_that_is_found_on_leaving_is_released_all_the_same(shifted, heard, caplog):
    before = handler()

    with contextlib.suppress(ClaimLost), claim("x", on_lost="interrupt"):  # raised or not: told below
        shifted.by = 41.0

    assert claim("x").lease() is None
    assert len(heard.all("claim_lost")) == len(heard.all("claim_released")) == 1
    assert handler() == before
    assert "could not be told" not in caplog.text


def test_a_loss_that_is_found_on_leaving_is_raised(shifted):
    """A command whose claim was lost must not end as if all were well."""
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt"):
        shifted.by = 41.0


def test_a_dropped_hold_puts_the_handler_back():
    before = handler()
    hold = claim("x", on_lost="interrupt").acquire()

    with pytest.warns(ResourceWarning):
        del hold
        gc.collect()

    wait_until(claim("x").available, 3)
    assert handler() == before


def test_a_hold_released_by_another_thread_puts_the_handler_back_with_the_next():
    before = handler()
    hold = claim("x", on_lost="interrupt").acquire()
    run_in_thread(hold.release)

    with claim("y", on_lost="interrupt"):
        pass

    assert handler() == before
