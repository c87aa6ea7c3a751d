"""
Ends conversations with a database that take too long.

No driver bounds a whole exchange: some count in whole seconds, some start anew with each byte,
some wait for ever for a server that is frozen. One thread shuts the line of what is overdue,
which the waiting driver hears as a lost connection. It stays while there is talk, and when it
leaves, connections that nobody uses are closed.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django_claims import heartbeat
from django_claims.clock import clock
from django_claims.heartbeat import Heartbeat, Schedule


def number_of(raw: Any) -> int:
    """Return the file descriptor of a driver's connection."""
    return int(raw.fileno() if hasattr(raw, "fileno") else raw._sock.fileno())  # PyMySQL has the latter


def line_of(raw: Any) -> socket.socket | None:
    """Return a second handle of a driver's socket: it is never another's, whatever the driver closes."""
    try:
        return socket.socket(fileno=os.dup(number_of(raw)))
    except (AttributeError, OSError):  # a driver of another make: its own time-outs have to do
        return None


class _Cuts:
    """Which line is to be cut when."""

    def __init__(self) -> None:
        self.heartbeat = Heartbeat("cuts", self._work, self._all_quiet)
        self.when_quiet: list[Callable[[], object]] = []
        self.start_anew()

    def start_anew(self) -> None:
        self._lock = threading.RLock()  # a signal handler may talk to the database while its own thread is in here
        self._due: Schedule[socket.socket] = Schedule()
        self._last = 0.0

    def set(self, line: socket.socket, when: float) -> None:
        """Cut the line at that time, unless it is discarded before."""
        with self._lock:
            self._due.set(line, when)
            self._last = clock()
        with suppress(RuntimeError):  # no thread to be had, as at the end of the program
            self.heartbeat.call_by(when)

    def discard(self, line: socket.socket) -> None:
        with self._lock:
            self._due.discard(line)

    def _work(self) -> float | None:
        with self._lock:  # held while cutting: whoever has discarded a line may close it
            for line in self._due.pop_due(clock()):
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)
            stays = self._last + heartbeat.IDLE_SECONDS
            return self._due.next() or (stays if stays > clock() else None)

    def _all_quiet(self) -> None:
        for callback in self.when_quiet:
            callback()


cuts = _Cuts()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cuts.start_anew)
