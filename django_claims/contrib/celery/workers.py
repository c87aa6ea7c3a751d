"""
The life of a worker: told to stop, its children gone, ended.

In a prefork worker the main process alone hears of a shutdown, and of a child that was killed; the
tasks are in the children. What one has to say to the other goes through the store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from celery import bootsteps, signals

from django_claims import conf, shutdown
from django_claims.clock import clock
from django_claims.contrib.celery import checks
from django_claims.deadlines import deadlines
from django_claims.exceptions import ClaimError, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.holders import Holder, this_process
from django_claims.logs import get_logger
from django_claims.names import cut
from django_claims.stop_flags import clear_stop, request_stop

logger = get_logger(__name__)

ENVIRONMENT = "DJANGO_CLAIMS_WORKER"
"""The name of the stop flag of a worker, for its children, however they were started."""

FLAG_SECONDS = 3600.0
LOOK_SECONDS = 0.5
CLEAN_EXITS = (0, 0x9B)  # the second one: a child that has done its share, and is replaced

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


def is_prefork(worker: Any) -> bool:
    return str(getattr(worker.pool_cls, "__module__", "")).endswith(".prefork")


@signals.celeryd_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _begins(instance: Any, **kwargs: Any) -> None:
    instance.app.steps["worker"].add(WatchChildren)


@signals.worker_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _is_made(sender: Any, **kwargs: Any) -> None:
    global _worker
    _worker = sender
    here = this_process()
    os.environ[ENVIRONMENT] = cut(f"worker:{sender.hostname}:{here.pid}.{here.start or os.urandom(4).hex()}")


@signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
def _is_ready(sender: Any, **kwargs: Any) -> None:
    worker = getattr(sender, "controller", _worker)
    if worker is None:
        return
    for problem in checks.problems(worker.app, pool=str(getattr(worker.pool_cls, "__module__", ""))):
        logger.warning("django_claims.%s: %s %s", problem.id, problem.message, problem.hint)
    node = worker.hostname
    # Of a worker with this name that was killed on this machine: others need not wait for the TTL.
    _in_thread(lambda: free_dead(lambda holder: holder.node == node))


@signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
def _shuts_down(sig: Any = "", how: Any = "", **kwargs: Any) -> None:
    """In a signal handler of the main process, which must not ask a store."""
    shutdown.start_draining(f"worker gets {sig}")
    if how == "Warm":  # else they are ended, or were before
        deadlines.run_at(0.0, lambda: _in_thread(_tell_children))


def _tell_children() -> None:
    for alias in _told_aliases():
        try:
            request_stop(
                str(shutdown_flag()), keep=True, ttl=FLAG_SECONDS, reason=shutdown.draining_reason(), using=alias
            )
        except (ClaimError, InvalidClaimsSetting) as error:
            logger.warning("Tasks could not be told of the shutdown alias=%s error=%s", alias, error)


@signals.worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def _child_ends(**kwargs: Any) -> None:
    """A child leaves without Python's own exit, so what it holds outside of `with` is released here."""
    shutdown.release_all("worker process ends")


@signals.worker_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def _ends(**kwargs: Any) -> None:
    """All children are gone. What the main process itself holds, Python's exit releases after its threads."""
    if _worker is None or not is_prefork(_worker):
        return
    look(_worker)
    for thread in list(_threads):
        thread.join(shutdown.RELEASE_SECONDS)
    for alias in _told_aliases() if shutdown.draining() else ():
        try:
            clear_stop(str(shutdown_flag()), using=alias)
        except (ClaimError, InvalidClaimsSetting) as error:
            logger.warning("The stop flag of this worker is left to its end alias=%s error=%s", alias, error)


class WatchChildren(bootsteps.StartStopStep):  # type: ignore[misc]
    """Looks twice a second, in the main process, whether a child was killed; asks a store only then."""

    requires = ("celery.worker.components:Pool", "celery.worker.components:Timer")

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        self.entry: Any = None
        super().__init__(worker, **kwargs)

    def start(self, worker: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if is_prefork(worker):
            _children.clear()
            look(worker)
            self.entry = worker.timer.call_repeatedly(LOOK_SECONDS, look, (worker,))

    def stop(self, worker: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.entry is not None:
            self.entry.cancel()
            self.entry = None


_children: dict[int, Any] = {}
_threads: set[threading.Thread] = set()


def look(worker: Any) -> None:
    """See which children are gone since the last look, and free what they held if they did not end by themselves."""
    pool = getattr(worker.pool, "_pool", None)
    for process in list(getattr(pool, "_pool", None) or ()):
        _children.setdefault(process.pid, process)
    codes = {pid: code for pid, process in _children.items() if (code := _exit_code(process)) is not None}
    for pid in codes:
        del _children[pid]
    killed = {pid for pid, code in codes.items() if code not in CLEAN_EXITS}
    if killed:
        _in_thread(lambda: free_dead(lambda holder: holder.pid in killed))


def _exit_code(process: Any) -> int | None:
    """Return how a child has ended, or None. The pool, which looks every few seconds, finds it as it was."""
    if hasattr(os, "waitid"):
        try:
            found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # the pool was faster
            return -1 if process.exitcode is None else int(process.exitcode)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return None if process.exitcode is None else int(process.exitcode)


def free_dead(is_meant: Callable[[Holder], bool]) -> int:
    """
    End the leases of holders that are meant, and provably dead. Return how many there were.

    By fence, so that a run which began meanwhile is never hit.
    """
    freed = 0
    for alias in conf.aliases() if conf.enabled() else ():
        try:
            backend = claim_backends[alias]
            page = 1
            ends = clock() + 10 * backend.settings.store_timeout
            while backend.settings.follow_dead and clock() < ends:
                found = backend.leases(match="", page=page, per_page=1000)
                for lease in found:
                    holder = lease.holder
                    if holder is None or not lease.is_followed or not is_meant(holder) or not holder.is_dead():
                        continue
                    if backend.force_release(lease.name, lease.fence):
                        freed += 1
                        logger.warning("Released what a dead process held name=%s holder=%s", lease.name, holder)
                if page * 1000 >= found.total:
                    break
                page += 1
        except (ClaimError, InvalidClaimsSetting) as error:
            logger.warning("What a dead process held ends with its TTL alias=%s error=%s", alias, error)
    return freed


def _in_thread(work: Callable[[], Any]) -> None:
    def run() -> None:
        try:
            work()
        except Exception:
            logger.exception("An errand of the worker failed")
        finally:
            _threads.discard(threading.current_thread())

    thread = threading.Thread(target=run, name="django-claims worker", daemon=True)
    _threads.add(thread)
    thread.start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.clear)
