"""
`claims run`: any program under a claim, held for exactly as long as the program lives.

Limits: what the program leaves running behind it is not guarded; and while this process is
stopped (SIGSTOP) nobody renews, so that the claim may pass on while the program works.
"""

from __future__ import annotations

import queue
import signal
import threading
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.acquiring import Acquiring
from django_claims.claims import Claim
from django_claims.cli.asking import LOST, OFF, USAGE, add_using, duration, note
from django_claims.cli.programs import HandedOn, Program
from django_claims.cli.words import clean
from django_claims.clock import clock
from django_claims.holds import Hold
from django_claims.outcomes import Refused
from django_claims.recipes import claim
from django_claims.refusals import refusal, refuse_useless_backend, waiting

HELP = "Run a program under a claim: manage.py claims run NAME [options] -- PROGRAM [arguments]."
LOOK_SECONDS = 0.5  # a loss is a comparison: after a stall nobody need tell us
MARGIN = 0.1  # of the lease's time, for the kill to be done with
FIRMLY = getattr(signal, "SIGKILL", signal.SIGTERM)


def add_arguments(parser: CommandParser) -> None:
    parser.usage = "%(prog)s NAME [--timeout DURATION] [--ttl DURATION] [--using ALIAS] -- PROGRAM [ARGUMENT ...]"
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--timeout", metavar="DURATION", type=duration, default=0.0, help="Wait so long for the claim.")
    parser.add_argument("--ttl", metavar="DURATION", type=duration, help="Of the lease (default: the alias's).")
    add_using(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    words = options.get("program")
    if not words:
        raise CommandError("Write the program after '--': manage.py claims run NAME -- PROGRAM", returncode=USAGE)
    recipe = claim(
        options["name"],
        using=options["using"],
        ttl=options["ttl"],
        timeout=options["timeout"],
        label=Path(words[0]).name,
    )
    refuse_useless_backend(recipe)
    if not conf.enabled() and options["verbosity"]:
        note(command, OFF)
    return GuardedProgram(command, recipe, [str(word) for word in words], options["verbosity"]).run()


class GuardedProgram:
    """One run of a program under a claim."""

    def __init__(self, command: BaseCommand, recipe: Claim, words: list[str], verbosity: int) -> None:
        self.command = command
        self.recipe = recipe
        self.verbosity = verbosity
        self.news: queue.SimpleQueue[Any] = queue.SimpleQueue()  # signals, None for "look", an int for the end
        self.program = Program(words, recipe.name)
        self.signals = HandedOn(self.news, lambda: self.program.has_keys)
        self.kill_at = float("inf")
        self.is_ending = self.was_lost = self.has_waited = False

    def run(self) -> int:
        with self.signals:
            try:
                self.program.prepare()
                started = clock()
                outcome = self._acquire()
                if isinstance(outcome, Refused):
                    return self._refused(outcome, clock() - started)
                with outcome:
                    try:
                        return self._watch(outcome)
                    finally:
                        self.program.close()  # before the release
            finally:
                self.program.close()

    def _acquire(self) -> Hold | Refused:
        process = self.program.process_id
        return Acquiring(
            self.recipe,
            self.recipe.timeout,
            trip=lambda: self.news.put(None),
            on_wait=self._waits,
            # Dead means both of us: the program may be at work still when this process is not.
            processes=() if process is None else (process,),
        ).acquire()

    def _waits(self, refused: Refused) -> None:
        if not self.has_waited and self.verbosity:
            self.has_waited = True
            self._say(waiting(refused, self.recipe.timeout))

    def _refused(self, refused: Refused, waited: float) -> int:
        error = refusal(refused, conf.exit_code(), waited, using=self.recipe.using)
        if self.verbosity == 0 and getattr(self.command, "_called_from_command_line", False):
            return error.returncode  # as silent as it was asked to be
        raise error

    def _watch(self, hold: Hold) -> int:
        """Let the program run to its end, and return its exit status, or 70 if the claim was lost meanwhile."""
        self.signals.is_running = True
        self.program.go(hold.fence)
        threading.Thread(target=lambda: self.news.put(self.program.wait()), name="claims run", daemon=True).start()
        while True:
            self._look(hold)
            try:
                item = self.news.get(timeout=min(max(self.kill_at - clock(), 0.0), LOOK_SECONDS))
            except queue.Empty:
                continue
            if isinstance(item, signal.Signals):
                self.program.send(item)
            elif isinstance(item, int):
                break
        if self.was_lost or hold.lost:
            self.program.end(FIRMLY, after=True)
            return LOST
        return item

    def _look(self, hold: Hold) -> None:
        """End the program if it should: politely, then firmly."""
        now = clock()
        if hold.lost and not self.was_lost:
            self.was_lost = True
            spare = hold.ttl_ms / 1000 - hold.renew_deadline - MARGIN
            # Late to notice it, after a stall: what is left is less, or nothing.
            self._end(min(now + min(conf.grace(), spare), hold.deadline + spare))
            reason = hold.loss_reason
            self._say(f"Claim {hold.name!r} was lost{': ' + reason.sentence if reason else ''}; its program is ended.")
        elif not self.is_ending and (flag := hold.stop_flag) is not None:
            self._end(now + conf.grace())
            by, why = f" by {flag.by}" if flag.by else "", f": {flag.reason}" if flag.reason else ""
            self._say(f"Claim {hold.name!r} was asked to stop{by}{why}; its program is ended.")
        if self.kill_at <= clock():
            self.kill_at = clock() + LOOK_SECONDS  # again: it may be starting others
            self.program.end(FIRMLY)

    def _end(self, kill_at: float) -> None:
        self.is_ending, self.kill_at = True, min(self.kill_at, kill_at)
        self.program.end(signal.SIGTERM)

    def _say(self, text: str) -> None:
        note(self.command, clean(text))
