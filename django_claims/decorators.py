"""`@single_instance`: a command, function or coroutine function that runs once at a time."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, overload

from django.core.management.base import BaseCommand

from django_claims import conf
from django_claims.claims import Claim, OnLost
from django_claims.click_commands import guard_click, is_click
from django_claims.clock import Duration
from django_claims.commands import guard_command
from django_claims.exceptions import ClaimRefused, InvalidClaim
from django_claims.guards import Guard, values_of

Target = TypeVar("Target", bound=Callable[..., Any])

C = TypeVar("C", bound=type[BaseCommand])
P = ParamSpec("P")
R = TypeVar("R")


class Skipping(Protocol):
    """What `single_instance(on_refused="skip")` gives: a function that is refused returns None."""

    @overload
    def __call__(self, target: C, /) -> C: ...
    @overload
    def __call__(
        self, target: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Callable[P, Coroutine[Any, Any, R | None]]: ...
    @overload
    def __call__(self, target: Callable[P, R], /) -> Callable[P, R | None]: ...


FOR_TASKS = (
    "{!r} is a Celery task: import single_instance from django_claims.contrib.celery, and write it below @shared_task."
)


@overload
def single_instance(target: Target, /) -> Target: ...
@overload
def single_instance(
    *,
    name: str | None = None,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    timeout: Duration | None = 0.0,
    on_refused: Literal["fail"] = "fail",
    on_lost: OnLost | None = None,
    min_hold: Duration = 0.0,
    max_hold: Duration | None = None,
    exit_code: int | None = None,
    stop_on_shutdown: bool | None = None,
) -> Callable[[Target], Target]: ...
@overload
def single_instance(
    *,
    on_refused: Literal["skip"],
    name: str | None = None,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    timeout: Duration | None = 0.0,
    on_lost: OnLost | None = None,
    min_hold: Duration = 0.0,
    max_hold: Duration | None = None,
    exit_code: int | None = None,
    stop_on_shutdown: bool | None = None,
) -> Skipping: ...
def single_instance(
    target: Any = None,
    /,
    *,
    name: str | None = None,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    timeout: Duration | None = 0.0,
    on_refused: str = "fail",
    on_lost: str | None = None,
    min_hold: Duration = 0.0,
    max_hold: Duration | None = None,
    exit_code: int | None = None,
    stop_on_shutdown: bool | None = None,
) -> Any:
    """
    Let one run at a time do this, across all processes and machines.

    On a BaseCommand class: `handle` runs under the claim `command:<app label>.<command>`, and
    `self.hold` is the hold. On a function or coroutine function: each call runs under
    `function:<module>.<qualified name>`, and a refused one raises ClaimHeld.

    - `key`: an option or argument name, several, or a callable: one run at a time for each value
    - `timeout`: seconds to wait for the other run to end
    - `on_refused`: "fail" (a command exits 75, a function raises), or "skip": return None, silently
    - `on_lost`: see `claim()`; on the command line "interrupt" if left out
    - `exit_code`: of a refused command, instead of CLAIMS_EXIT_CODE

    Limit: the work is guarded, not what it leaves running.
    """
    guard = Guard(
        name=name,
        key=key,
        using=using,
        ttl=ttl,
        timeout=timeout,
        on_refused=on_refused,
        on_lost=on_lost,
        min_hold=min_hold,
        max_hold=max_hold,
        exit_code=exit_code,
        stop_on_shutdown=stop_on_shutdown,
    )
    guard.judge()
    if target is None:
        return functools.partial(_decorate, guard=guard)
    return _decorate(target, guard=guard)


def _decorate(target: Any, *, guard: Guard) -> Any:
    if hasattr(target, "apply_async"):
        raise TypeError(FOR_TASKS.format(target))
    if isinstance(target, type):
        if not issubclass(target, BaseCommand):
            raise TypeError(
                f"single_instance is for BaseCommand classes and functions, not for class {target.__name__}."
            )
        if inspect.iscoroutinefunction(target.handle):
            raise TypeError(f"{target.__name__}.handle is a coroutine function, which Django does not run.")
        return guard_command(target, guard)
    if is_click(target):
        return guard_click(target, guard)
    if isinstance(target, staticmethod | classmethod):
        raise TypeError("Write single_instance below @staticmethod or @classmethod, not above.")
    if not inspect.isroutine(target):
        raise TypeError(f"single_instance is for BaseCommand classes and functions, not for {target!r}.")
    if target.__name__ == "handle" and next(iter(inspect.signature(target).parameters), "") == "self":
        raise TypeError("Decorate the command's class, not its handle(): write @single_instance above 'class Command'.")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            f"{target.__qualname__} is a generator: it would be guarded only until it is made. Decorate the function "
            f"that runs through it, or write 'with claim(…)' inside it."
        )
    if guard.on_lost == "cancel" and not inspect.iscoroutinefunction(target):
        raise InvalidClaim(f"on_lost='cancel' is for coroutine functions; {target.__qualname__} is none. Use 'raise'.")
    name = guard.name or _function_name(target)
    if inspect.iscoroutinefunction(target):
        return _guarded_coroutine_function(target, name, guard)
    return _guarded_function(target, name, guard)


def _function_name(function: Callable[..., Any]) -> str:
    if function.__module__ == "__main__":
        raise InvalidClaim(
            f"{function.__qualname__} of __main__ would be named after however the program was started; "
            f"give single_instance(name=…)."
        )
    return f"function:{function.__module__}.{function.__qualname__}"


def _recipes(function: Callable[..., Any], name: str, guard: Guard) -> Callable[..., Claim]:
    """Return what makes the recipe of one call: the same call spelled differently gives the same name."""
    signature = inspect.signature(function)
    if guard.key is not None and not callable(guard.key):
        values_of(guard.key, dict.fromkeys(signature.parameters), "argument")

    def recipe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Claim:
        key = key_of_call(guard.key, signature, args, kwargs)
        return guard.claim(name, key, default_on_lost="flag", stop_on_shutdown=False)

    return recipe


def key_of_call(key: Any, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what one call is about, whether its arguments are positional or keyword."""
    if callable(key):
        return key(*args, **kwargs)
    if key is None:
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return values_of(key, bound.arguments, "argument")


def comes_down_to(function: Any, wanted: Callable[..., Any]) -> bool:
    """Say whether a function is another one, or wraps it: by functools.wraps, or as `*args, **kwargs` around it."""
    seen: set[int] = set()
    left = [function]
    while left and len(seen) < 50:
        one = left.pop()
        one = getattr(one, "__func__", one)
        if one is wanted:
            return True
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, functools.partial):
            left.append(one.func)
        if (wrapped := getattr(one, "__wrapped__", None)) is not None:
            left.append(wrapped)
        elif (code := getattr(one, "__code__", None)) is not None and code.co_flags & inspect.CO_VARARGS:
            cells = getattr(one, "__closure__", None) or ()
            left += [cell.cell_contents for cell in cells if inspect.isroutine(_content(cell))]
    return False


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _refuse_as_task(wrapped: Callable[..., Any]) -> None:
    """Say which import tasks need. Celery is asked only where it is in use: nothing is imported for that."""
    celery = sys.modules.get("celery._state")
    task = celery and celery.get_current_task()
    if task and comes_down_to(task.run, wrapped):
        raise TypeError(FOR_TASKS.format(task))


def _guarded_function(function: Callable[..., Any], name: str, guard: Guard) -> Callable[..., Any]:
    recipe = _recipes(function, name, guard)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _refuse_as_task(wrapped)
        with ExitStack() as stack:
            try:
                stack.enter_context(recipe(args, kwargs))
            except ClaimRefused:
                if guard.on_refused == "skip":
                    return None
                raise
            return function(*args, **kwargs)

    wrapped.is_guarded_function = True  # type: ignore[attr-defined]  # asked by the checks of tasks
    return wrapped


def _guarded_coroutine_function(function: Callable[..., Any], name: str, guard: Guard) -> Callable[..., Any]:
    recipe = _recipes(function, name, guard)

    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(recipe(args, kwargs))
            except ClaimRefused:
                if guard.on_refused == "skip":
                    return None
                raise
            return await function(*args, **kwargs)

    return wrapped
