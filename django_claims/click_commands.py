"""
Commands of django-click: objects, not classes, whose options click parses.

    @single_instance(key="region")
    @click.command()
    def command(region): ...

Known by what they can do: click is not imported here.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.core.management.color import color_style, no_style

from django_claims.command_runs import CommandRun, default_on_lost
from django_claims.commands import OPTIONS, command_key, name_of_module, split_options
from django_claims.exceptions import InvalidClaim
from django_claims.guards import Guard


def is_click(target: Any) -> bool:
    """Say whether something is a command of django-click."""
    return not isinstance(target, type) and all(
        hasattr(target, name) for name in ("run_from_argv", "execute", "make_context", "invoke", "callback")
    )


def guard_click(target: Any, guard: Guard) -> Any:
    """Guard a command of django-click, in place."""
    module = target.callback.__module__
    if guard.name is None and module == "__main__":
        raise InvalidClaim(f"Command {target.name!r} of __main__ has no name of its own; give single_instance(name=…).")
    run_from_argv, execute, invoke = target.run_from_argv, target.execute, target.invoke
    said = _Said()

    def guarded_run_from_argv(argv: list[str]) -> None:
        said._called_from_command_line = True
        said.asked, rest = split_options(argv)
        try:
            run_from_argv(rest)
        except CommandError as error:
            if said.traceback:
                raise
            said.stderr.write(f"{type(error).__name__}: {error}")
            sys.exit(error.returncode)
        finally:
            said._called_from_command_line = False

    def guarded_execute(*args: Any, **options: Any) -> Any:
        said.asked = {name: options.pop(name) for name in OPTIONS if name in options}
        return execute(*args, **options)

    def guarded_invoke(context: Any) -> Any:
        said.traceback = bool(getattr(context, "traceback", False))
        recipe = guard.claim(
            guard.name or name_of_module(module),
            command_key(guard.key, context.params),
            default_on_lost=default_on_lost(said),
            stop_on_shutdown=True,
        )
        options = {"verbosity": getattr(context, "verbosity", 1)}
        run = CommandRun(said, guard, recipe, asked=said.asked, options=options)
        return run.run(lambda: invoke(context))

    target.run_from_argv, target.execute, target.invoke = guarded_run_from_argv, guarded_execute, guarded_invoke
    target.base_stealth_options = [*target.base_stealth_options, *OPTIONS]
    return target


class _Said:
    """What a run needs to know of its command: where to write, and what it was asked."""

    hold: Any = None
    hold_thread = 0
    traceback = False
    _called_from_command_line = False

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    @property
    def stdout(self) -> OutputWrapper:
        return OutputWrapper(sys.stdout)

    @property
    def stderr(self) -> OutputWrapper:
        return OutputWrapper(sys.stderr)

    @property
    def style(self) -> Any:
        return color_style() if sys.stderr.isatty() else no_style()
