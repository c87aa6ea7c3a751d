"""A forked child has nothing of its parent's, and can claim for itself at once."""

import os
import pickle
import signal
import threading
import time
import traceback
import warnings

import pytest

from django_claims import (
    LossReason,
    ReleaseResult,
    claim,
    current_hold,
    offload,
    registry,
    release_all,
    request_stop,
)
from django_claims.clock import clock
from django_claims.keeper import all_keepers, deadlines, keeper_of
from tests.helpers import claims_settings, faults, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture(autouse=True)
def calm(settings):
    settings.CLAIMS = claims_settings(TTL=0.9)
    return settings


def in_child(func, seconds=20):
    """Return what a function gives in a forked child; fail if it hangs there or raises."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads: our subject
        pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(reading)
            faulty = None
            try:
                answer = func()
            except BaseException:
                answer, faulty = None, traceback.format_exc()
            os.write(writing, pickle.dumps((answer, faulty)))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ends = clock() + seconds
    os.set_blocking(reading, False)
    data, code = b"", None
    try:
        while code is None:
            assert clock() < ends, "the child hangs"
            try:
                data += os.read(reading, 65536)
            except BlockingIOError:
                pass
            found, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if found else None
            time.sleep(0.005)
        try:
            data += os.read(reading, 1 << 20)
        except BlockingIOError:
            pass
    finally:
        os.close(reading)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert code == 0
    answer, faulty = pickle.loads(data)
    assert faulty is None, faulty
    return answer


def test_a_child_holds_nothing_and_lets_go_of_nothing():
    with claim("p") as hold:

        def child():
            return (
                hold.held, hold.lost, hold.loss_reason, hold.lost_event.is_set(), hold.release(), hold.renew(),
                current_hold(), registry.all_holds(), release_all("exit"), faults.count("release"), hold.remaining(),
            )  # fmt: skip

        found = in_child(child)

        assert found == (
            False, True, LossReason.FORKED, True, ReleaseResult.NOT_HELD, False, None, [], 0, 0, 0.0
        )  # fmt: skip
        assert hold.held
        assert hold.verify()


def test_the_parents_hold_is_renewed_on_after_a_fork():
    with claim("p") as hold:
        in_child(lambda: None)
        before = faults.count("renew")

        wait_until(lambda: faults.count("renew") >= before + 3, 3)

        assert hold.held


def test_a_child_claims_for_itself_at_once_and_keeps_it():
    with claim("p"):

        def child():
            with claim("c") as hold:
                ends = clock() + 2.7  # three TTLs
                while clock() < ends:
                    if not hold.held:
                        return "lost"
                    time.sleep(0.01)
                return hold.verify(), hold.name, current_hold() is hold

        assert in_child(child) == (True, "c", True)


def test_a_child_may_take_the_very_name_without_a_word_of_re_entry():
    with claim("p") as hold:
        # The memory of the child is its own, so that the name is free there.
        assert in_child(lambda: claim("p").acquire() is not None) is True
        assert hold.held


def test_a_child_that_leaves_the_with_of_its_parent_releases_nothing():
    parent = os.getpid()
    recipe = claim("p", on_lost="raise")
    answers = []

    def child():
        recipe.__exit__(None, None, None)
        return faults.count("release")

    with recipe as hold:
        answers.append(in_child(child))

        assert os.getpid() == parent
        assert hold.held
    assert answers == [0]


def test_a_child_that_forgets_the_hold_of_its_parent_is_quiet():
    holds = [claim("p").acquire()]

    def child():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            holds.clear()
            return [str(warning.message) for warning in caught if warning.category is ResourceWarning]

    assert in_child(child) == []
    assert holds[0].release()


@pytest.mark.parametrize(
    "kept", ["registry.lock", "keeper lock", "keeper heartbeat", "deadlines lock", "deadlines heartbeat"]
)
def test_a_mutex_that_another_thread_has_at_the_fork_hangs_no_child(kept):
    with claim("p"):
        lock = {
            "registry.lock": registry.lock,
            "keeper lock": keeper_of("default")._lock,
            "keeper heartbeat": keeper_of("default").heartbeat._changed,
            "deadlines lock": deadlines._lock,
            "deadlines heartbeat": deadlines.heartbeat._changed,
        }[kept]
        taken, over = threading.Event(), threading.Event()

        def keep():
            with lock:
                taken.set()
                over.wait(20)

        keeping = threading.Thread(target=keep)
        keeping.start()
        assert taken.wait(5)

        def child():
            with claim("c") as hold:
                request_stop("c")
                seen = hold.stop_event.wait(3)
                return seen, hold.renew(), bool(hold.release()), release_all("exit")

        try:
            assert in_child(child) == (True, True, True, 0)
        finally:
            over.set()
            keeping.join(5)


def test_a_fork_while_a_renewal_hangs_hangs_no_child():
    with claim("p"), faults.hanging("renew") as entered:
        assert entered.wait(3)

        def child():
            faults.clear()
            with claim("c", ttl=0.6) as hold:
                return hold.sleep(1.5), hold.held

        assert in_child(child) == (False, True)


def test_a_child_has_threads_of_its_own():
    def child():
        before = threading.active_count()
        with claim("c"):
            return before, sorted(thread.name for thread in threading.enumerate())

    with claim("p"):
        before, names = in_child(child)

    assert before == 1
    assert names[1:] == ["django-claims deadlines", "django-claims default"]


def test_a_child_deletes_nothing_of_what_its_parent_was_to_delete():
    faults.lose_reply("acquire")
    faults.fail("release")
    with pytest.raises(Exception, match="no answer"):
        claim("x").acquire()

    def child():
        return [keeper.orphans() for keeper in all_keepers()]

    assert all(orphans == [] for orphans in in_child(child))
    assert keeper_of("default").orphans() != []


def test_the_twins_work_in_a_child():
    import asyncio

    async def take():
        async with claim("c") as hold:
            return hold.held

    assert asyncio.run(take()) is True
    assert offload._executors

    assert in_child(lambda: asyncio.run(take())) is True


def test_a_fork_within_a_fork_is_as_the_first():
    with claim("p") as hold:

        def grandchild():
            return hold.held, claim("g").acquire() is not None

        def child():
            with claim("c") as mine:
                found = in_child(grandchild)
                return found, mine.held

        assert in_child(child) == ((False, True), True)
        assert hold.held


def test_a_hold_with_an_event_that_somebody_waits_for_hangs_no_child():
    with claim("p") as hold:
        waiting = threading.Thread(target=hold.sleep, args=(20,))
        waiting.start()
        hold.stop_event.is_set()

        def child():
            return hold.sleep(5), hold.stop_requested, hold.stop_event.is_set()

        assert in_child(child, 4) == (True, False, False)
        request_stop("p")
        waiting.join(5)
        assert not waiting.is_alive()
