"""
The children of a prefork worker: known from their start, and what those held that were killed.

The main process frees it as soon as it has seen that, so that no other machine waits for the TTL.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from celery import bootsteps

from django_claims import conf
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable, ClaimError, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from django_claims.logs import get_logger

logger = get_logger(__name__)

LOOK_SECONDS = 0.5
FORK_SECONDS = 10.0  # that a fork waits for an errand, which is longer only if a store does not answer
PAUSES = (0.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
CLEAN_EXITS = (0, 0x9B)  # the second one: a child that has done its share, and is replaced

_children: dict[int, Any] = {}
_threads: set[threading.Thread] = set()
_over = threading.Event()
_forking: set[int] = set()

working = threading.Lock()
"""
Held by a thread that does an errand. A new child is forked between two of them.

What another thread has locked in that moment is locked in the child for good: a module that is just
being imported is enough, and its first task would wait for that without an end.
"""


def is_prefork(worker: Any) -> bool:
    return str(getattr(worker.pool_cls, "__module__", "")).endswith(".prefork")


class KnowChildren(bootsteps.StartStopStep):
    """
    Knows every child from its start.

    The pool forgets a child as it finds it dead, which may be before the first look at it.
    """

    requires = ("celery.worker.components:Pool",)

    # Celery hands it over, whatever the base class says.
    def start(self, worker: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if not is_prefork(worker):
            return
        _children.clear()
        pool = getattr(worker.pool, "_pool", None)
        make = getattr(pool, "_create_worker_process", None)
        if pool is None or make is None:
            return

        @functools.wraps(make)
        def make_and_know(*args: Any, **kwargs: Any) -> Any:
            process = make(*args, **kwargs)
            _children[process.pid] = process
            return process

        pool._create_worker_process = make_and_know


class WatchChildren(bootsteps.StartStopStep):
    """
    Looks twice a second, in the main process, whether a child was killed; asks a store only then.

    A step of the consumer, which begins anew with each connection to the broker: with the old one
    Celery up to 5.6 throws away whatever is to happen later.
    """

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self.entry: Any = None
        super().__init__(consumer, **kwargs)

    # Celery hands it over, whatever the base class says.
    def start(self, consumer: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        worker = consumer.controller
        if worker is not None and is_prefork(worker):
            look(worker)
            self.entry = worker.timer.call_repeatedly(LOOK_SECONDS, look, (worker,))

    def stop(self, consumer: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.entry is not None:
            self.entry.cancel()
            self.entry = None


def look(worker: Any) -> None:
    """See which children are gone since the last look, and free what they held if they did not end by themselves."""
    pool = getattr(worker.pool, "_pool", None)
    for process in list(getattr(pool, "_pool", None) or ()):
        if process.pid is not None:  # else it is being started
            _children.setdefault(process.pid, process)
    codes = {pid: code for pid, process in list(_children.items()) if (code := _exit_code(process)) is not None}
    for pid in codes:
        del _children[pid]
    killed = {pid for pid, code in codes.items() if code not in CLEAN_EXITS}
    if killed:
        free_dead_soon(lambda holder: holder.pid in killed)


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


def free_dead_soon(is_meant: Callable[[Holder], bool]) -> None:
    """
    End the leases of dead holders, in a thread: as soon as the store answers, and then once more.

    A process that was killed may have had a request on its way, which the store gets to after ours.
    """

    def errand() -> None:
        answers = 0
        for pause in PAUSES:
            if answers == 2 or (pause and _over.wait(pause)):
                return
            with working:
                answers += free_dead(is_meant)

    in_thread(errand)


def free_dead(is_meant: Callable[[Holder], bool]) -> bool:
    """
    End the leases of holders that are meant, and provably dead. Return whether all stores have answered.

    By fence, so that a run which began meanwhile is never hit.
    """
    answered = True
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
                        logger.warning("Released what a dead process held name=%s holder=%s", lease.name, holder)
                if page * 1000 >= found.total:
                    break
                page += 1
        except BackendUnavailable as error:
            answered = False
            logger.warning("What a dead process held cannot be freed now alias=%s error=%s", alias, error)
        except (ClaimError, InvalidClaimsSetting) as error:
            logger.warning("What a dead process held ends with its TTL alias=%s error=%s", alias, error)
    return answered


def in_thread(work: Callable[[], Any]) -> None:
    """Do what asks a store beside Celery's own loop."""

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


def begin_errands() -> None:
    _over.clear()


def end_errands(seconds: float) -> None:
    """Let those come to their end that are under way, and begin no more."""
    _over.set()
    for thread in list(_threads):
        thread.join(seconds)


def _before_fork() -> None:
    if working.acquire(timeout=FORK_SECONDS):
        _forking.add(threading.get_ident())


def _after_fork() -> None:
    if threading.get_ident() in _forking:
        _forking.discard(threading.get_ident())
        working.release()


def _after_fork_in_child() -> None:
    global working
    working = threading.Lock()
    _forking.clear()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
