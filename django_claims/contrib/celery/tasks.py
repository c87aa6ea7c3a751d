"""`@single_instance` for Celery tasks: written below @shared_task, or above a Task class that others are made from."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, overload

from celery import Task, current_task
from celery.app.task import Context
from django.core.management.base import BaseCommand

from django_claims import conf
from django_claims.clock import Duration
from django_claims.contrib.celery.running import run_guarded
from django_claims.decorators import comes_down_to, key_of_call
from django_claims.exceptions import InvalidClaim
from django_claims.guards import Guard, values_of

Target = TypeVar("Target", bound=Callable[..., Any])

REFUSALS = ("skip", "retry", "fail")


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
    on_refused: str = "skip",
    on_lost: str | None = None,
    min_hold: Duration = 0.0,
    max_hold: Duration | None = None,
    stop_on_shutdown: bool = False,
) -> Callable[[Target], Target]: ...
def single_instance(
    target: Any = None,
    /,
    *,
    name: str | None = None,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    timeout: Duration | None = 0.0,
    on_refused: str = "skip",
    on_lost: str | None = None,
    min_hold: Duration = 0.0,
    max_hold: Duration | None = None,
    stop_on_shutdown: bool = False,
) -> Any:
    """
    Let one run of a task at a time work, across all workers and machines.

    Below @shared_task or @app.task, or above a Task class. A run holds the claim
    `task:<task name>` around its body; `current_hold()` is the hold.

    - `key`: an argument's name, several, or a callable of the arguments: one run at a time for each value
    - `timeout`: seconds to wait for the other run to end, in the worker's process
    - `on_refused`: "skip": end in SUCCESS with `{"skipped": …}`; "retry": send it again until it runs;
      "fail": raise ClaimHeld. A message that was delivered twice is never dropped, whatever is chosen
    - `on_lost`, `min_hold`, `max_hold`: see `claim()`
    - `stop_on_shutdown`: ask the run to stop when its worker shuts down; with late acks the message
      then goes back into the queue

    Between the tries of a task that retries itself the claim is free. A run that an operator
    stopped ends in SUCCESS with `{"stopped": True, …}`.
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
        stop_on_shutdown=bool(stop_on_shutdown),
    )
    guard.judge(REFUSALS)
    if on_lost == "cancel":
        raise InvalidClaim("on_lost='cancel' is for coroutines, which are no tasks. Use 'raise'.")
    if target is None:
        return functools.partial(_decorate, guard=guard)
    return _decorate(target, guard=guard)


def _decorate(target: Any, *, guard: Guard) -> Any:
    if isinstance(target, type):
        if issubclass(target, Task):
            return _guard_class(target, guard)
        if issubclass(target, BaseCommand):
            raise TypeError(f"{target.__name__} is a command: import single_instance from django_claims.")
        raise TypeError(f"single_instance is for tasks, not for class {target.__name__}.")
    if hasattr(target, "apply_async"):
        raise TypeError(f"{target!r} is a task already: write single_instance below @shared_task, not above.")
    if isinstance(target, staticmethod | classmethod) or not inspect.isroutine(target):
        raise TypeError(
            f"single_instance is for functions below @shared_task and for Task classes, not for {target!r}."
        )
    if inspect.iscoroutinefunction(target) or inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            f"{target.__qualname__} is a generator or a coroutine function, of which a worker would only make an "
            f"object, unguarded. Write a plain function, or 'with claim(…)' inside it."
        )
    return _guarded_function(target, guard)


def _guarded_function(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    signature = inspect.signature(function)
    if guard.key is not None and not callable(guard.key):
        values_of(guard.key, dict.fromkeys(signature.parameters), "argument")

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        task: Any = current_task._get_current_object() if current_task else None
        if task is not None and not comes_down_to(task.run, wrapped):
            task = None
        elif task is not None and hasattr(type(task).__call__, "task_guard"):
            raise TypeError(f"{task!r} is guarded twice: by its base class, and by its function. Do one of both.")
        own = args[1:] if args and isinstance(args[0], Task) else args
        key = guard.key(*own, **kwargs) if callable(guard.key) else key_of_call(guard.key, signature, args, kwargs)
        # Outside of any task, as tests call it: a function like others, with the name that the task has by default.
        name = task.name if task is not None else f"{function.__module__}.{function.__name__}"
        request = task.request if task is not None else Context()
        return run_guarded(task, name, request, guard, key, lambda: function(*args, **kwargs))

    # Celery checks the arguments of a call by it, and does not look through wrappers.
    wrapped.__signature__ = signature  # type: ignore[attr-defined]  # functions may have attributes
    wrapped.task_guard = guard  # type: ignore[attr-defined]  # as above; for the checks
    return wrapped


def _guard_class(cls: type[Task], guard: Guard) -> type[Task]:
    """Guard a Task class, and the tasks that are made from it, by what a worker calls."""
    call = None if cls.__call__ is Task.__call__ else cls.__call__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = self.request
        # The worker comes with a request, and once; whoever else calls the task comes without one of his own.
        is_run = not request.called_directly and not getattr(request, "was_guarded", False)
        if is_run:
            request.was_guarded = True
        else:
            request = Context()
        key = key_of_call(guard.key, inspect.signature(self.run), args, kwargs)

        def body() -> Any:
            if call is not None:
                return call(self, *args, **kwargs)
            return self.run(*args, **kwargs) if is_run else Task.__call__(self, *args, **kwargs)

        return run_guarded(self, self.name, request, guard, key, body)

    __call__.task_guard = guard  # type: ignore[attr-defined]  # as above
    cls.__call__ = __call__
    return cls
