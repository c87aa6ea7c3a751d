"""
Management commands that run once: what `@single_instance` does to a command class.

Exit codes on the command line: 0 done, or stopped as an operator asked; 75 refused; 69 the
store gave no answer; 70 lost while running; 128 + n ended by signal n, however politely.
"""

from __future__ import annotations

import functools
import os
import shlex
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.acquiring import Acquiring, Refused, off_hold
from django_claims.claims import Claim, claim
from django_claims.clock import Duration, clock, milliseconds
from django_claims.command_signals import CommandSignals
from django_claims.deadlines import deadlines
from django_claims.exceptions import (
    AlreadyRunning,
    BackendUnavailable,
    ClaimLost,
    CommandRefused,
    InvalidClaim,
    InvalidClaimsSetting,
    KeptStopped,
    StopRequested,
)
from django_claims.handler import claim_backends
from django_claims.holds import Hold
from django_claims.logs import get_logger

logger = get_logger(__name__)

UNAVAILABLE, LOST = 69, 70  # EX_UNAVAILABLE and EX_SOFTWARE of sysexits.h
OPTIONS = ("claim_timeout", "claim_exit_code", "no_claim")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The arguments of `@single_instance`."""

    name: str | None = None
    key: Any = None
    using: str = conf.DEFAULT_ALIAS
    ttl: Duration | None = None
    timeout: Duration | None = 0.0
    on_refused: str = "fail"
    on_lost: Any = None
    min_hold: Duration = 0.0
    max_hold: Duration | None = None
    exit_code: int | None = None
    stop_on_shutdown: bool | None = None

    def claim(self, name: str, key: Any, *, default_on_lost: str, stop_on_shutdown: bool) -> Claim:
        """Return the recipe for one run."""
        return claim(
            name,
            key=key,
            using=self.using,
            ttl=self.ttl,
            timeout=self.timeout,
            min_hold=self.min_hold,
            max_hold=self.max_hold,
            on_lost=self.on_lost or default_on_lost,  # type: ignore[arg-type]  # judged there
            stop_on_shutdown=stop_on_shutdown if self.stop_on_shutdown is None else self.stop_on_shutdown,
        )


def guard_command(cls: type[BaseCommand], guard: Guard) -> type[BaseCommand]:
    """Guard a command class, and the classes made from it, in place."""
    _wrap(cls, guard)
    own = cls.__dict__.get("__init_subclass__")

    def __init_subclass__(sub: type[BaseCommand], /, **kwargs: Any) -> None:
        if own is not None:
            own.__func__(sub, **kwargs)
        else:
            super(cls, sub).__init_subclass__(**kwargs)
        _wrap(sub, guard)

    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]
    cls.hold = None  # type: ignore[attr-defined]
    return cls


def _wrap(cls: Any, guard: Guard) -> None:
    """Wrap what a class itself defines, or for the first of a family also what it inherits."""
    first = not any(getattr(base.__dict__.get("handle"), "is_guarded", False) for base in cls.__mro__)
    if first or "handle" in cls.__dict__:
        cls.handle = _guarded_handle(cls.handle, guard)
    if first or "add_arguments" in cls.__dict__:
        cls.add_arguments = _with_options(cls.add_arguments)


def _with_options(add_arguments: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(add_arguments)
    def wrapped(self: BaseCommand, parser: CommandParser) -> None:
        add_arguments(self, parser)
        if any(action.dest == "no_claim" for action in parser._actions):
            return  # a subclass has called the class that it was made from
        group = parser.add_argument_group("single instance")
        group.add_argument(
            "--claim-timeout", type=seconds, metavar="SECONDS", help="Wait so long for another run to end."
        )
        group.add_argument(
            "--claim-exit-code", type=exit_code, metavar="N", help="Exit with this code if another run goes on."
        )
        group.add_argument("--no-claim", action="store_true", help="Run without the claim, even beside another run.")

    return wrapped


def seconds(text: str) -> float:
    value = float(text)
    milliseconds(value, "--claim-timeout", at_least=0)
    return value


def exit_code(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 255:
        raise ValueError(text)
    return value


def _guarded_handle(handle: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    @functools.wraps(handle)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        if self.hold is not None and self.hold_thread == threading.get_ident():
            return handle(self, *args, **options)  # one hold a command object: super().handle(…)
        return _Run(self, guard, options).run(lambda: handle(self, *args, **options))

    wrapped.is_guarded = True  # type: ignore[attr-defined]
    return wrapped


class _Run:
    """One run of a guarded command."""

    def __init__(self, command: Any, guard: Guard, options: dict[str, Any]) -> None:
        self.command = command
        self.guard = guard
        self.timeout, self.exit_code, self.no_claim = (options.pop(name, None) for name in OPTIONS)
        self.verbosity = options.get("verbosity", 1)
        self.from_shell = bool(getattr(command, "_called_from_command_line", False))
        self.in_main_thread = threading.current_thread() is threading.main_thread()
        interrupts = self.from_shell and self.in_main_thread
        self.claim = guard.claim(
            guard.name or command_name(type(command)),
            command_key(guard.key, options),
            default_on_lost="interrupt" if interrupts else "flag",
            stop_on_shutdown=True,
        )

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the body under the claim, or say why not."""
        if not self.from_shell:
            return self._run(body, None)
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
        self.command.hold, self.command.hold_thread = outcome, threading.get_ident()
        if received is not None:
            received.hold = outcome
        try:
            with outcome:
                output = body()
                if outcome.lost and self.from_shell:
                    raise ClaimLost(outcome.name, outcome.loss_reason)
                return output
        finally:
            self.command.hold = None

    def _acquire(self) -> Hold | Refused:
        if self.no_claim:
            self.command.stderr.write(
                self.command.style.WARNING(f"Running without claim {self.claim.name!r}: another run may go on beside.")
            )
            logger.warning("Command runs without its claim name=%s", self.claim.name)
            return off_hold(self.claim)
        timeout = self.claim.timeout if self.timeout is None else float(self.timeout)
        self.started = clock()
        on_loss = self._exit_hard_later if self.claim.on_lost == "interrupt" and self.from_shell else None
        return Acquiring(self.claim, timeout, on_loss=on_loss).acquire()

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
            return
        if self.from_shell and self.verbosity == 0:
            raise SystemExit(code)  # as silent as it was asked to be
        raise error


def refuse_useless_backend(recipe: Claim) -> None:
    """A guess that would exclude nobody is no answer to somebody who asks to be alone. Raises InvalidClaimsSetting."""
    if conf.enabled():
        backend = claim_backends[recipe.using]
        if backend.settings.implicit and backend.is_process_local:
            raise InvalidClaimsSetting(
                f"Nothing is set for claims, and the default cache cannot keep other processes out, so "
                f"{recipe.name!r} would run beside itself. Add to the settings:\n{conf.HOW_TO_SET}\n"
                f"or, to run without claims, CLAIMS = None."
            )


def refusal(refused: Refused, code: int, waited: float, *, using: str = conf.DEFAULT_ALIAS) -> CommandRefused:
    """Return the error that tells the person at the terminal: who has it, how to look, how to break it."""
    alias = "" if using == conf.DEFAULT_ALIAS else f" --using {shlex.quote(using)}"
    name = shlex.quote(refused.name)

    def line(verb: str, options: str = "") -> str:
        if refused.name.startswith("-"):  # or it would be taken for an option
            return f"manage.py claims {verb}{alias}{options} -- {name}"
        return f"manage.py claims {verb} {name}{options}{alias}"

    lines = [str(refused.error())]
    if waited >= 0.5:
        lines[0] += f" Waited {waited:.1f} s."
    lines.append(f"Look at it:  {line('show')}")
    if refused.flag is not None:
        lines.append(f"Let it run:  {line('clear-stop')}")
        return KeptStopped("\n".join(lines), refused.flag, code)
    if refused.lease is not None:
        lines.append(f"Break it:    {line('release', f' --fence {refused.lease.fence}')}")
    return AlreadyRunning("\n".join(lines), refused.lease, code)


def command_name(cls: type) -> str:
    """Return `command:<app label>.<command>`: the same on every machine, checkout and entry point."""
    module = cls.__module__
    if module == "__main__":
        raise InvalidClaim(
            f"Command {cls.__qualname__} of __main__ has no name of its own; give single_instance(name=…)."
        )
    config = apps.get_containing_app_config(module)
    label = config.label if config else module.partition(".")[0]
    return f"command:{label}.{module.rpartition('.')[2]}"


def command_key(key: Any, options: dict[str, Any]) -> Any:
    """Return what this run is about, from its options."""
    if key is None:
        return None
    if callable(key):
        return key(options)
    return values_of(key, options, "option")


def values_of(key: Any, values: dict[str, Any], what: str) -> tuple[Any, ...]:
    """Return the values that a key names. Raises InvalidClaim for one that is not there."""
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in names:
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            raise InvalidClaim(f"key= names the {what} {name!r}, which is not there (there is: {known}).")
    return tuple(values[name] for name in names)
