"""
Tells waiters of this machine that the process which they wait for is dead.

The store cannot know, and they ask it seldom. One look for all who wait for the same holder,
without asking the store.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.holders import Holder, ProcessId, this_process

LOOK_SECONDS = 0.1
SEEN_SECONDS = 0.02
"""For so long a process that was seen alive is taken to be, by those who watch it anyway."""


class _Deaths:
    """Which bells to ring at the end of which holder."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        self._lock = threading.RLock()  # a signal handler may come in anywhere
        self._bells: dict[tuple[ProcessId, ...], set[Callable[[], object]]] = {}
        self._looking = False
        self._alive: dict[tuple[ProcessId, ...], float] = {}  # when it was last seen

    def watch(self, holder: Holder, bell: Callable[[], object]) -> None:
        """Ring a bell when the holder, if it is of this machine, is dead. Once; forget() before it."""
        here = this_process()
        if not here.space or any(process.space != here.space for process in holder.processes):
            return
        with self._lock:
            self._bells.setdefault(holder.processes, set()).add(bell)
            if self._looking:
                return
            self._looking = True
        deadlines.run_at(clock() + LOOK_SECONDS, self._look)

    def forget(self, holder: Holder, bell: Callable[[], object]) -> None:
        with self._lock:
            bells = self._bells.get(holder.processes)
            if bells is not None:
                bells.discard(bell)
                if not bells:
                    del self._bells[holder.processes]

    def is_dead(self, holder: Holder) -> bool:
        """Say whether a holder is certainly over, for those who watch it: they need not look each time."""
        now = clock()
        if now - self._alive.get(holder.processes, 0.0) < SEEN_SECONDS:
            return False
        dead = holder.is_dead()
        if not dead:
            if len(self._alive) > 1000:
                self._alive.clear()
            self._alive[holder.processes] = now
        return dead

    def _look(self) -> None:
        with self._lock:
            watched = list(self._bells)
            self._looking = bool(watched)
        if watched:
            deadlines.run_at(clock() + LOOK_SECONDS, self._look)
        for processes in watched:
            if processes and all(process.is_dead() for process in processes):
                with self._lock:
                    bells = self._bells.pop(processes, set())
                for bell in bells:
                    with suppress(RuntimeError):  # a loop that is closed
                        bell()


deaths = _Deaths()


class watched:
    """A block during which a bell is rung if a holder, if there is one, dies."""

    __slots__ = ("_bell", "_holder")

    def __init__(self, holder: Holder | None, bell: Callable[[], object]) -> None:
        self._holder = holder
        self._bell = bell

    def __enter__(self) -> None:
        if self._holder is not None:
            deaths.watch(self._holder, self._bell)

    def __exit__(self, *_: object) -> None:
        if self._holder is not None:
            deaths.forget(self._holder, self._bell)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=deaths.start_anew)
