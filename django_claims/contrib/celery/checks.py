"""Options of Celery under which a promise cannot be kept: system checks, and said once when a worker starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import current_app
from django.core import checks

from django_claims import conf
from django_claims.checks import TAGS, message_of
from django_claims.clock import milliseconds
from django_claims.conf import Problem
from django_claims.contrib.celery.redelivery import visibility_timeout
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.guards import Guard

WITHOUT_LIMITS = ("threads", "solo")
OUTSIDE_MAIN_THREAD = ("threads", "gevent", "eventlet")


def check_tasks(app_configs: Any, **kwargs: Any) -> list[checks.CheckMessage]:
    """Judge the guarded tasks that are imported, of the current Celery app."""
    return [message_of(problem) for problem in problems(current_app)]


def guard_of(task: Any) -> Guard | None:
    """Return how a task is guarded, by its function or by its class; None if it is not."""
    found = getattr(task.run, "task_guard", None) or getattr(type(task).__call__, "task_guard", None)
    return found if isinstance(found, Guard) else None


def problems(app: Any, pool: str = "") -> list[Problem]:
    """Return what is wrong with the guarded tasks of an app, and with the options of its worker."""
    pool = (pool or str(app.conf.worker_pool)).rpartition(".")[2]
    pool = "threads" if pool == "thread" else pool  # its module has the other name
    found: list[Problem] = []
    for name, task in sorted(app.tasks.items()):
        if not name.startswith("celery."):
            found += _of_task(app, task, pool)
    return found


def _of_task(app: Any, task: Any, pool: str) -> Iterator[Problem]:
    guard = guard_of(task)
    where = f"Task {task.name!r}"
    if guard is None:
        if getattr(task.run, "is_guarded_function", False):
            yield Problem(
                "E150",
                f"{where} has the single_instance of django_claims, which is for commands and functions.",
                "Import single_instance from django_claims.contrib.celery.",
            )
        return
    if task.acks_late and guard.on_refused == "skip":
        yield Problem(
            "W150",
            f"{where} has late acks, which promise that each message is worked on, and skips what is refused.",
            "Set on_refused='retry', or acks_late=False. Messages that are delivered again are never skipped.",
            is_error=False,
        )
    visible = visibility_timeout(app)
    ttl = _ttl_ms(guard) / 1000
    if visible is not None and ttl >= visible:
        yield Problem(
            "W151",
            f"{where} has a TTL of {ttl:g} s, and the broker delivers again after {visible:g} s: the work of a dead "
            f"worker would wait for the TTL.",
            "Give it a shorter ttl; a hold is renewed for as long as the task runs. Or raise visibility_timeout.",
            is_error=False,
        )
    if pool in WITHOUT_LIMITS and (task.time_limit or app.conf.task_time_limit):
        yield Problem(
            "W152",
            f"{where} has a hard time limit, which the pool {pool!r} does not keep: it would run and hold on.",
            "Use the prefork pool; or max_hold=… and hold.checkpoint() in the task.",
            is_error=False,
        )
    if pool in OUTSIDE_MAIN_THREAD and guard.on_lost == "interrupt":
        yield Problem(
            "E151",
            f"{where} has on_lost='interrupt', which the pool {pool!r} cannot do: no task is in the main thread.",
            "Use on_lost='raise', or the prefork pool.",
        )


def _ttl_ms(guard: Guard) -> int:
    if guard.ttl is not None:
        return milliseconds(guard.ttl, "ttl")
    try:
        return conf.alias_settings(guard.using).ttl_ms
    except InvalidClaimsSetting:
        return 0  # another check says so


checks.register(check_tasks, *TAGS)
