"""`claims run`: any program under a claim, in processes of their own."""

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from django_claims import AlreadyRunning, claim, signals
from django_claims.clock import clock
from tests.helpers import wait_until
from tests.processes.children import FOREIGN, PROJECT, SECONDS
from tests.processes.conftest import Store, sqlite_if_long

COUNTS = (sys.executable, "-S", str(Path(__file__).parent / "counts.py"))
WORK = ("sh", "-c", "echo ready; exec sleep 60")
DEAF = ("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


# What the program is given, and what it gives.


def test_the_program_has_its_own_options_its_claim_in_the_environment_and_its_status_is_kept(start, worker, store):
    script = 'echo "$CLAIM_NAME" "$CLAIM_FENCE" "$@"; read word; echo "$word"; echo oops >&2; exit 3'
    options = ["--json", "--settings=nope", "--using", "x", "-v", "9", "--", "--help"]

    run = start(store, "a b", "-v", "1", "--", "sh", "-c", script, "sh", *options)
    told = run.line()
    lease = worker(store).ask("lease", "a b")
    run.tell("word")
    done = run.done()

    assert told == f"a b {lease['fence']} {' '.join(options)}"
    assert lease["holder"]["label"] == "sh"
    assert lease["holder"]["pid"] == run.pid
    assert (done.code, done.out.splitlines()[1:], done.err) == (3, ["word"], "oops\n")
    assert worker(store).ask("lease", "a b") is None


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["/no/such/program"], 127),
        (["/"], 126),
    ],
)
def test_how_it_ended_is_the_exit_status(start, redis, program, code):
    done = start(redis, "job", "--", *program).done()

    assert done.code == code
    assert "Traceback" not in done.err


def test_a_pipe_that_breaks_ends_programs_as_it_does_elsewhere(start, redis):
    done = start(redis, "job", "--", "sh", "-c", "yes | head -n 1").done()

    assert (done.code, done.out, done.err) == (0, "y", "")


def test_the_status_is_kept_also_where_the_caller_wants_no_word_of_children(start, redis):
    ignore = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )

    done = start(redis, "job", "--", "sh", "-c", "exit 3", prefix=(sys.executable, "-c", ignore)).done()

    assert done.code == 3


# Refused.


def test_a_refused_run_exits_75_says_how_to_go_on_and_starts_nothing(start, shell, redis, tmp_path):
    first = start(redis, "a b", "--", *WORK)
    first.says("ready")

    refused = start(redis, "a b", "--", "touch", str(tmp_path / "ran")).done()
    silent = start(redis, "a b", "-v", "0", "--", "true").done()

    lines = refused.err.splitlines()
    assert refused.code == 75
    assert lines[0].startswith("AlreadyRunning: Claim 'a b' is held by ")
    assert lines[1] == "Look at it:  manage.py claims show 'a b'"
    assert lines[2].startswith("Break it:    manage.py claims release 'a b' --fence ")
    assert (silent.code, silent.out, silent.err) == (75, "", "")
    assert not (tmp_path / "ran").exists()


def test_a_kept_stop_refuses(start, shell, redis):
    assert shell(redis, "stop", "job", "--keep", "--reason", "disk").code == 0

    refused = start(redis, "job", "--", "true").done()

    assert refused.code == 75
    assert "Let it run:  manage.py claims clear-stop job" in refused.err


def test_a_run_waits_for_its_turn_if_told_to(start, redis):
    first = start(redis, "job", "--", "sh", "-c", "echo ready; read word")
    first.says("ready")
    second = start(redis.with_backend("Telling"), "job", "--timeout", "30s", "--", "echo", "mine")
    second.says("waiting")

    first.tell("go")

    assert second.line() == "mine"
    assert (first.done().code, second.done().code) == (0, 0)


def test_a_run_that_waits_says_so_once_says_for_whom_and_is_silent_if_asked_to_be(start, redis):
    first = start(redis, "a b", "--", *WORK)
    first.says("ready")
    loud = start(redis, "a b", "--timeout", "60s", "--", "echo", "mine")
    silent = start(redis.with_backend("Telling"), "a b", "-v", "0", "--timeout", "1m", "--", "echo", "mine")
    silent.says("waiting")
    wait_until(lambda: loud.errors, SECONDS)

    first.send(signal.SIGTERM)
    assert first.done().code == 143
    ends = [run.done() for run in (loud, silent)]

    (line,) = ends[0].err.splitlines()
    assert line.startswith(f"Waiting up to 60 s: Claim 'a b' is held by {socket.gethostname()} (pid {first.pid}, sh)")
    assert [(end.code, end.out) for end in ends] == [(0, "mine"), (0, "waiting\nmine")]
    assert ends[1].err == ""


def test_a_run_that_waits_in_vain_says_both(start, redis):
    first = start(redis, "job", "--", *WORK)
    first.says("ready")

    done = start(redis, "job", "--timeout", "0.6", "--", "echo", "mine").done()

    lines = done.err.splitlines()
    assert (done.code, done.out) == (75, "")
    assert lines[0].startswith("Waiting up to 0.6 s: Claim 'job' is held by ")
    assert lines[1].startswith("AlreadyRunning: Claim 'job' is held by ") and " Waited " in lines[1]


def test_a_signal_ends_a_run_that_waits_and_its_program_never_starts(start, worker, redis, tmp_path):
    first = start(redis, "job", "--", *WORK)
    first.says("ready")
    second = start(redis, "job", "--timeout", "60", "--", "touch", str(tmp_path / "ran"))
    wait_until(lambda: second.errors, SECONDS)

    second.send(signal.SIGTERM)
    done = second.done()
    first.send(signal.SIGTERM)
    first.done()

    assert done.code == 143
    (line,) = done.err.splitlines()
    assert line.startswith("Waiting up to 60 s: ")
    assert worker(redis).ask("acquire", "job", follow_dead=False) is not None
    assert not (tmp_path / "ran").exists()


def test_a_store_that_does_not_answer_is_69(start, own_redis, tmp_path):
    redis, server = own_redis
    server.stop()

    done = start(redis, "job", "--", "touch", str(tmp_path / "ran")).done()

    assert done.code == 69
    assert not (tmp_path / "ran").exists()


def test_a_guessed_backend_that_excludes_nobody_is_refused(start, tmp_path):
    done = start(Store("implicit", {"JOBS_STORE": "implicit", "JOBS_DIR": str(tmp_path)}), "job", "--", "true").done()

    assert done.code == 1
    assert "would run beside itself" in done.err


def test_with_claims_off_the_program_runs(start, tmp_path):
    off = Store("off", {"JOBS_STORE": "off", "JOBS_DIR": str(tmp_path)})

    done = start(off, "job", "--", "sh", "-c", "echo $CLAIM_FENCE; exit 4").done()

    assert (done.code, done.out) == (4, "0")
    assert "Claims are off" in done.err


# Signals.


@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("SIGTERM", os.kill),
        ("SIGTERM", os.killpg),
        ("SIGINT", os.kill),
        ("SIGUSR1", os.kill),
        pytest.param("SIGHUP", os.kill, marks=pytest.mark.long),
        pytest.param("SIGUSR2", os.kill, marks=pytest.mark.long),
    ],
)
def test_a_signal_for_the_process_or_its_group_reaches_the_program_once(start, worker, redis, name, send):
    run = start(redis, "job", "--", *COUNTS, "0.3", "5", process_group=0)
    run.says("ready")

    send(run.pid, getattr(signal, name))
    done = run.done()

    assert done.code == 5
    assert done.out.splitlines() == ["ready", f"got {name}"]
    assert worker(redis).ask("acquire", "job", follow_dead=False) is not None


def test_a_signal_that_the_caller_ignores_stays_ignored(start, redis):
    run = start(redis, "job", "--", *WORK, prefix=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    run.says("ready")

    run.send(signal.SIGHUP)
    run.send(signal.SIGTERM)

    assert run.done().code == 143


@pytest.fixture
def on_terminal(redis, tmp_path):
    """Start `claims run` on a terminal of its own: gives (process, write end, read until)."""
    ours, theirs = pty.openpty()
    begun = []

    def begin(*arguments):
        take = "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        words = [sys.executable, "-c", take + "os.execv(sys.argv[1], sys.argv[1:])"]
        words += [sys.executable, str(PROJECT / "manage.py"), "claims", "run", *arguments]
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        env = {**inherited, "DJANGO_SETTINGS_MODULE": "settings", **redis.env}
        begun.append(subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=env))
        return begun[-1]

    seen = bytearray()

    def until(text):
        while text.encode() not in seen:
            seen.extend(os.read(ours, 1000))
        return seen.decode()

    yield begin, ours, until
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait(10)
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_on_a_terminal_the_program_reads_the_keys_and_gets_each_signal_once(on_terminal, how):
    begin, keys, until = on_terminal
    run = begin("job", "--", "sh", "-c", 'echo ask; read word; exec "$@"', "sh", *COUNTS, "0.3", "5")
    until("ask")

    os.write(keys, b"something\n")
    until("ready")
    if how == "Ctrl-C":
        os.write(keys, b"\x03")
    else:
        run.send_signal(signal.SIGTERM)
    code = run.wait(30)

    name = "SIGINT" if how == "Ctrl-C" else "SIGTERM"
    assert code == 5
    assert until(f"got {name}").count("got ") == 1


# Stopped by an operator.


@sqlite_if_long
def test_a_stop_ends_the_program_politely(start, shell, store):
    run = start(store, "job", "--", *COUNTS, "0", "6")
    run.says("ready")

    said = shell(store, "stop", "job", "--reason", "too slow", "--by", "ann", "--wait", "20")
    done = run.done()

    assert said.code == 0
    assert done.code == 6
    assert done.out.splitlines() == ["ready", "got SIGTERM"]
    assert "was asked to stop by ann: too slow" in done.err


def test_a_program_that_does_not_listen_is_killed_after_the_grace(start, shell, redis):
    run = start(redis.with_settings(CLAIMS_GRACE=0.3), "job", "--", *DEAF)
    run.says("ready")

    shell(redis, "stop", "job")

    assert run.done().code == 137
    assert shell(redis, "show", "job").code == 4


# Lost.


def test_a_program_whose_claim_is_lost_is_ended_with_all_that_it_started(start, worker, redis):
    run = start(redis, "job", "--", "sh", "-c", "sleep 60 & echo $!; wait")
    child = int(run.line())

    assert worker(redis).ask("force_release", "job")
    done = run.done()

    assert done.code == 70
    assert "was lost: an operator force-released it" in done.err
    wait_until(lambda: is_gone(child))


def test_a_deaf_program_is_dead_before_another_can_be_granted(start, own_redis):
    redis, server = own_redis
    run = start(redis.with_claims(STORE_TIMEOUT=0.5), "job", "--ttl", "3", "--", "sh", "-c", f"echo $$; {DEAF[2]}")
    program = int(run.line())
    run.says("ready")

    server.freeze()
    frozen_at = clock()
    wait_until(lambda: is_gone(program))
    died_at = clock()
    server.thaw()

    assert died_at - frozen_at < 3.0
    assert run.done().code == 70


def test_a_program_is_dead_soon_after_a_stalled_run_goes_on(start, worker, redis):
    run = start(redis, "job", "--ttl", "1.5s", "--", "sh", "-c", f"echo $$; {DEAF[2]}")
    program = int(run.line())
    run.says("ready")
    run.send(signal.SIGSTOP)
    assert worker(redis).ask("acquire", "job", timeout=30)
    assert not is_gone(program)  # nothing can see to that

    sent_at = run.send(signal.SIGCONT)
    wait_until(lambda: is_gone(program))

    assert clock() - sent_at < 1.0
    assert run.done().code == 70


# Killed.


@sqlite_if_long
def test_the_program_ends_with_a_run_that_is_killed_and_the_claim_is_free_at_once(start, worker, store):
    run = start(store, "job", "--", "sh", "-c", "echo $$; exec sleep 60")
    program = int(run.line())
    other = worker(store)
    fence = other.ask("lease", "job")["fence"]

    run.send(signal.SIGKILL)
    run.done()

    wait_until(lambda: is_gone(program))
    assert other.ask("acquire", "job") > fence


def test_a_program_that_outlives_a_killed_run_keeps_the_claim(start, worker, redis):
    loose = "import ctypes, os, time; ctypes.CDLL(None).prctl(1, 0); print(os.getpid(), flush=True); time.sleep(60)"
    run = start(redis, "job", "--", sys.executable, "-c", loose)
    program = int(run.line())
    other = worker(redis)

    run.process.kill()
    run.process.wait(10)
    refused = other.ask("acquire", "job")
    os.kill(program, signal.SIGKILL)
    wait_until(lambda: is_gone(program))

    assert refused is None
    assert other.ask("acquire", "job") is not None


# From code.


def test_from_code_the_status_comes_as_an_error_and_handlers_are_put_back(claims):
    before = signal.getsignal(signal.SIGTERM)

    assert claims("run", "job", "--", "true").code == 0
    assert claims("run", "job", "--", "sh", "-c", "exit 3").code == 3
    assert claims("run", "job", program=["sh", "-c", "exit 4"]).code == 4
    assert signal.getsignal(signal.SIGTERM) is before


def test_from_code_a_refusal_raises_what_guarded_commands_raise(in_memory):
    with claim("job"), pytest.raises(AlreadyRunning) as caught:
        call_command("claims", "run", "job", "--", "true")

    assert caught.value.returncode == 75


def test_the_lease_names_the_program_from_the_start(claims):
    leases = []

    def heard(lease, **about):
        leases.append(lease)

    signals.claim_acquired.connect(heard)
    try:
        claims("run", "job", "--", "/bin/echo")
    finally:
        signals.claim_acquired.disconnect(heard)

    ours, program = leases[0].holder.processes
    assert (ours.pid, program.space) == (os.getpid(), ours.space)
    assert program.start
    assert program.is_dead()
