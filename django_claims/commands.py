"""
Management commands that run once: what `@single_instance` does to a command class.

Exit codes on the command line: 0 done, or stopped as an operator asked; 75 refused; 69 the
store gave no answer; 70 lost while running; 128 + n ended by signal n, however politely.
"""

from __future__ import annotations

import argparse
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from django.apps import apps
from django.core.management.base import BaseCommand, CommandParser

from django_claims import conf
from django_claims.clock import Duration, milliseconds
from django_claims.command_runs import CommandRun, default_on_lost
from django_claims.exceptions import InvalidClaim
from django_claims.guards import Guard, values_of

OPTIONS = ("claim_timeout", "claim_exit_code", "no_claim")

_ours: weakref.WeakSet[Any] = weakref.WeakSet()
"""The functions that guard: what wraps one of them may carry its attributes."""


def guard_command(cls: type[BaseCommand], guard: Guard) -> type[BaseCommand]:
    """Guard a command class, and the classes made from it, in place."""
    guard_class(cls, guard)
    own = cls.__dict__.get("__init_subclass__")

    def __init_subclass__(sub: type[BaseCommand], /, **kwargs: Any) -> None:
        if own is not None:
            own.__func__(sub, **kwargs)
        else:
            super(cls, sub).__init_subclass__(**kwargs)
        guard_class(sub)

    cls.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]  # as Python does it
    return cls


def guard_class(cls: Any, guard: Guard | None = None) -> None:
    """Guard one class: whatever its `handle` is by now, its own or inherited, runs under the claim."""
    if guard is not None:
        cls.claim_guard = guard
    if not hasattr(cls, "hold"):
        cls.hold = None
    if cls.handle not in _ours:
        cls.handle = _guarded_handle(cls.handle)
    if hasattr(cls, "typer_app"):  # its options are no argparse's
        if cls.run_from_argv not in _ours:
            cls.run_from_argv = _without_options(cls.run_from_argv)
            cls.stealth_options = (*cls.stealth_options, *OPTIONS)
    elif cls.add_arguments not in _ours:
        cls.add_arguments = _with_options(cls.add_arguments)


def _guarded_handle(handle: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handle)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        if self.hold is not None and self.hold_thread == threading.get_ident():
            return handle(self, *args, **options)  # one hold a command object: super().handle(…)
        guard: Guard = self.claim_guard
        ours = getattr(self, "claim_options", OPTIONS)
        asked = getattr(self, "claim_words", {}) | {name: options.pop(name) for name in ours if name in options}
        recipe = guard.claim(
            guard.name or command_name(type(self)),
            command_key(guard.key, options, args),
            default_on_lost=default_on_lost(self),
            stop_on_shutdown=True,
        )
        run = CommandRun(self, guard, recipe, asked=asked, options=options)
        return run.run(lambda: handle(self, *args, **options))

    _ours.add(guarded)
    return guarded


# The options.


def _with_options(add_arguments: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(add_arguments)
    def wrapped(self: Any, parser: Any) -> None:
        if getattr(parser, "claims_come", False):
            return add_arguments(self, parser)  # by super(): ours come last, when all others are known
        parser.claims_come = True
        add_arguments(self, parser)
        self.claim_options = add_options(parser)
        return None

    _ours.add(wrapped)
    return wrapped


def add_options(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """Add our options, but for those that the command has itself; return which those are."""
    taken = {action.dest for action in parser._actions} | set(parser._option_string_actions)
    group = parser.add_argument_group("single instance")
    added = []

    def add(dest: str, **about: Any) -> None:
        option = "--" + dest.replace("_", "-")
        if dest not in taken and option not in taken:
            group.add_argument(option, **about)
            added.append(dest)

    add(
        "claim_timeout",
        type=seconds,
        metavar="SECONDS",
        help="Wait so long for another run to end; 'forever' for no limit.",
    )
    add("claim_exit_code", type=exit_code, metavar="N", help="Exit with this code if another run goes on.")
    add("no_claim", action="store_true", help="Run without the claim, even beside another run.")
    return tuple(added)


def _without_options(run_from_argv: Callable[..., None]) -> Callable[..., None]:
    """For commands whose options are parsed by something else: ours are taken out before."""

    @functools.wraps(run_from_argv)
    def wrapped(self: Any, argv: list[str]) -> None:
        self.claim_words, rest = split_options(argv)
        run_from_argv(self, rest)

    _ours.add(wrapped)
    return wrapped


def split_options(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return what our options say, and the command line without them. Ends the process if one makes no sense."""
    head, words = argv[:2], argv[2:]
    at = words.index("--") if "--" in words else len(words)
    parser = CommandParser(prog=" ".join(head), add_help=False, allow_abbrev=False, called_from_command_line=True)
    add_options(parser)
    found, rest = parser.parse_known_args(words[:at])
    return vars(found), [*head, *rest, *words[at:]]


def seconds(text: str) -> float:
    if text == "forever":
        return float("inf")
    value = float(text)
    milliseconds(value, "--claim-timeout", at_least=0)
    return value


def exit_code(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 255:
        raise ValueError(text)
    return value


# Names.


def command_name(cls: type) -> str:
    """Return `command:<app label>.<command>`: the same on every machine, checkout and entry point."""
    module = cls.__module__
    if module == "__main__":
        raise InvalidClaim(
            f"Command {cls.__qualname__} of __main__ has no name of its own; give single_instance(name=…)."
        )
    return name_of_module(module)


def name_of_module(module: str) -> str:
    """Return the name of the command that a module has."""
    config = apps.get_containing_app_config(module)
    label = config.label if config else module.partition(".")[0]
    return f"command:{label}.{module.rpartition('.')[2]}"


def command_key(key: Any, options: dict[str, Any], args: tuple[Any, ...] = ()) -> Any:
    """Return what this run is about, from its options; `args` are those of a LabelCommand and its like."""
    if key is None:
        return None
    if callable(key):
        return key(options)
    return values_of(key, {"args": args, **options} if args else options, "option")


class SingleInstanceMixin:
    """
    `@single_instance` as a base class, to be named before BaseCommand. The same, by attributes.

        class Command(SingleInstanceMixin, BaseCommand):
            claim_key = "region"
            claim_ttl = 60

    What a class made from it sets anew holds for that class. For the attributes see single_instance().
    """

    claim_name: ClassVar[str | None] = None
    claim_key: ClassVar[Any] = None
    claim_using: ClassVar[str] = conf.DEFAULT_ALIAS
    claim_ttl: ClassVar[Duration | None] = None
    claim_timeout: ClassVar[Duration | None] = 0.0
    claim_on_refused: ClassVar[str] = "fail"
    claim_on_lost: ClassVar[str | None] = None
    claim_min_hold: ClassVar[Duration] = 0.0
    claim_max_hold: ClassVar[Duration | None] = None
    claim_exit_code: ClassVar[int | None] = None
    claim_stop_on_shutdown: ClassVar[bool | None] = None
    hold: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = Guard.__dataclass_fields__
        for attribute in vars(cls):
            if attribute.startswith("claim_") and attribute.removeprefix("claim_") not in known:
                raise InvalidClaim(f"{cls.__name__}.{attribute}: there is no such attribute of SingleInstanceMixin.")
        guard = Guard(**{name: getattr(cls, f"claim_{name}") for name in known})
        guard.judge()
        if issubclass(cls, BaseCommand):
            guard_class(cls, guard)
