"""
The only waiter of a process takes its call from the socket itself, so that no other thread has to run first.

    socket ──> gate (an epoll) ──> the thread that reads        mostly
    socket ──> the waiter                                       while it alone waits: the gate is shut
    socket ──> gate ──> the thread that reads                   as soon as something comes that is not its call

It looks before it takes, and takes its own call whole, so that an exception of a signal handler
leaves nothing half read. Where there is no epoll (or gevent has put its own select in the place
of the system's), and for TLS, which cannot be looked into, the thread reads everything.
"""

from __future__ import annotations

import os
import re
import select
import socket
import threading
import weakref
from contextlib import suppress
from typing import Any

from django_claims.backends.waiters import Bell
from django_claims.clock import real_clock


def can_lead(sock: Any) -> bool:
    """Say whether somebody else than the thread that reads can look at a socket."""
    return type(sock) is socket.socket and hasattr(select, "epoll") and hasattr(os, "eventfd")


class Gate:
    """What the thread that reads watches instead of a socket; shut, it sees nothing."""

    def __init__(self, sock: Any, begun: bytearray) -> None:
        """`begun`: what of a message was read, and waits for the rest of it."""
        self._socket = sock
        self._begun = begun
        self._epoll = select.epoll()
        self._epoll.register(sock, select.EPOLLIN)
        self._shut_until = 0.0
        self.reading = threading.Lock()
        """Of whoever takes from the socket."""

    def fileno(self) -> int:
        return self._epoll.fileno()

    def open(self) -> None:
        try:
            self._epoll.modify(self._socket, select.EPOLLIN)
        except (OSError, ValueError):
            if not self.is_closed:
                raise

    @property
    def is_closed(self) -> bool:
        """Whether the subscription has ended. Else an exception is a signal handler's, whatever it is."""
        return self._epoll.closed or self._socket.fileno() < 0

    def open_if_forgotten(self) -> None:
        """For a waiter that was torn away, by an exception of a signal handler right before it could open it."""
        if real_clock() > self._shut_until:
            self.open()

    def close(self) -> None:
        self._epoll.close()

    def lead(self, bell: Bell, waker: Waker, seconds: float, calls: re.Pattern[bytes], number: bytes) -> bytes | None:
        """
        Sleep until the bell rings or the call of a number comes. Return the words of that, or None.

        `calls` matches the message of a call, with its number and its words as groups.
        """
        ends = real_clock() + seconds
        poll = select.poll()
        poll.register(waker.fd, select.POLLIN)
        try:
            self._shut_until = ends + 1.0
            self._epoll.modify(self._socket, 0)
            poll.register(self._socket, select.POLLIN)
            bell.wake = waker.wake
            while not bell.was_rung() and (left := ends - real_clock()) > 0:
                for fd, _ in poll.poll(left * 1000):
                    if fd == waker.fd:
                        waker.rest()
                    elif (words := self._take(calls, number)) is not None:
                        return words
                    else:
                        self.open()
                        bell.wait(max(ends - real_clock(), 0.0))
                        return None
        except (OSError, ValueError):
            if not self.is_closed:
                raise
            bell.wait(max(ends - real_clock(), 0.0))
        finally:
            bell.wake = None
            self.open()
        return None

    def _take(self, calls: re.Pattern[bytes], number: bytes) -> bytes | None:
        """Take what has come, if that is the call of a number and nothing else is before it."""
        if not self.reading.acquire(False):
            return None
        try:
            found = None if self._begun else calls.match(self._socket.recv(512, socket.MSG_PEEK))
            if not found or found[1] != number:
                return None
            self._socket.recv(found.end())
            return found[2]
        except OSError as error:
            if error.errno is None:  # of a signal handler
                raise
            return None  # the thread sees to it
        finally:
            self.reading.release()


class Waker:
    """Wakes who sleeps on a socket."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._end = weakref.finalize(self, os.close, self.fd)
        self._end.atexit = False

    def wake(self) -> None:
        with suppress(OSError):
            os.eventfd_write(self.fd, 1)

    def rest(self) -> None:
        with suppress(OSError):
            os.eventfd_read(self.fd)
