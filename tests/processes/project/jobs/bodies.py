"""What a guarded command may do while it holds: chosen by `--do`, so that one command does for many tests."""

import hashlib
import json
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from django_claims import AlreadyRunning, ClaimLost, StopRequested, claim, draining

FOR_EVER = 60  # a test that waits so long has failed
BODIES = {}


def say(text):
    print(text, flush=True)


def add_arguments(parser):
    parser.add_argument("--do", choices=sorted(BODIES), default="line")
    parser.add_argument("--to", help="A file to append a line to.")
    parser.add_argument("--until", help="A file to wait for.")
    parser.add_argument("--call", help="A command to call.")


def run(command, options):
    return BODIES[options["do"]](command, options)


def body(function):
    BODIES[function.__name__] = function
    return function


@body
def line(command, options):
    """Leave a line, and stay until told to go."""
    if options["to"]:
        with Path(options["to"]).open("a") as file:
            file.write(f"{os.getpid()}\n")
    say("ready")
    if options["until"]:
        ends = time.monotonic() + FOR_EVER
        while not Path(options["until"]).exists() and time.monotonic() < ends:
            time.sleep(0.005)


@body
def describe(command, options):
    """Tell of the hold and the options."""
    hold = command.hold
    told = {"name": hold.name, "fence": hold.fence, "held": hold.held, "options": sorted(options)}
    hold.checkpoint(1, 2)
    told["tracked"] = list(hold.track("ab"))
    told["lost"] = hold.lost
    told["renewed"] = hold.renew()
    say(json.dumps(told))


@body
def give(command, options):
    return "this is what it gives"


@body
def fail(command, options):
    raise ValueError("the body's own error")


@body
def leave(command, options):
    sys.exit(3)


@body
def wait(command, options):
    """Never look at the hold."""
    try:
        say("ready")
        time.sleep(FOR_EVER)
    finally:
        say("finally")


@body
def look(command, options):
    """Sleep on the hold, and go when asked to."""
    try:
        command.hold.checkpoint()
        say("ready")
        say(f"woken {command.hold.sleep(FOR_EVER)}")
        command.hold.checkpoint()
    except StopRequested as stop:
        say(f"stop {stop.reason}")
        raise
    finally:
        say("finally")


@body
def checkpoints(command, options):
    command.hold.checkpoint()
    try:
        say("ready")
        while True:
            command.hold.checkpoint()
            time.sleep(0.02)
    finally:
        say("finally")


@body
def track(command, options):
    command.hold.checkpoint()
    try:
        say("ready")
        for _ in command.hold.track(range(FOR_EVER * 50)):
            time.sleep(0.02)
    finally:
        say("finally")


@body
def polite(command, options):
    """Look, and return when asked to stop, as if all were done."""
    command.hold.checkpoint()
    say("ready")
    command.hold.sleep(FOR_EVER)
    say(f"asked {command.hold.stop_requested}")


@body
def half_done(command, options):
    """Look, and fail when asked to stop."""
    command.hold.checkpoint()
    say("ready")
    if command.hold.sleep(FOR_EVER):
        raise CommandError("only half done")


@body
def stubborn(command, options):
    """Look once and never again."""
    command.hold.checkpoint()
    try:
        say("ready")
        while not draining():
            time.sleep(0.01)
        say("draining")
        time.sleep(FOR_EVER)
    finally:
        say("finally")


@body
def deaf(command, options):
    """Go on, whatever is raised."""
    say("ready")
    ends = time.monotonic() + FOR_EVER
    while time.monotonic() < ends:
        try:
            time.sleep(FOR_EVER)
        except ClaimLost:
            say("lost")


@body
def stuck(command, options):
    """Be where no exception gets to: in one long call of C code, which lets other threads run."""
    say("ready")
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000_000)


@body
def nested(command, options):
    """Call a command, and tell how it went."""
    started = time.monotonic()
    try:
        call_command(options["call"], claim_timeout=20)
        outcome = "ran"
    except AlreadyRunning as error:
        outcome = f"refused {error}".splitlines()[0]
    say(json.dumps({"outcome": outcome, "took": time.monotonic() - started, "held": command.hold.held}))


@body
def look_within(command, options):
    """Never look at the own hold, but call a command that looks at its own."""
    call_command(options["call"], do="look")


@body
def in_thread(command, options):
    """Call a command in a thread that is not the main one."""
    thread = threading.Thread(target=call_command, args=(options["call"],))
    thread.start()
    thread.join()
    say("joined")


@body
def churn(command, options):
    """Take and release another claim, without a pause."""
    say("ready")
    while True:
        with claim("churn", ttl=60) as hold:
            hold.renew()


def _be_busy():
    say("busy")
    time.sleep(FOR_EVER)


@body
def part(command, options):
    """Look at the hold, then start a forked child, and end it by SIGTERM, as pools do."""
    command.hold.checkpoint()
    child = multiprocessing.get_context("fork").Process(target=_be_busy, daemon=True)
    child.start()
    say(f"go {sys.stdin.readline().strip()}")
    child.terminate()
    child.join(10)
    say(f"ended {child.exitcode}, held {command.hold.held}")
    child.kill()


@body
def fork(command, options):
    """Fork, and let the child leave by the way of all programs."""
    pid = os.fork()
    if pid == 0:
        say("child")
        sys.exit(5)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    say(f"child ended {status}, held {command.hold.held}, verified {command.hold.verify()}")


class BodyCommand(BaseCommand):
    """For commands of which only the guard matters."""

    def add_arguments(self, parser):
        add_arguments(parser)

    def handle(self, *args, **options):
        return run(self, options)


def region(hold, name):
    """What commands of other kinds do: tell of the hold, or stay."""
    if name != "wait":
        say(f"{name} {hold.name if hold else None} {hold.held if hold else True}")
        return
    try:
        say("ready")
        time.sleep(FOR_EVER)
    finally:
        say("finally")
