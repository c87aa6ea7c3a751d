"""
Redis connections of our own, bounded in time: what redis-py's own pool does not promise.

A verb may take so many seconds in all, name look-up apart: connecting, logging in, sending
and reading share them. A connection that turns out to have been closed while it lay idle is
replaced once; nothing that could have been slow is tried again.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from django_claims.backends.shared import OnePerKey, end_all
from django_claims.clock import clock
from django_claims.hubs import PerHub
from django_claims.tokens import Packed

try:
    # redis-py's own packer does as well, in three times the time.
    _pack: Callable[[Any], bytes] | None = import_module("hiredis").pack_command
except ImportError:
    _pack = None


FEW = 2
"""Idle connections that are kept for as long as anything is asked; more of them only while they are needed."""


class Again(list[Any]):
    """Answers to what was asked a second time: the first one may have been heard, and done."""


class Connections:
    """
    Idle connections to one server, shared by all threads of the process.

    `pool` makes them (a redis-py pool of our own, used for nothing else); `broken` and
    `slow` are the exceptions by which its client says that a connection was closed, or late;
    `is_no_primary` says of an answer that it came from a server that may no longer be written to.
    """

    def __init__(
        self, pool: Any, broken: type[Exception], slow: type[Exception], is_no_primary: Callable[[Exception], bool]
    ) -> None:
        self.pool = pool
        pool.connection_class = _bounded(pool.connection_class)
        self._broken = broken
        self._slow = slow
        self._is_no_primary = is_no_primary
        self._shelf: PerHub[deque[Any]] = PerHub(deque)
        _all.add(self)

    @property
    def _idle(self) -> deque[Any]:
        return self._shelf.own()

    def talk(
        self, commands: Sequence[tuple[Any, ...]], seconds: float, but: type[Exception] | tuple[()] = ()
    ) -> list[Any]:
        """
        Send commands in one go and return the answers, or raise the first error of them.

        Errors of the kind `but` stand among the answers instead.
        """
        ends = clock() + seconds
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = None
        if connection is None:  # not in the handler: no error of the store's came up "during" one of ours
            return self._exchange(self._connect(ends), commands, ends, but)
        try:
            return self._exchange(connection, commands, ends, but)
        except self._slow:
            raise
        except self._broken:
            # Closed by the server, or by a restart, before it was asked: ask anew. Had it been
            # asked after all, the token makes the second request find the first one's work.
            if clock() >= ends:
                raise
            self.close()
            return Again(self._exchange(self._connect(ends), commands, ends, but))

    def connect(self, seconds: float) -> Any:
        """Return a connection of its own for somebody, connected within some seconds."""
        return self._connect(clock() + seconds)

    def _connect(self, ends: float) -> Any:
        connection = self.pool.make_connection()
        connection.socket_connect_timeout = connection.socket_timeout = max(ends - clock(), 0.001)
        connection.must_end = ends
        connection.connect()
        return connection

    def _exchange(
        self,
        connection: Any,
        commands: Sequence[tuple[Any, ...]],
        ends: float,
        but: type[Exception] | tuple[()],
    ) -> list[Any]:
        whole = False
        try:
            left = max(ends - clock(), 0.001)
            if abs(left - connection.waits) > 0.05:  # a system call that most verbs can spare
                connection._sock.settimeout(left)
                connection.waits = left
            connection.must_end, connection.reads = ends, 0
            packed = (
                [*map(Packed, connection.pack_commands(commands))]
                if _pack is None
                else [Packed(b"".join(map(_pack, commands)))]
            )
            connection.send_packed_command(packed, check_health=False)
            # Of the parser, since read_response() of a connection costs as much again as the answer.
            read, answers, first_error = connection._parser.read_response, [], None
            for _ in commands:
                answer = read()
                if isinstance(answer, Exception) and not isinstance(answer, but):
                    first_error = first_error or answer
                answers.append(answer)
            whole = True
        except TimeoutError as error:
            raise self._slow(f"no answer within {left:.2f} s") from error
        except OSError as error:
            raise self._broken(f"the connection failed: {error}") from error
        finally:
            # Left in the middle (a signal, a thread killed): the next answer would be someone else's.
            if not whole:
                connection.disconnect()
        if first_error is not None and self._is_no_primary(first_error):
            connection.disconnect()  # a new connection finds the new primary
            self.close()
            raise first_error
        connection.used_at = clock()
        idle = self._idle
        idle.append(connection)
        if len(idle) > FEW:
            _close_one_of_many(idle)
        if first_error is not None:
            raise first_error
        return answers

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        for idle in self._shelf.all():
            end_all(idle, lambda connection: connection.disconnect())

    def _abandon(self) -> None:
        """After fork: the sockets are the parent's. Neither use nor close them, and keep them referenced."""
        _inherited.append(self._shelf)
        self._shelf = PerHub(deque)
        self.pool.reset()


def _close_one_of_many(idle: deque[Any]) -> None:
    """Close what nobody needed for a while: left from when many asked at once."""
    with suppress(IndexError):
        oldest = idle.popleft()
        if clock() - oldest.used_at > 1.0:
            oldest.disconnect()
        else:
            idle.appendleft(oldest)


class _Socket:
    """A socket of which all reads of one exchange end together: an answer that drips in is late as a whole."""

    def __init__(self, sock: Any, connection: Any) -> None:
        self._sock = sock
        self._connection = connection
        self.sendall, self.settimeout = sock.sendall, sock.settimeout  # of the common path

    def recv(self, *args: Any) -> Any:
        self._hurry()
        return self._sock.recv(*args)

    def recv_into(self, *args: Any) -> Any:
        self._hurry()
        return self._sock.recv_into(*args)

    def _hurry(self) -> None:
        connection = self._connection
        connection.reads += 1
        if connection.reads > 1:  # the first one has the timeout already
            left = max(connection.must_end - clock(), 0.001)
            self._sock.settimeout(left)
            connection.waits = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def _bounded(connection_class: type) -> type:
    """Return a subclass of a connection class whose reads all end at `must_end`."""

    class Bounded(connection_class):  # type: ignore[misc]  # one that the pool has chosen
        must_end: float = 0.0
        used_at: float = 0.0
        reads: int = 0
        waits: float = 0.0  # the socket's timeout now

        def _connect(self) -> Any:
            self.reads = 1  # logging in is bounded from its first read
            return _Socket(super()._connect(), self)

        def send_command(self, *args: Any, **kwargs: Any) -> Any:
            # In text: hiredis (3.5) crashes the process if a signal handler raises as it writes a number.
            return super().send_command(*(str(arg) if type(arg) is int else arg for arg in args), **kwargs)

    Bounded.__name__ = Bounded.__qualname__ = connection_class.__name__
    return Bounded


_all: weakref.WeakSet[Connections] = weakref.WeakSet()
_inherited: list[Any] = []
shared: OnePerKey[Connections] = OnePerKey()


def _after_fork_in_child() -> None:
    for connections in list(_all):
        connections._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
