"""One run of a guarded command, from its options to its exit status."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from django_claims import conf, registry
from django_claims.acquiring import Acquiring
from django_claims.claims import Claim
from django_claims.clock import clock
from django_claims.command_signals import CommandSignals
from django_claims.deadlines import deadlines
from django_claims.exceptions import BackendUnavailable, ClaimLost, StopRequested
from django_claims.guards import Guard
from django_claims.holds import Hold
from django_claims.logs import get_logger
from django_claims.outcomes import Refused, off_hold
from django_claims.refusals import refusal, refuse_useless_backend, waiting

logger = get_logger(__name__)

UNAVAILABLE, LOST = 69, 70  # EX_UNAVAILABLE and EX_SOFTWARE of sysexits.h


class CommandRun:
    """
    One run of a guarded command.

    `command` has stdout, stderr and style, as Django's commands have, and is given `hold` while
    it runs. `asked` is what was asked of the guard on the command line, or by call_command.
    """

    def __init__(
        self, command: Any, guard: Guard, recipe: Claim, *, asked: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self.command = command
        self.guard = guard
        self.claim = recipe
        self.timeout = recipe.timeout if asked.get("claim_timeout") is None else float(asked["claim_timeout"])
        self.exit_code = asked.get("claim_exit_code")
        self.no_claim = asked.get("no_claim")
        self.verbosity = int(options.get("verbosity", 1))
        self.from_shell = is_from_shell(command)
        self.is_parent_of_reloader = is_parent_of_reloader(options)
        self.has_waited = False

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the body under the claim, or say why not."""
        if not self.from_shell:
            return self._run(body, None)
        if self.is_parent_of_reloader:
            return self._under(off_hold(self.claim), body)
        if not self.no_claim:
            refuse_useless_backend(self.claim)
        with CommandSignals() as received:
            try:
                output = self._run(body, received)
            except StopRequested as stop:
                if received.received is None:
                    self.command.stdout.write(self.command.style.WARNING(str(stop)))
                output = None
            except Exception as error:
                if received.received is None:
                    if (translated := self._with_exit_code(error)) is not error:
                        raise translated from error
                    raise
                # Asked by a signal, it failed on its way out: both are said.
                self.command.stderr.write(
                    f"{type(error).__name__}: {error}" if isinstance(error, CommandError) else traceback.format_exc()
                )
            if received.received is not None:
                raise SystemExit(128 + received.received)
            return output

    def _with_exit_code(self, error: Exception) -> Exception:
        """Return the error that ends the process with the right status."""
        if isinstance(error, BackendUnavailable):
            return CommandError(str(error), returncode=UNAVAILABLE)
        if isinstance(error, ClaimLost):
            return CommandError(str(error), returncode=LOST)
        return error

    def _run(self, body: Callable[[], Any], received: CommandSignals | None) -> Any:
        outcome = self._acquire()
        if isinstance(outcome, Refused):
            return self._refused(outcome)
        if received is not None:
            received.hold = outcome
        return self._under(outcome, body)

    def _under(self, hold: Hold, body: Callable[[], Any]) -> Any:
        self.command.hold, self.command.hold_thread = hold, threading.get_ident()
        try:
            with hold:
                output = body()
                if hold.lost and self.from_shell:
                    raise ClaimLost(hold.name, hold.loss_reason)
                return output
        finally:
            self.command.hold = None

    def _acquire(self) -> Hold | Refused:
        self.started = clock()
        if self.no_claim:
            self._note(f"Running without claim {self.claim.name!r}: another run may go on beside.", least=0)
            logger.warning("Command runs without its claim name=%s", self.claim.name)
            hold = off_hold(self.claim)
            registry.enter(hold)
            return hold
        on_loss = self._exit_hard_later if self.claim.on_lost == "interrupt" and self.from_shell else None
        outcome = Acquiring(self.claim, self.timeout, on_loss=on_loss, on_wait=self._waits).acquire()
        if self.has_waited and isinstance(outcome, Hold):
            self._note(f"Waited {clock() - self.started:.1f} s for claim {outcome.name!r}.")
        return outcome

    def _waits(self, refused: Refused) -> None:
        if not self.has_waited and self.from_shell:
            self.has_waited = True
            self._note(waiting(refused, self.timeout))

    def _note(self, text: str, least: int = 1) -> None:
        """Say something to the person at the terminal, unless asked to be silent."""
        if self.verbosity >= least:
            self.command.stderr.write(self.command.style.WARNING(text))

    def _exit_hard_later(self, hold: Hold) -> None:
        """If the main thread cannot be interrupted, end the process before another can be granted."""

        def exit_hard() -> None:
            if not hold._released:
                logger.critical("Ended hard: its claim was lost and it went on name=%s", hold.name)
                os._exit(LOST)

        deadlines.run_at(clock() + max(hold.ttl_ms / 1000 - hold.renew_deadline - 0.1, 0.0), exit_hard)

    def _refused(self, refused: Refused) -> None:
        """Tell of a refusal as the command was told to."""
        code = self.exit_code if self.exit_code is not None else self.guard.exit_code
        code = conf.exit_code() if code is None else int(code)
        error = refusal(refused, code, clock() - self.started, using=self.claim.using)
        if self.guard.on_refused == "skip":
            logger.info("Command skipped name=%s reason=%s", refused.name, error)
            if self.from_shell and self.verbosity >= 2:
                self.command.stdout.write(f"Skipped. {error}")
            return
        if self.from_shell and self.verbosity == 0:
            raise SystemExit(code)  # as silent as it was asked to be
        raise error


def is_from_shell(command: Any) -> bool:
    """Say whether a command was started on the command line, and not by code."""
    return bool(getattr(command, "_called_from_command_line", False))


def default_on_lost(command: Any) -> str:
    """Return "interrupt" where the main thread is the command's to interrupt."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return "interrupt" if is_from_shell(command) and in_main_thread else "flag"


def is_parent_of_reloader(options: dict[str, Any]) -> bool:
    """Say whether this process only starts, and starts again, the one that works: as runserver's does."""
    child = any(os.environ.get(name) == "true" for name in ("RUN_MAIN", "WERKZEUG_RUN_MAIN"))
    return bool(options.get("use_reloader")) and not child
