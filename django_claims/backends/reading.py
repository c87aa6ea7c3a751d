"""
The thread that reads what servers push, for all aliases of the process.

It never waits for one of them: connecting is done by those who want to hear.
"""

from __future__ import annotations

import os
import re
import selectors
import socket
import ssl
import threading
from contextlib import suppress
from typing import Any, Protocol

from django_claims.backends.leading import Gate, can_lead
from django_claims.clock import clock
from django_claims.logs import get_logger

logger = get_logger(__name__)

PING_SECONDS = 15.0
PONG_SECONDS = 5.0


class Listener(Protocol):
    """Who is told."""

    @property
    def is_used(self) -> bool: ...
    def told(self, channel: bytes, said: bytes) -> None: ...
    def lost(self, subscription: Subscription) -> None: ...
    def end(self) -> None: ...


_MESSAGE = re.compile(rb"[*>]3\r\n\$7\r\nmessage\r\n\$\d+\r\n([^\r\n]*)\r\n\$\d+\r\n([^\r\n]*)\r\n")


class _Incomplete(Exception):
    """The rest is still to come."""


def parsed(buffer: bytearray, at: int = 0) -> tuple[Any, int]:
    """Return the value of the protocol (RESP 2 or 3) that begins there, and where the next one does."""
    end = buffer.find(b"\r\n", at)
    if end < 0:
        raise _Incomplete
    kind, head, at = buffer[at : at + 1], bytes(buffer[at + 1 : end]), end + 2
    if kind in b"$=!":
        size = int(head)
        if size < 0:
            return None, at
        if len(buffer) < at + size + 2:
            raise _Incomplete
        return bytes(buffer[at : at + size]), at + size + 2
    if kind in b"*>~%":
        items = []
        for _ in range(int(head) * (2 if kind == b"%" else 1)):
            item, at = parsed(buffer, at)
            items.append(item)
        return items, at
    return (ConnectionError(head.decode(errors="replace")) if kind == b"-" else head), at


class Subscription:
    """One connection that is subscribed to some channels."""

    def __init__(self, connection: Any, channels: tuple[str, ...], listener: Listener, seconds: float) -> None:
        """Subscribe, within some seconds. Raises OSError, or what the server said."""
        self._connection = connection
        self._listener = listener
        # The bare socket, behind what wire.py puts before it.
        self.socket: Any = getattr(connection._sock, "_sock", connection._sock)
        self._buffer = bytearray()
        self.heard_at = clock()
        self._pinged_at: float | None = None
        ends = clock() + seconds
        self.socket.settimeout(seconds)
        self.socket.sendall(b"".join(connection.pack_command("SUBSCRIBE", *channels)))
        confirmed = 0
        while confirmed < len(channels):
            try:
                value, at = parsed(self._buffer)
            except _Incomplete:
                self.socket.settimeout(max(ends - clock(), 0.001))
                if not (data := self.socket.recv(4096)):
                    raise ConnectionError("closed while subscribing") from None
                self._buffer += data
                continue
            del self._buffer[:at]
            if isinstance(value, ConnectionError):
                raise value
            if isinstance(value, list) and value[:1] == [b"subscribe"]:
                confirmed += 1
        self.socket.settimeout(0)
        self.gate = Gate(self.socket, self._buffer) if can_lead(self.socket) else None
        self.watched: Any = self.gate or self.socket

    def read(self) -> None:
        """Take what has come. Raises OSError if the connection has ended."""
        if self.gate is None:
            return self._read()
        if not self.gate.reading.acquire(timeout=1.0):
            raise ConnectionError("left by a waiter that was torn away")
        try:
            self._read()
        finally:
            self.gate.reading.release()

    def _read(self) -> None:
        # Until nothing is left: what TLS has in its own buffer wakes no selector.
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            while True:
                data = self.socket.recv(65536)
                if not data:
                    raise ConnectionError("closed by the server")
                self._buffer += data
                if len(data) < 65536 and not isinstance(self.socket, ssl.SSLSocket):
                    break
        self.heard_at, self._pinged_at = clock(), None
        at = 0
        with suppress(_Incomplete):
            while at < len(self._buffer):
                if found := _MESSAGE.match(self._buffer, at):  # nearly all are, and some are in a hurry
                    at = found.end()
                    self._listener.told(found[1], found[2])
                    continue
                value, at = parsed(self._buffer, at)
                if isinstance(value, list) and len(value) == 3 and value[0] == b"message":
                    self._listener.told(value[1], value[2])
        del self._buffer[:at]

    def look(self) -> None:
        """Ask a server that has been silent for long whether it is there. Raises OSError if it is not."""
        now = clock()
        if self._pinged_at is not None:
            if now - self._pinged_at > PONG_SECONDS:
                raise ConnectionError("no answer to a ping")
        elif now - self.heard_at > PING_SECONDS:
            self.socket.send(b"*1\r\n$4\r\nPING\r\n")
            self._pinged_at = now
        if self.gate is not None:
            self.gate.open_if_forgotten()
        if not self._listener.is_used:
            self._listener.end()

    def lost(self) -> None:
        self._listener.lost(self)

    def close(self) -> None:
        if self.gate is not None:
            self.gate.close()
        with suppress(Exception):
            self._connection.disconnect()

    def abandon(self) -> None:
        """In a forked child: drop our handle without a word, so that the server hears when the parent ends."""
        if self.gate is not None:
            self.gate.close()
        os.close(self.socket.detach())
        _inherited.append(self)


class _Reader:
    """One daemon thread, there only while there is a subscription."""

    def __init__(self) -> None:
        self.start_anew()

    def start_anew(self) -> None:
        self._lock = threading.RLock()  # a signal handler may release a hold while its own thread is in here
        self._watched: set[Subscription] = set()
        self._changed = False
        self._thread: threading.Thread | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None

    def watch(self, subscription: Subscription) -> None:
        """Read it from now on. Raises RuntimeError if the system refuses a thread."""
        with self._lock:
            self._watched.add(subscription)
            if self._thread is None:
                self._bell = socket.socketpair()
                for end in self._bell:
                    end.setblocking(False)
                self._thread = threading.Thread(target=self._run, name="django-claims listener", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None
                    self._watched.discard(subscription)
                    raise
            else:
                self._ring()

    def forget(self, subscription: Subscription) -> None:
        """Read it no more, and close it."""
        with self._lock:
            self._watched.discard(subscription)
            self._ring()

    def _ring(self) -> None:
        self._changed = True
        if self._bell is not None:
            with suppress(OSError):  # full: it rings already
                self._bell[1].send(b"!")

    def _run(self) -> None:
        with self._lock:
            if self._thread is not threading.current_thread() or self._bell is None:
                return
            bell = self._bell
        read: set[Subscription] = set()
        look_at = clock() + PONG_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(bell[0], selectors.EVENT_READ)
            while True:
                if self._changed or not read:
                    with self._lock:
                        wanted, self._changed = set(self._watched), False
                        if not wanted:
                            self._thread = self._bell = None  # under the lock: whoever comes next starts a new one
                    for old in read - wanted:
                        selector.unregister(old.watched)
                        old.close()
                    if not wanted:
                        break
                    for new in wanted - read:
                        selector.register(new.watched, selectors.EVENT_READ, new)
                    read = wanted
                for subscription in [key.data for key, _ in selector.select(max(look_at - clock(), 0.0))]:
                    if subscription is None:
                        with suppress(OSError):
                            bell[0].recv(4096)
                    else:
                        self._try(subscription, subscription.read)
                if clock() >= look_at:
                    look_at = clock() + PONG_SECONDS
                    for subscription in read:
                        self._try(subscription, subscription.look)
        for end in bell:
            end.close()

    def _try(self, subscription: Subscription, do: Any) -> None:
        try:
            do()
        except BaseException as error:  # whatever it is, the other aliases go on
            if not isinstance(error, OSError):
                logger.exception("What a server pushed could not be read")
            with self._lock:
                self._watched.discard(subscription)
                self._changed = True
            try:
                subscription.lost()
            except BaseException:
                logger.exception("The end of a subscription could not be told")


reader = _Reader()
_inherited: list[Any] = []
