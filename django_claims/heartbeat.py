"""
A thread that does what is due.

Knows time and fork, not leases: the work tells when it wants to be called next.
"""

from __future__ import annotations

import heapq
import logging
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from django_claims.clock import clock

logger = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
"""How long a thread with nothing to do stays, so that a loop of short holds does not start one each."""

_all: weakref.WeakSet[Heartbeat] = weakref.WeakSet()


def poke(alias: str) -> None:
    """Have the running thread of an alias look at its store now; there may be news."""
    for heartbeat in list(_all):
        if heartbeat.alias == alias and heartbeat.running:
            heartbeat.poked = True
            heartbeat.call_by(0.0)


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

    def _reset(self) -> None:
        # Reentrant: a signal handler may release a hold while its own thread is in here.
        # And itself, not its condition, in each `with`: that one's __enter__ is Python code, in which an
        # exception of a signal handler would leave the lock taken for good.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._due: float = 0.0
        self._last_use = clock()
        self.poked = False

    def ensure(self) -> None:
        """
        See to it that the thread runs, and stays for some seconds more.

        Raises RuntimeError if the system refuses a thread.
        """
        self._last_use = clock()
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    # Known before it runs, so that a signal's exception in between leaves no second one.
                    self._thread = threading.Thread(target=self._run, name=f"django-claims {self.alias}", daemon=True)
                    try:
                        self._thread.start()
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
                self._due = float("inf")
            try:
                due = self._work()
            except BaseException:  # SystemExit too: somebody's callable must not end the renewals
                logger.exception("Heartbeat work failed, and is tried again alias=%s", self.alias)
                due = clock() + 1.0
            with self._lock:
                if due is not None:
                    self._last_use = clock()
                    self._due = min(self._due, due)
                elif self._due == float("inf"):
                    if clock() - self._last_use >= IDLE_SECONDS:
                        self._thread = None  # under the lock: whoever comes next starts a new one
                        break
                    self._due = self._last_use + IDLE_SECONDS
                while (left := self._due - clock()) > 0:
                    self._changed.wait(min(left, 60.0))
        if self._at_end is not None:
            try:
                self._at_end()
            except Exception:
                logger.exception("Heartbeat end failed alias=%s", self.alias)


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
