"""
A process that does as it is told: `["verb", [args], {kwargs}]` a line on stdin, `{"answer": …}` a line on stdout.

Its log goes to stderr. Answers are flushed, so that a fork copies none of them.
"""

import faulthandler
import gc
import io
import json
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import django
from django.core.management import call_command

import django_claims
from django_claims import claim, holders
from django_claims.clock import clock
from django_claims.registry import all_holds

VERBS = {}
FOR_EVER = 60  # a test that waits so long has failed
STUCK = 80  # seconds, within the test that waits for 90

holds = {}
opened = {}


def verb(function):
    VERBS[function.__name__] = function
    return function


# Plain use.


@verb
def acquire(name, **recipe):
    """Return the fence, or None if refused."""
    hold = claim(name, **recipe).acquire()
    if hold is None:
        return None
    holds[name] = hold
    return hold.fence


@verb
def acquire_and_time(name, **recipe):
    """Return the fence, and when it was had by a clock that all processes share."""
    fence = acquire(name, **recipe)
    return [fence, clock()]


@verb
def release(name):
    return str(holds.pop(name).release())


@verb
def look(name):
    """Return what a hold says of itself; `held` before anything else is asked."""
    hold = holds[name]
    return {"held": hold.held, "lost": hold.lost, "reason": hold.loss_reason, "fence": hold.fence}


@verb
def verify(name):
    return holds[name].verify()


@verb
def hand_over(name, **how):
    """Return the ticket."""
    return holds[name].hand_over(**how)


@verb
def adopt(name, ticket, **recipe):
    """Return the fence, or why not."""
    try:
        holds[name] = claim(name, **recipe).adopt(ticket)
    except django_claims.ClaimError as error:
        return [type(error).__name__, str(error)]
    return holds[name].fence


@verb
def lease(name):
    """Return what the store says, or None."""
    found = claim(name).lease()
    return found.as_dict() if found else None


@verb
def force_release(name):
    return django_claims.force_release(name, fence=claim(name).lease().fence, by="the test")


@verb
def start_afresh(name):
    """Hold nothing, and see to it that nobody has that name."""
    holds.clear()
    django_claims.release_all("the test is over")
    left = claim(name).lease()
    if left is not None:
        django_claims.force_release(name, fence=left.fence)
    django_claims.clear_stop(name)


@verb
def request_stop(name, **about):
    flag = django_claims.request_stop(name, **about)
    return flag and flag.as_dict()


@verb
def call(command, *args, **options):
    """Call a command as code does, and tell all that came of it."""
    out, err, sys_out, sys_err = io.StringIO(), io.StringIO(), io.StringIO(), io.StringIO()
    real, told = (sys.stdout, sys.stderr), {}
    sys.stdout, sys.stderr = sys_out, sys_err
    try:
        streams = {} if command == "clicked" else {"stdout": out, "stderr": err}  # which django-click does not take
        told["gave"] = call_command(command, *args, **streams, **options)
    except BaseException as error:
        told["raised"] = [cls.__name__ for cls in type(error).__mro__]
        told["text"] = str(error)
        told["returncode"] = getattr(error, "returncode", None)
        told["lease"] = error.lease.as_dict() if getattr(error, "lease", None) else None
    finally:
        sys.stdout, sys.stderr = real
    told.update(out=out.getvalue(), err=err.getvalue(), elsewhere=sys_out.getvalue() + sys_err.getvalue())
    return told


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname} {record.getMessage()}")


@verb
def enter(name, **recipe):
    """Go into a with block."""
    opened[name] = claim(name, **recipe)
    holds[name] = opened[name].__enter__()
    return holds[name].fence


@verb
def leave(name):
    """Leave the with block, and return what was logged."""
    kept = Kept()
    logging.getLogger("django_claims").addHandler(kept)
    try:
        opened.pop(name).__exit__(None, None, None)
    finally:
        logging.getLogger("django_claims").removeHandler(kept)
    return kept.lines


# Races.


def _spin_until(gate):
    """Without a sleep, so that all who wait for it go at once."""
    gate, ends = Path(gate), time.monotonic() + FOR_EVER
    while not gate.exists():
        assert time.monotonic() < ends, "the gate never opened"


@verb
def race(name, gate, **recipe):
    """Wait for the others, and try once."""
    _spin_until(gate)
    return acquire(name, **recipe)


@verb
def race_command(gate, *arguments):
    """Wait for the others, and run a command as the command line does; return its status and what it said."""
    from django.core.management import ManagementUtility

    _spin_until(gate)
    out, err, code, real = io.StringIO(), io.StringIO(), 0, (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = out, err
    try:
        ManagementUtility(["manage.py", *arguments]).execute()
    except SystemExit as exit_:
        code = exit_.code
    finally:
        sys.stdout, sys.stderr = real
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


@verb
def contend(name, over, **recipe):
    """Try and try again, until granted or until the file `over` exists."""
    over, ends, tries = Path(over), time.monotonic() + FOR_EVER, 0
    while not over.exists():
        assert time.monotonic() < ends, "nobody said that it is over"
        tries += 1
        fence = acquire(name, **recipe)
        if fence is not None:
            return {"fence": fence, "tries": tries, "at": clock()}
    return {"fence": None, "tries": tries, "at": clock()}


# Signals.


class Interrupted(BaseException):
    """What a signal handler raises here, as SIGTERM's and Ctrl-C's do."""


@verb
def interrupt_verbs(rounds):
    """Have a signal handler raise at any point of acquire, renew and release, time and again; say what is left."""
    fired = []

    def handler(number, frame):
        fired.append(number)
        raise Interrupted

    with claim("warm", ttl=60) as hold:
        hold.renew()  # import all that is imported at first use: an import that is cut short is Python's own trouble
    faulthandler.dump_traceback_later(STUCK, exit=True)  # say where it stands, and leave nobody waiting
    before = signal.signal(signal.SIGALRM, handler)
    names = [f"interrupted-{number}" for number in range(rounds)]
    try:
        for name in names:
            fired.clear()
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.006))
                while not fired:  # Python swallows what is raised inside a finalizer
                    with claim(name, ttl=60) as hold:
                        hold.renew()
            except Interrupted:
                pass
    finally:
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
    gc.collect()
    django_claims.release_all("as at exit")  # also what was granted and never got to its with block
    return [name for name in names if claim(name).lease()]


# Being stopped, and being taken for another.


@verb
def look_after_gap(name, gap):
    """
    Look at a hold all the time, and return the very first look after this process was stopped for `gap` seconds.

    Between the two looks at the clock a stop may fall on either side of the look at the hold: look again then.
    """
    hold, before, ends = holds[name], clock(), clock() + FOR_EVER
    answer("watching")
    while clock() < ends:
        at = clock()
        held = hold.held
        after = clock()
        if after - at > gap:
            return {"held": hold.held, "reason": hold.loss_reason, "gap": after - at}
        if at - before > gap:
            return {"held": held, "reason": hold.loss_reason, "gap": at - before}
        before = after
        time.sleep(0.002)
    raise AssertionError("never stopped")


@verb
def pose_as_older():
    """From now on call itself a process of the same pid that started before this one did."""
    real = holders._start_of
    holders._start_of = lambda pid: real(pid) - 100 if pid == os.getpid() else real(pid)
    holders._this_process.cache_clear()
    holders._this_holder.cache_clear()


# Fork. What children find, they write to a file: stdout is their parent's.


def _report(path, found):
    partial = Path(f"{path}.partial")
    partial.write_text(json.dumps(found))
    partial.rename(path)


def _fork(child):
    """Fork; the child does its part and leaves through normal interpreter exit."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        sys.exit(child())
    return pid


def _wait(pid, seconds=20.0):
    """Return how a child ended; kill it if it does not."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


@verb
def fork_and_look(name, report):
    """Fork a child that looks at its parent's hold, tries all its verbs, and exits."""

    def child():
        hold = holds[name]
        found = look(name)
        found["lost_event"] = hold.lost_event.is_set()
        found["renewed"] = hold.renew()
        found["verified"] = hold.verify()
        found["slept"] = hold.sleep(30)
        found["released"] = str(hold.release())
        found["all_holds"] = len(all_holds())
        found["release_all"] = django_claims.release_all("child")
        found["current"] = str(django_claims.current_hold())
        _report(report, found)

    return _wait(_fork(child))


@verb
def fork_and_leave():
    """Fork a child that does nothing, and exits."""
    return _wait(_fork(lambda: None))


@verb
def fork_and_keep(name, report, over, **recipe):
    """Fork a child that takes a claim of its own, and keeps it until the file `over` exists. Return its pid."""

    def child():
        hold = claim(name, **recipe).acquire()
        _report(report, {"fence": hold and hold.fence, "inherited": {name: look(name)["held"] for name in holds}})
        ends = time.monotonic() + FOR_EVER
        while not Path(over).exists() and time.monotonic() < ends:
            time.sleep(0.005)
        _report(report, {"held": hold.held, "released": str(hold.release())})

    return _fork(child)


@verb
def fork_and_adopt(name, report, over, **recipe):
    """Hand a hold over to a forked child, which keeps it until the file `over` exists. Return the child's pid."""
    ticket = holds[name].hand_over()

    def child():
        hold = claim(name, **recipe).adopt(ticket)
        _report(report, {"fence": hold.fence, "renewed": hold.renew(), "pid": os.getpid()})
        ends = time.monotonic() + FOR_EVER
        while not Path(over).exists() and time.monotonic() < ends:
            time.sleep(0.005)
        _report(report, {"held": hold.held, "released": str(hold.release())})

    return _fork(child)


@verb
def fork_among_threads(count):
    """Fork time and again while threads acquire and release; each child does so too. Return how they ended."""
    over, failures, rounds = threading.Event(), [], [0, 0, 0]

    def churn(number):
        try:
            while not over.is_set():
                with claim(f"churn-{number}", ttl=60):
                    rounds[number] += 1
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(len(rounds))]
    for thread in threads:
        thread.start()
    while not all(rounds) and not failures:
        # A fork while another thread imports is Python's own dead-lock: let all be imported.
        time.sleep(0.005)

    def child():
        with claim(f"child-{os.getpid()}", ttl=60) as hold:
            return 0 if hold.held and hold.renew() else 7

    try:
        ended = [_wait(_fork(child)) for _ in range(count)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return {"ended": ended, "failures": failures, "busy": min(rounds) > count}


def _in_pool(number):
    inherited = [hold.held for hold in holds.values()]
    with claim(f"pool-{number}", ttl=60) as hold:
        return {"pid": os.getpid(), "held": hold.held, "renewed": hold.renew(), "inherited": inherited}


@verb
def use_pool(count):
    """Have forked workers of a pool take claims of their own; the pool ends them by SIGTERM."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(_in_pool, range(count))


LIST_FDS = (
    "import os, json; print(json.dumps([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') \
if int(fd) > 2 and os.path.exists(f'/proc/self/fd/{fd}')]))"
)


@verb
def fds_of_a_program():
    """Return what a program that this process starts has open, though it asks to inherit all."""
    done = subprocess.run([sys.executable, "-c", LIST_FDS], close_fds=False, capture_output=True, text=True, timeout=20)
    return json.loads(done.stdout)


@verb
def start_program():
    """Start a program that outlives this process; return its pid."""
    code = "import time; time.sleep(60)"
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).pid


@verb
def pid():
    return os.getpid()


def answer(value):
    sys.stdout.write(json.dumps({"answer": value}) + "\n")
    sys.stdout.flush()


def main():
    django.setup()
    logging.basicConfig(level=logging.WARNING)
    for line in iter(sys.stdin.readline, ""):
        name, args, kwargs = json.loads(line)
        try:
            answer(VERBS[name](*args, **kwargs))
        except Exception:
            sys.stdout.write(json.dumps({"raised": traceback.format_exc()}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
