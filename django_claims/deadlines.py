"""
Says "lost" in time: a thread that does no I/O, one for all aliases.

The thread that talks to a store may be waiting for it; this one never waits for anything but
the next deadline.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from django_claims import heartbeat, registry
from django_claims.clock import clock
from django_claims.heartbeat import Heartbeat, Schedule
from django_claims.logs import get_logger

logger = get_logger(__name__)


class _Deadlines:
    """When each hold is lost unless it is renewed, and short errands for a time."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat("deadlines", self._work)
        self.start_anew()

    def start_anew(self) -> None:
        self._lock = threading.RLock()
        self._due: Schedule[str] = Schedule()
        self._errands: list[tuple[float, Callable[[], object]]] = []

    def run_at(self, when: float, errand: Callable[[], object]) -> None:
        """Have something short, without I/O, done in this thread. May be called from a signal handler."""
        with self._lock:
            self._errands.append((when, errand))
        self.heartbeat.call_by(when)

    def set(self, token: str, when: float) -> None:
        with self._lock:
            self._due.set(token, when)
        self.heartbeat.call_by(when)

    def discard(self, token: str) -> None:
        with self._lock:
            self._due.discard(token)
            left = len(self._due)
        if not left and self.heartbeat.running:
            self.heartbeat.call_by(clock() + heartbeat.IDLE_SECONDS)  # or it would wait for a deadline that is none

    def _work(self) -> float | None:
        with self._lock:
            tokens = self._due.pop_due(clock())
        for token in tokens:
            hold = registry.get(token)
            if hold is not None and not hold.lost and hold.is_open:
                self.set(token, hold.deadline)  # renewed meanwhile
        with self._lock:
            now = clock()
            due = [errand for when, errand in self._errands if when <= now]
            self._errands = [(when, errand) for when, errand in self._errands if when > now]
        for errand in due:
            try:
                errand()
            except BaseException:
                logger.exception("An errand failed")
        with self._lock:
            times = [when for when, _ in self._errands]
            if (first := self._due.next()) is not None:
                times.append(first)
        return min(times, default=None)


deadlines = _Deadlines()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=deadlines.start_anew)
