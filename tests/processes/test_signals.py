"""Signals on the command line: what runs to its end, how it ends, and when the claim is free."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.helpers import wait_until
from tests.processes.children import Worker
from tests.processes.conftest import FURTHER, Store, redis_store, sqlite_if_long

NAME = "command:night.report"
INTERRUPTED = (130, -signal.SIGINT)
SOON = 3.0  # for what is to happen at once, on a machine that has other things to do


@pytest.fixture
def other(worker, store):
    """Another process, which looks and wants. It does not follow the dead: a release is to be seen."""
    return worker(store)


@pytest.fixture(scope="module")
def redis(redis_server, tmp_path_factory):
    """One store for all of the module, and one process that looks at it: a process takes a while to start."""
    return redis_store(redis_server.url, tmp_path_factory.mktemp("signals"))


@pytest.fixture(scope="module")
def one_looker(redis):
    started = Worker(env=redis.env, cwd=Path(redis.env["JOBS_DIR"]))
    yield started
    started.close()


@pytest.fixture(autouse=True)
def looker(one_looker):
    one_looker.ask("start_afresh", NAME)
    return one_looker


def assert_free(other):
    """The claim is free now: nothing is left in the store, and it is to be had."""
    assert other.ask("lease", NAME) is None
    assert other.ask("acquire", NAME, ttl=60, follow_dead=False) is not None


# Asked to end while the body runs.


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_body_that_never_looks_is_ended_at_once_and_the_claim_is_free(manage, store, other, number, code):
    command = manage(store, "report", "--do", "wait")
    command.says("ready")

    sent_at = command.send(number)
    done = command.done()

    assert done.code == code
    assert done.out.splitlines() == ["ready", "finally"]
    assert done.err == ""
    assert done.at - sent_at < SOON
    assert_free(other)


def test_a_waiter_has_the_claim_within_a_second_of_the_signal(manage, worker, redis):
    command, waiter = manage(redis, "report", "--do", "wait"), worker(redis.with_backend("Telling"))
    command.says("ready")
    waiter.begin("acquire_and_time", NAME, ttl=60, timeout=30, follow_dead=False)
    waiter.says("waiting")

    sent_at = command.send(signal.SIGTERM)
    fence, had_at = waiter.answer()

    assert fence is not None
    assert had_at - sent_at < 1.5
    assert command.done().code == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize(
    "body", ["look", pytest.param("checkpoints", marks=pytest.mark.long), pytest.param("track", marks=pytest.mark.long)]
)
def test_a_body_that_looks_sees_a_stop_and_exits_as_the_signal_asked(manage, redis, looker, body, number, code):
    command = manage(redis.with_settings(CLAIMS_GRACE=30), "report", "--do", body)
    command.says("ready")
    wait_until(lambda: looker.ask("lease", NAME))

    sent_at = command.send(number)
    done = command.done()

    assert done.code == code
    assert done.out.splitlines()[-1] == "finally"
    assert done.err == ""
    assert done.at - sent_at < SOON
    assert_free(looker)
    if body == "look":
        assert done.out.splitlines() == ["ready", "woken True", f"stop {number.name}", "finally"]


def test_a_body_that_returns_politely_exits_as_the_signal_asked_all_the_same(manage, redis, looker):
    command = manage(redis, "report", "--do", "polite")
    command.says("ready")

    command.send(signal.SIGTERM)
    done = command.done()

    assert done.out.splitlines() == ["ready", "asked True"]
    assert (done.code, done.err) == (143, "")
    assert_free(looker)


def test_a_body_that_fails_when_asked_to_stop_says_why_and_exits_as_the_signal_asked(manage, redis, looker):
    """128 + n whenever a signal asked, however it ended: a supervisor must not take it for a failure of its own."""
    command = manage(redis, "report", "--do", "half_done")
    command.says("ready")

    command.send(signal.SIGTERM)
    done = command.done()

    assert "only half done" in done.err
    assert done.code == 143
    assert_free(looker)


def test_a_called_command_that_looks_gives_its_caller_the_grace_too(manage, redis, looker):
    command = manage(redis.with_settings(CLAIMS_GRACE=30), "twin_a", "--do", "look_within", "--call", "report")
    command.says("ready")

    sent_at = command.send(signal.SIGTERM)
    done = command.done()

    assert done.code == 143
    assert done.out.splitlines() == ["ready", "woken True", "stop SIGTERM", "finally"]
    assert done.at - sent_at < SOON
    assert_free(looker)


def test_a_body_that_looked_once_and_goes_on_is_ended_after_the_grace(manage, redis, looker):
    command = manage(redis.with_settings(CLAIMS_GRACE=1), "report", "--do", "stubborn")
    command.says("ready")

    sent_at = command.send(signal.SIGTERM)
    done = command.done()

    assert done.code == 143
    assert done.out.splitlines() == ["ready", "draining", "finally"]
    assert 0.9 < done.at - sent_at < 1 + SOON
    assert_free(looker)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_ends_it_at_once(manage, redis, looker, second):
    command = manage(redis.with_settings(CLAIMS_GRACE=50), "report", "--do", "stubborn")
    command.says("ready")
    command.send(signal.SIGTERM)
    command.says("draining")
    assert looker.ask("lease", NAME) is not None, "a drain releases nothing"

    sent_at = command.send(second)
    done = command.done()

    assert done.code in (128 + signal.SIGTERM, 128 + second)
    assert done.out.splitlines()[-1] == "finally"
    assert done.at - sent_at < SOON
    assert_free(looker)


def test_a_body_that_raises_after_its_own_fashion_frees_the_claim(manage, redis, looker):
    done = manage(redis, "report", "--do", "fail").done()

    assert done.code == 1
    assert_free(looker)


@pytest.mark.parametrize("arguments", [["--no-claim"], []], ids=["no-claim", "claims off"])
def test_a_body_that_looks_is_asked_to_stop_also_when_it_runs_without_a_claim(manage, redis, tmp_path, arguments):
    """Written for a hold, it should not have to ask whether it has one."""
    store = redis if arguments else Store("off", {"JOBS_STORE": "off", "JOBS_DIR": str(tmp_path)})
    command = manage(store.with_settings(CLAIMS_GRACE=30), "report", "--do", "look", *arguments)
    command.says("ready")

    sent_at = command.send(signal.SIGTERM)
    done = command.done(60)

    assert done.code == 143
    assert done.out.splitlines() == ["ready", "woken True", "stop SIGTERM", "finally"]
    assert done.at - sent_at < SOON


@pytest.mark.parametrize("rounds", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_an_exception_of_a_signal_handler_in_the_middle_of_any_verb_leaves_no_lease(store, other, rounds):
    """Nor a lock that is never let go, nor a dead process: a signal may come between any two steps."""
    assert other.ask("interrupt_verbs", rounds, seconds=90) == []
    assert other.ask("acquire", "job") is not None


@pytest.mark.parametrize("store", FURTHER, indirect=True)
def test_nor_does_it_on_other_backends(store, other):
    assert other.ask("interrupt_verbs", 300, seconds=90) == []
    assert other.ask("acquire", "job") is not None


# Asked to end while it waits for the claim.


def waiting(manage, store, holder):
    holder.ask("acquire", NAME, ttl=60)
    command = manage(store.with_backend("Telling"), "report", "--claim-timeout", "50", "--do", "wait")
    command.says("waiting")
    return command


@sqlite_if_long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_waits_for_the_claim_is_ended_at_once(manage, store, other, number):
    command = waiting(manage, store, other)

    sent_at = command.send(number)
    done = command.done()

    assert (done.code, done.out, done.err) == (128 + number, "waiting", "")
    assert done.at - sent_at < SOON
    assert other.ask("verify", NAME) is True, "the holder has lost nothing"
    assert other.ask("release", NAME) == "released"
    assert_free(other)


def test_ctrl_c_ends_a_command_that_waits_for_the_claim(manage, redis, looker):
    command = waiting(manage, redis, looker)

    command.send(signal.SIGINT)
    done = command.done()

    assert done.code in INTERRUPTED
    assert done.out == "waiting"
    assert done.err.count("Traceback (most recent call last)") <= 1
    assert looker.ask("release", NAME) == "released"
    assert_free(looker)


# Ctrl-C.


def test_ctrl_c_in_the_body_leaves_no_claim_and_one_traceback(manage, store, other):
    command = manage(store, "report", "--do", "wait")
    command.says("ready")

    command.send(signal.SIGINT)
    done = command.done()

    assert done.code in INTERRUPTED
    assert done.out.splitlines() == ["ready", "finally"]
    assert done.err.count("Traceback (most recent call last)") <= 1
    assert_free(other)


@pytest.mark.parametrize(
    "pause", [0.02, pytest.param(0.0, marks=pytest.mark.long), pytest.param(0.04, marks=pytest.mark.long)]
)
def test_ctrl_c_twice_within_50_ms_leaves_no_claim_for_longer_than_the_ttl(manage, redis, looker, pause):
    command = manage(redis.with_claims(TTL=2), "report", "--do", "wait")
    command.says("ready")

    command.send(signal.SIGINT)
    time.sleep(pause)  # the pause is what is tested
    command.send(signal.SIGINT)
    done = command.done()

    assert done.code in INTERRUPTED
    wait_until(lambda: looker.ask("lease", NAME) is None, 2.5)


@sqlite_if_long
def test_ctrl_c_during_the_release_leaves_no_claim_for_longer_than_the_ttl(manage, store, other):
    command = manage(store.with_claims(TTL=2).with_backend("SlowToRelease"), "report", "--do", "line")
    command.says("releasing")

    command.send(signal.SIGINT)
    done = command.done()

    assert done.code in INTERRUPTED
    assert done.err.count("Traceback (most recent call last)") <= 1
    wait_until(lambda: other.ask("lease", NAME) is None, 2.5)


# What was set before.


def test_a_handler_of_the_project_is_called_as_well(manage, redis, looker):
    command = manage(redis.with_env(JOBS_HANDLER="1"), "report", "--do", "wait")
    command.says("ready")

    command.send(signal.SIGTERM)
    done = command.done()

    assert done.out.splitlines() == ["ready", "project handler 15", "finally"]
    assert done.code == 143
    assert_free(looker)


def test_a_handler_of_the_project_that_fails_is_told_of_and_saves_nobody(manage, redis, looker):
    command = manage(redis.with_env(JOBS_HANDLER="fails"), "report", "--do", "wait")
    command.says("ready")

    command.send(signal.SIGTERM)
    done = command.done()

    assert (done.code, done.out.splitlines()) == (143, ["ready", "finally"])
    assert_free(looker)


def test_a_handler_of_the_project_is_put_back(manage, redis):
    done = manage(redis.with_env(JOBS_HANDLER="1"), "report").done()

    assert (done.code, done.out.splitlines()) == (0, ["ready", "restored True"])


@pytest.mark.parametrize("body", ["wait", pytest.param("look", marks=pytest.mark.long)])
def test_a_signal_that_the_caller_ignores_stays_ignored(manage, redis, looker, body):
    """As under nohup: who started it so wants it to live on when the terminal goes."""
    ignore = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    command = manage(redis, "report", "--do", body, prefix=ignore)
    command.says("ready")

    command.send(signal.SIGHUP)

    assert looker.ask("acquire", NAME, timeout=1, follow_dead=False) is None
    assert command.process.poll() is None
    assert command.lines == ["ready"]
    command.send(signal.SIGTERM)
    assert command.done().code == 143


# A store that gives no answer, and a process that is the first of its namespace.


@pytest.mark.long
@pytest.mark.parametrize(("body", "grace"), [("wait", 0), ("look", 1), ("stubborn", 1)])
def test_with_a_frozen_store_a_command_ends_within_five_seconds_and_the_grace(manage, own_redis, body, grace):
    store, server = own_redis
    command = manage(store.with_settings(CLAIMS_GRACE=grace), "report", "--do", body)
    command.says("ready")

    with server.frozen():
        sent_at = command.send(signal.SIGTERM)
        done = command.done()

    assert done.code == 143
    assert done.out.splitlines()[-1] == "finally"
    assert done.at - sent_at < 5 + grace + 1.5


@pytest.mark.parametrize(("sent", "codes"), [(signal.SIGTERM, (143,)), (signal.SIGINT, INTERRUPTED)])
def test_the_first_process_of_a_container_is_ended_as_any_other(manage, redis, looker, sent, codes):
    """The kernel ends no such process by a signal that it has no handler for."""
    tool = ["unshare", "--fork", "--pid", "--kill-child"]
    try:
        allowed = subprocess.run([*tool, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        missing("unshare may not make a pid namespace here")
    command = manage(redis, "report", "--do", "wait", prefix=tool)
    command.says("ready")
    inner = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(command.pid)]))

    os.kill(inner, sent)
    done = command.done()

    assert done.code in codes
    assert done.out.splitlines() == ["ready", "finally"]
    assert_free(looker)
