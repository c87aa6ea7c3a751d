"""
A thread that does what is due.

Knows time and fork, not leases: the work tells when it wants to be called next.
"""

from __future__ import annotations

import heapq
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Generic, TypeVar

from django.db import close_old_connections

from django_claims import hubs
from django_claims.clock import clock, real_clock
from django_claims.logs import get_logger

logger = get_logger(__name__)

IDLE_SECONDS = 5.0
"""How long a thread with nothing to do stays, so that a loop of short holds does not start one each."""

manual = False
"""
No thread is started: what one would do at once is done by the call that asks for it, and what it would do
later by `beat()`. For django_claims.test alone.
"""

_all: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


def all_heartbeats() -> list[Heartbeat]:
    return list(_all)


def threads_run() -> bool:
    """Say whether threads run on while nobody is served. In older versions of uWSGI only if it was asked for them."""
    uwsgi = sys.modules.get("uwsgi")  # a module that such a process has, and that nobody can install
    return uwsgi is None or bool(getattr(uwsgi, "has_threads", True))


def poke(alias: str) -> None:
    """Have the running thread of an alias look at its store now; there may be news."""
    for heartbeat in all_heartbeats():
        if heartbeat.alias == alias and (heartbeat.running or manual):
            heartbeat.poked = True
            heartbeat.call_by(0.0)
            if manual:
                heartbeat.beat()


class Heartbeat:
    """
    One daemon thread, there only while there is work.

    `work()` does what is due and returns when it wants to be called again, in seconds of
    `clock()`, or None if it has nothing left to do. It is called from this thread only.
    Whatever it raises is logged, and it is called again a second later.
    """

    def __init__(self, alias: str, work: Callable[[], float | None], at_end: Callable[[], None] | None = None) -> None:
        self.alias = alias
        self._work = work
        self._at_end = at_end
        self._reset()
        _all.add(self)

    def _make_lock(self) -> None:
        # Reentrant: a signal handler may release a hold while its own thread is in here.
        # And itself, not its condition, in each `with`: that one's __enter__ is Python code, in which an
        # exception of a signal handler would leave the lock taken for good.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._by_hand = threading.RLock()

    def _reset(self) -> None:
        self._make_lock()
        self._thread: threading.Thread | None = None
        self._due: float = 0.0
        self._last_use = clock()
        self._is_working = False
        self._is_resting = False
        self._is_finishing = False
        self.poked = False

    def ensure(self) -> None:
        """
        See to it that the thread runs, and stays for some seconds more.

        Raises RuntimeError if the system refuses a thread.
        """
        self._last_use = clock()
        if self._thread is None and not manual:
            if not threads_run():
                raise RuntimeError(
                    "uWSGI runs this process without threads, so nothing would renew it: set enable-threads = true"
                )
            if type(self._lock) is not type(threading.RLock()):
                self._make_lock()  # threads have become greenlets since the import, and a lock of threads knows none
            with self._lock:
                if self._thread is None:
                    # Known before it runs, so that a signal's exception in between leaves no second one.
                    # And in a context of its own: greenlets, and threads of some Pythons, inherit their starter's.
                    self._thread = threading.Thread(
                        target=Context().run, args=(self._run,), name=f"django-claims {self.alias}", daemon=True
                    )
                    try:
                        hubs.start(self._thread)
                    except BaseException:
                        self._thread = None
                        raise

    def call_by(self, when: float) -> None:
        """Have work() called at that time or before. Cheap when it would be anyway."""
        if self._thread is None:
            self.ensure()
        if when < self._due:
            with self._lock:
                self._due = min(self._due, when)
                self._changed.notify_all()
                if self._thread is None:  # it ended since the first look
                    self.ensure()

    @property
    def due(self) -> float:
        """When the work is to be called next, as far as is known."""
        return self._due

    @property
    def is_resting(self) -> bool:
        return self._is_resting

    def beat(self) -> None:
        """Do in this thread what is due, where no thread of ours does (`manual`). Raises nothing."""
        with self._by_hand:
            if self._is_resting or self._is_working:  # of a test around this one; or asked for by the work itself
                return
            self._is_working = True
            try:
                for _ in range(10):  # what was done may be followed by more that is due at once
                    self._due = float("inf")
                    due = self._work_safely()
                    if due is not None:
                        self._due = min(self._due, due)
                    if self._due > clock():
                        break
            finally:
                self._is_working = False

    def rest(self) -> None:
        """Do nothing until resume(); return when nothing is being done, but after 5 s at the latest."""
        self._is_resting = True
        ends = real_clock() + 5.0
        while self._is_working and self._thread is not threading.current_thread() and real_clock() < ends:
            time.sleep(0.001)

    def resume(self) -> None:
        """Go on, and first do what has become due meanwhile."""
        with self._lock:
            self._is_resting = False
            self._changed.notify_all()

    def finish(self) -> None:
        """End the thread once nothing is left to do, and wait for that, 2 s at most."""
        thread = self._thread
        with self._lock:
            self._is_finishing, self._due = True, 0.0
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    @property
    def thread(self) -> threading.Thread | None:
        """The thread, if it runs."""
        return self._thread

    @property
    def running(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread():
                return  # given up as it was started
        while True:
            # Until the work says otherwise: whoever asks from now on changes it under the lock.
            with self._lock:
                while self._is_resting:
                    self._changed.wait(60.0)
                self._due = float("inf")
                self._is_working = True
            due = self._work_safely(then=close_old_connections)  # which receivers of our signals may have opened
            with self._lock:
                self._is_working = False
                if due is not None:
                    self._last_use = clock()
                    self._due = min(self._due, due)
                elif self._due == float("inf"):
                    if self._is_finishing or clock() - self._last_use >= IDLE_SECONDS:
                        self._thread = None  # under the lock: whoever comes next starts a new one
                        break
                    self._due = self._last_use + IDLE_SECONDS
                while not self._is_resting and (left := self._due - clock()) > 0:
                    self._changed.wait(min(left, 60.0))
        if self._at_end is not None:
            try:
                self._at_end()
            except Exception:
                logger.exception("Heartbeat end failed alias=%s", self.alias)

    def _work_safely(self, then: Callable[[], object] | None = None) -> float | None:
        try:
            due = self._work()
            if then is not None:
                then()
            return due
        except BaseException:  # SystemExit too: somebody's callable must not end the renewals
            logger.exception("Heartbeat work failed, and is tried again alias=%s", self.alias)
            return clock() + 1.0


Key = TypeVar("Key", bound=Hashable)


class Schedule(Generic[Key]):
    """
    When each of many keys is due.

    All in logarithmic time; keys that were dropped are swept out once they outnumber the
    living, so that a loop of short holds leaves nothing behind. The caller locks.
    """

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, when: float) -> None:
        """Make a key due at that time, and at no other."""
        self._due[key] = when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, key))
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._due):
            self._heap = [(due, number, key) for number, (key, due) in enumerate(self._due.items())]
            heapq.heapify(self._heap)

    def bring_forward(self, key: Key, when: float) -> None:
        """Make a known key due by that time; leave it if it is due before."""
        if key in self._due and when < self._due[key]:
            self.set(key, when)

    def discard(self, key: Key) -> None:
        self._due.pop(key, None)

    def next(self) -> float | None:
        """Return when the first key is due, or None."""
        while self._heap:
            when, _, key = self._heap[0]
            if self._due.get(key) == when:
                return when
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: float) -> list[Key]:
        """Remove and return the keys that are due."""
        keys = []
        while (when := self.next()) is not None and when <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
        return keys


def _after_fork_in_child() -> None:
    """No thread and no lock of the parent is of use in the child."""
    for heartbeat in list(_all):
        heartbeat._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
