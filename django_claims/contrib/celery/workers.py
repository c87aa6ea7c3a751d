"""
The life of a worker: told to stop, its children gone, ended.

In a prefork worker the main process alone hears of a shutdown, and of a child that was killed; the
tasks are in the children. What one has to say to the other goes through the store.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from celery import signals

from django_claims import conf, shutdown
from django_claims.contrib.celery import checks, children
from django_claims.contrib.celery.children import in_thread, is_prefork
from django_claims.deadlines import deadlines
from django_claims.exceptions import ClaimError, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.holders import this_process
from django_claims.logs import get_logger
from django_claims.names import cut
from django_claims.stop_flags import clear_stop, request_stop

logger = get_logger(__name__)

ENVIRONMENT = "DJANGO_CLAIMS_WORKER"
"""The name of the stop flag of a worker, for its children, however they were started."""

FLAG_SECONDS = 3600.0

_worker: Any = None


def shutdown_flag() -> str | None:
    """Return the name of the stop flag by which this worker tells its children that it shuts down."""
    return os.environ.get(ENVIRONMENT)


def _told_aliases() -> set[str]:
    """Return where children look that have tasks with stop_on_shutdown: elsewhere, nobody need be told."""
    if _worker is None or not is_prefork(_worker) or not conf.enabled() or not shutdown_flag():
        return set()
    guards = [guard for task in _worker.app.tasks.values() if (guard := checks.guard_of(task)) is not None]
    return {guard.using for guard in guards if guard.stop_on_shutdown}


@signals.celeryd_init.connect(weak=False)
def _begins(instance: Any, **kwargs: Any) -> None:
    instance.app.steps["worker"].add(children.KnowChildren)
    instance.app.steps["consumer"].add(children.WatchChildren)


@signals.worker_init.connect(weak=False)
def _is_made(sender: Any, **kwargs: Any) -> None:
    global _worker
    _worker = sender
    children.begin_errands()
    for alias in conf.aliases() if conf.enabled() else ():
        with contextlib.suppress(InvalidClaimsSetting):  # of which the first task speaks
            claim_backends[alias]  # imported here, and not by each child
    here = this_process()
    os.environ[ENVIRONMENT] = cut(f"worker:{sender.hostname}:{here.pid}.{here.start or os.urandom(4).hex()}")


@signals.worker_ready.connect(weak=False)
def _is_ready(sender: Any, **kwargs: Any) -> None:
    worker = getattr(sender, "controller", _worker)
    if worker is None:
        return
    for problem in checks.problems(worker.app, pool=str(getattr(worker.pool_cls, "__module__", ""))):
        logger.warning("django_claims.%s: %s %s", problem.id, problem.message, problem.hint)
    node = worker.hostname
    # Of a worker with this name that was killed on this machine: others need not wait for the TTL.
    children.free_dead_soon(lambda holder: holder.node == node)


@signals.worker_shutting_down.connect(weak=False)
def _shuts_down(sig: Any = "", how: Any = "", **kwargs: Any) -> None:
    """In a signal handler of the main process, which must not ask a store."""
    shutdown.start_draining(f"worker gets {sig}")
    if how == "Warm":  # else they are ended, or were before
        deadlines.run_at(0.0, lambda: in_thread(_tell_children))


def _tell_children() -> None:
    flag, reason = str(shutdown_flag()), shutdown.draining_reason()
    with children.working:
        for alias in _told_aliases():
            try:
                request_stop(flag, keep=True, ttl=FLAG_SECONDS, reason=reason, using=alias)
            except (ClaimError, InvalidClaimsSetting) as error:
                logger.warning("Tasks could not be told of the shutdown alias=%s error=%s", alias, error)


@signals.worker_process_shutdown.connect(weak=False)
def _child_ends(**kwargs: Any) -> None:
    """A child leaves without Python's own exit, so what it holds outside of `with` is released here."""
    shutdown.release_all("worker process ends")


@signals.worker_shutdown.connect(weak=False)
def _ends(**kwargs: Any) -> None:
    """All children are gone. What the main process itself holds, Python's exit releases after its threads."""
    if _worker is None or not is_prefork(_worker):
        return
    children.look(_worker)
    children.end_errands(shutdown.RELEASE_SECONDS)
    for alias in _told_aliases() if shutdown.draining() else ():
        try:
            clear_stop(str(shutdown_flag()), using=alias)
        except (ClaimError, InvalidClaimsSetting) as error:
            logger.warning("The stop flag of this worker is left to its end alias=%s error=%s", alias, error)
