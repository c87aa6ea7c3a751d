"""The end of this process: draining, and letting go of all."""

import gc
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from django_claims import (
    BackendUnavailable,
    Hold,
    StopRequested,
    claim,
    current_hold,
    draining,
    registry,
    release_all,
    shutdown,
    start_draining,
)
from django_claims.clock import clock
from django_claims.shutdown import stop_draining
from tests.helpers import (
    FLAKY,
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


# Draining.


def test_a_process_that_was_not_asked_does_not_drain():
    assert draining() is False


def test_a_drain_releases_nothing_and_stops_no_renewal():
    with claim("x", ttl=0.6) as hold:
        start_draining("SIGTERM")

        assert draining() is True
        assert stays(lambda: hold.held, 1.2)
        assert faults.count("renew") >= 3
        assert not hold.stop_requested
        hold.checkpoint()


def test_a_second_drain_changes_nothing(heard):
    start_draining("first")
    start_draining("second")

    assert heard.one("shutdown_started") == {"sender": None, "reason": "first"}


def test_a_drain_without_a_reason_is_one(heard):
    start_draining("")

    assert draining() is True
    assert heard.one("shutdown_started")["reason"] == "shutting down"


def test_a_drain_can_be_taken_back(heard):
    start_draining("one")
    stop_draining()

    assert draining() is False
    start_draining("two")
    assert len(heard.all("shutdown_started")) == 2


def test_a_hold_that_wished_so_is_asked_to_stop():
    with claim("x", stop_on_shutdown=True) as asked, claim("y") as other:
        start_draining("SIGTERM")

        assert asked.stop_requested
        assert asked.stop_event.wait(2)
        assert asked.stop_flag.reason == "SIGTERM"
        assert asked.held
        with pytest.raises(StopRequested, match="SIGTERM"):
            asked.checkpoint()
        assert not other.stop_requested
        assert claim("x").lease().stop_flag is None, "the store knows nothing of it"


def test_a_drain_wakes_a_sleep():
    with claim("x", stop_on_shutdown=True) as hold:
        threading.Timer(0.1, start_draining, ("SIGTERM",)).start()
        started = clock()

        assert hold.sleep(30) is True

        assert clock() - started < 2


def test_a_drain_trips_the_signal_of_a_hold():
    from django_claims.acquiring import Acquiring

    event = threading.Event()
    hold = Acquiring(claim("x", stop_on_shutdown=True), 0.0, trip=event.set).acquire()

    start_draining("SIGTERM")

    assert event.wait(2)
    hold.release()


def test_a_drain_from_a_signal_handler_does_not_hang_on_a_lock_of_the_thread_that_it_interrupts():
    from django_claims import registry

    with claim("x", stop_on_shutdown=True) as hold, registry.lock:
        start_draining("SIGTERM")

        assert hold.stop_requested


def test_a_hold_taken_while_draining_is_asked_to_stop_at_once():
    start_draining("SIGTERM")

    with claim("x", stop_on_shutdown=True) as hold:
        assert hold.stop_requested


# Releasing all.


def test_all_holds_of_all_threads_and_aliases_are_released(calm):
    calm.CLAIMS = {alias: {"BACKEND": FLAKY, "TTL": 60} for alias in ("default", "other")}
    holds = [claim(f"job {number}").acquire() for number in range(5)]
    holds += [run_in_thread(claim("x", using="other").acquire)]
    before = faults.count("release")

    count = release_all("worker shutdown")

    assert count == 6
    assert [hold for hold in holds if hold.held] == []
    assert claim("job 0").lease() is None
    assert claim("x", using="other").lease() is None
    assert faults.count("release") == before + 2, "one round trip for each alias"
    assert current_hold() is None


def test_releasing_all_twice_is_safe():
    hold = claim("x").acquire()

    assert (release_all("one"), release_all("two")) == (1, 0)

    assert hold.release() == "not_held"


def test_a_with_that_is_left_after_all_was_released_is_quiet(caplog):
    with pytest.raises(SystemExit) as left, claim("x"):
        release_all("SIGTERM")
        raise SystemExit(143)

    assert getattr(left.value, "__notes__", []) == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_each_hold_tells_that_it_was_released(heard):
    holds = [claim(name).acquire() for name in ("a", "b")]

    release_all("x")

    assert [about["result"] for about in heard.all("claim_released")] == ["released", "released"]
    assert [hold.held for hold in holds] == [False, False]


def test_a_dead_store_is_logged_and_not_raised(caplog, heard):
    hold = claim("x").acquire()
    faults.fail("release")

    assert release_all("exit") == 1

    assert not hold.held
    assert "Holds could not be released; they end with their TTL alias=default count=1 reason=exit" in caplog.text
    assert heard.one("claim_released")["result"] == "unknown"


def test_what_may_be_left_of_an_acquire_is_called_so_at_exit(caplog):
    faults.lose_reply("acquire")
    with pytest.raises(BackendUnavailable):
        claim("x").acquire()
    faults.fail("release")

    assert release_all("exit") == 0

    assert "Leases that may be left could not be deleted; they end with their TTL alias=default count=1" in caplog.text
    assert "Holds could not be released" not in caplog.text


def test_a_dead_store_leaves_the_others_their_share(calm):
    calm.CLAIMS = {alias: {"BACKEND": FLAKY, "TTL": 60} for alias in ("default", "other")}

    def release(real, requests):
        if real.__self__.alias == "default":
            raise BackendUnavailable("default")
        return real(requests)

    holds = [claim("x").acquire(), claim("x", using="other").acquire()]
    faults.on("release", release)

    assert release_all("exit") == 2

    assert [hold.held for hold in holds] == [False, False]
    assert claim("x", using="other").lease() is None


def test_a_frozen_store_is_waited_for_within_the_bound(monkeypatch, calm):
    monkeypatch.setattr(shutdown, "RELEASE_SECONDS", 0.4)
    calm.CLAIMS = {alias: {"BACKEND": FLAKY, "TTL": 60} for alias in ("default", "other", "third")}

    over = threading.Event()

    def frozen(real, requests):
        over.wait(real.__self__.verb_timeout())  # what a backend must do
        raise BackendUnavailable(real.__self__.alias)

    holds = [claim(f"job {number}", using=alias).acquire() for number in range(50) for alias in calm.CLAIMS]
    faults.on("release", frozen)
    started = clock()

    count = release_all("exit")
    took = clock() - started
    over.set()

    assert count == len(holds) == 150
    assert took < 0.9


def test_the_bound_is_five_seconds():
    assert shutdown.RELEASE_SECONDS == 5.0


def test_tokens_that_are_still_to_be_deleted_get_a_last_try():
    faults.lose_reply("acquire")
    faults.fail("release")
    with pytest.raises(BackendUnavailable):
        claim("x").acquire()
    assert claim("x").lease() is not None
    faults.clear()

    count = release_all("exit")

    assert count == 0
    assert claim("x").lease() is None


def test_a_minimum_hold_is_kept_at_exit():
    hold = claim("x", min_hold=30).acquire()

    release_all("exit")

    assert claim("x").lease().state == "resting"
    assert not hold.held


def test_a_lost_hold_is_let_go_too():
    hold = claim("x").acquire()
    hold.lose("expired")

    assert release_all("exit") == 1

    assert claim("x").lease() is None


def test_nothing_is_warned_of_after_all_was_released(recwarn):
    hold = claim("x").acquire()
    release_all("exit")

    del hold
    gc.collect()

    assert len(recwarn) == 0


def test_a_process_that_ends_lets_go_of_what_it_holds():
    script = """
        from django.conf import settings
        settings.configure(
            CLAIMS={"default": {"BACKEND": "tests.helpers.FlakyBackend"}}, INSTALLED_APPS=["django_claims"]
        )
        import atexit, django
        django.setup()
        from django_claims import claim
        from tests.helpers import faults
        atexit.register(lambda: None)
        def release(real, requests):
            print("released", [request.name for request in requests], flush=True)
            return real(requests)
        faults.on("release", release)
        hold = claim("x").acquire()
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stdout == "released ['x']\n"
    assert done.stderr == ""


def test_a_signal_that_comes_as_a_process_lets_go_at_its_end_does_not_keep_it_from_that():
    """As a supervisor that asks twice; an exception in a callback at exit would go nowhere but to stderr."""
    script = """
        from django.conf import settings
        settings.configure(
            CLAIMS={"default": {"BACKEND": "tests.helpers.FlakyBackend"}}, INSTALLED_APPS=["django_claims"]
        )
        import atexit, django, os, signal
        atexit.register(lambda: print("free", claim("x").available(), flush=True))  # runs after ours
        django.setup()
        from django_claims import claim, shutdown
        from tests.helpers import faults
        def release(real, requests):
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGHUP)
            return real(requests)
        faults.on("release", release)
        shutdown.install()
        hold = claim("x").acquire()
        os.kill(os.getpid(), signal.SIGTERM)
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGTERM, "free True\n", "")


@pytest.mark.parametrize("name", ["remove", "end"])
def test_a_signal_in_the_middle_of_releasing_all_leaves_nothing_behind(monkeypatch, name):
    holds = [claim("x").acquire(), claim("y").acquire()]
    of = registry if name == "remove" else Hold

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(of, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            release_all("exit")
    release_all("exit")

    assert [claim(hold.name).lease() for hold in holds] == [None, None]


def test_releasing_all_while_others_take_and_leave_is_safe():
    errors, over = [], threading.Event()

    def work(number):
        while not over.is_set():
            try:
                with claim(f"job {number}"):
                    pass
            except BaseException as error:
                errors.append(error)
                return

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for _ in range(50):
        release_all("again")
    over.set()
    for worker in workers:
        worker.join(10)

    assert errors == []
    wait_until(lambda: all(claim(f"job {number}").available() for number in range(4)))


# install()


def test_installed_a_signal_drains_and_ends_with_its_number():
    undo = shutdown.install()
    try:
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)

        assert ended.value.code == 143
        assert shutdown.draining()
    finally:
        undo()


def test_installed_it_calls_what_was_there_and_puts_it_back():
    called = []

    def ours(number, frame):
        called.append(number)

    before = signal.signal(signal.SIGHUP, ours)
    try:
        undo = shutdown.install()
        signal.raise_signal(signal.SIGHUP)
        undo()

        assert called == [signal.SIGHUP]
        assert signal.getsignal(signal.SIGHUP) is ours
    finally:
        signal.signal(signal.SIGHUP, before)


def test_installed_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        undo = shutdown.install()
        signal.raise_signal(signal.SIGHUP)
        undo()

        assert not shutdown.draining()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_is_installed_and_it_says_so():
    with pytest.raises(RuntimeError, match="main thread"):
        run_in_thread(shutdown.install)
