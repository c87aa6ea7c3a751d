"""
Links to memcached, over pymemcache or pylibmc: each a client of our own, like the cache's.

Values go and come as the bytes that they are: nothing is pickled, and nothing unpickled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django_claims.backends.cache_links import GONE, Item, Link, StoreError, Write
from django_claims.clock import clock

DAYS_30 = 30 * 24 * 3600
LAST_DATE = 2**31 - 1
_NOT_OURS = ("auto_eject", "remove_failed", "failure_limit", "dead_timeout", "num_replicas")
"""Behaviors by which pylibmc goes over to another server, which does not know who holds what."""


def _expiry(seconds: int) -> int:
    """Return what memcached takes for so many seconds: over 30 days it means a date, and none is beyond 2038."""
    if seconds == GONE:
        return DAYS_30 + 1  # a day of 1970; of a negative number the binary protocol makes one in 2106
    return min(seconds + int(time.time()), LAST_DATE) if seconds > DAYS_30 else seconds


_ANSWERS = {b"STORED", b"NOT_STORED", b"EXISTS", b"NOT_FOUND"}


class _Socket:
    """A socket of which all reads and writes of one verb end together."""

    def __init__(self, sock: Any, client: Any) -> None:
        self._sock = sock
        self._client = client
        self._waits = 0.0

    def _left(self) -> None:
        left = self._client.ends - clock()
        if left <= 0:
            raise TimeoutError("no answer in time")
        if not -0.05 < left - self._waits < 0.05:  # a system call that most can spare
            self._sock.settimeout(left)
            self._waits = left

    def sendall(self, data: bytes) -> None:
        self._left()
        self._sock.sendall(data)

    def recv(self, size: int) -> Any:
        self._left()
        return self._sock.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class _Answers:
    """What a server says to several commands that were sent in one go."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._read = b""

    def _more(self) -> None:
        data = self._sock.recv(65536)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._read += data

    def line(self) -> bytes:
        while b"\r\n" not in self._read:
            self._more()
        line, _, self._read = self._read.partition(b"\r\n")
        return line

    def item(self) -> Item | None:
        """Return the one item of a gets."""
        head = self.line().split()
        if head[:1] != [b"VALUE"]:
            return None
        size = int(head[3])
        while len(self._read) < size + 7:  # and the line "END"
            self._more()
        return Item(self._read[:size], head[4])


def _line(client: Any, write: Write) -> bytes:
    key, value, was, seconds = write
    whole = client.check_key(key, client.key_prefix)
    if was is None:
        return b"add %b 0 %d %d\r\n%b\r\n" % (whole, _expiry(seconds), len(value), value)
    return b"cas %b 0 %d %d %b\r\n%b\r\n" % (whole, _expiry(seconds), len(value), was.mark, value)


class PymemcacheLink(Link):
    """Over pymemcache: a client for each server, and the cache's own rule for which has a key."""

    def __init__(self, servers: Sequence[Any], options: dict[str, Any]) -> None:
        base = import_module("pymemcache.client.base")
        rule = options.get("hasher") or import_module("pymemcache.client.rendezvous").RendezvousHash
        kept = ("no_delay", "socket_module", "socket_keepalive", "key_prefix", "encoding", "tls_context")
        ours = {name: options[name] for name in kept if name in options}

        class Bounded(base.Client):  # type: ignore[misc, name-defined]  # of a module that may be missing
            ends = 0.0
            sock: Any

            def _connect(self) -> None:
                self.connect_timeout = self.timeout = max(self.ends - clock(), 0.001)
                super()._connect()
                self.sock = _Socket(self.sock, self)

        self._clients: dict[Any, Any] = {}
        self._hasher = rule()
        for server in servers:
            spec = base.normalize_server_spec(server)
            node = f"{spec[0]}:{spec[1]}" if isinstance(spec, tuple) else spec
            self._hasher.add_node(node)
            self._clients[node] = Bounded(spec, **{"no_delay": True, "default_noreply": False, **ours})
        self._only = next(iter(self._clients.values())) if len(self._clients) == 1 else None

    def _client(self, key: str) -> Any:
        client = self._only or self._clients[self._hasher.get_node(key)]
        client.ends = self.ends
        return client

    def _read(self, keys: Sequence[str], sure: bool) -> dict[str, Item]:
        if self._only is not None:
            return {key: Item(*found) for key, found in self._client("").gets_many(keys).items()}
        by_client: dict[Any, list[str]] = {}
        for key in keys:
            by_client.setdefault(self._client(key), []).append(key)
        return {
            key: Item(*found) for client, some in by_client.items() for key, found in client.gets_many(some).items()
        }

    def add(self, key: str, value: bytes, seconds: int) -> bool:
        return bool(self._client(key).add(key, value, expire=_expiry(seconds), noreply=False))

    def cas(self, key: str, value: bytes, was: Item, seconds: int) -> bool:
        return bool(self._client(key).cas(key, value, was.mark, expire=_expiry(seconds), noreply=False))

    def put(self, writes: Sequence[Write], *, marked: bool = False) -> list[bool]:
        """In one round trip, if all is for one server."""
        clients = {self._client(write.key) for write in writes}
        if len(clients) != 1 or len(writes) == 1:
            return super().put(writes)
        (client,) = clients
        lines = [_line(client, write) for write in writes]
        if marked:
            lines.append(b"gets %b\r\n" % client.check_key(writes[0].key, client.key_prefix))
        whole = False
        try:
            if client.sock is None:
                client._connect()
            # Connecting has set it, or raised.
            client.sock.sendall(b"".join(lines))  # pyright: ignore[reportOptionalMemberAccess]
            said = _Answers(client.sock)
            answers = [said.line() for _ in writes]
            if marked and (item := said.item()) and item.value == writes[0].value:
                self.mark = item.mark
            whole = True
        finally:
            if not whole:
                client.close()
        for answer in answers:
            if answer not in _ANSWERS:
                raise StoreError(answer[:200].decode(errors="replace"))
        return [answer == b"STORED" for answer in answers]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    reset = close


class PylibmcLink(Link):
    """
    Over pylibmc.

    Its reads take a dead or frozen server for an empty one, and only the next request to that
    server fails. So what a read did not find is asked for once more in a way that cannot lie.

    Keys go to it as bytes that are held here meanwhile: of a str it makes bytes of its own, which
    it lets go of before it is done, so that another thread's key may be read instead (1.6.3).
    """

    def __init__(self, servers: Sequence[Any], options: dict[str, Any]) -> None:
        self._lib = import_module("pylibmc")

        class Plain(self._lib.Client):  # type: ignore[misc, name-defined]  # of a module that may be missing
            def serialize(self, value: bytes) -> tuple[bytes, int]:
                return value, 0

            def deserialize(self, value: bytes, flags: int) -> bytes:
                return value

        self._class, self._servers, self._options = Plain, list(servers), options
        self._made: Any = None
        self._waits = 0

    @property
    def _client(self) -> Any:
        left = int((self.ends - clock()) * 1000)
        if left <= 0:
            raise StoreError("no answer in time")
        if self._made is None:
            theirs = self._options.get("behaviors") or {}
            behaviors = {
                **{name: value for name, value in theirs.items() if name not in _NOT_OURS},
                "cas": True,
                "tcp_nodelay": True,
                "no_block": False,
                "buffer_requests": False,
                "_noreply": False,
                "connect_timeout": left,
                "send_timeout": left * 1000,
                "receive_timeout": left * 1000,
                "_poll_timeout": left,
            }
            self._made = self._class(self._servers, **{**self._options, "behaviors": behaviors})
            self._waits = left
        if abs(self._waits - left) > 50:
            self._made.behaviors["_poll_timeout"] = self._waits = left
        return self._made

    def _read(self, keys: Sequence[str], sure: bool) -> dict[str, Item]:
        raw = {key.encode(): key for key in keys}
        if len(raw) == 1:
            found = {key: Item(*self._gets(key)) for key in raw}
            found = {key: item for key, item in found.items() if item.value is not None}
        else:
            found = {key: Item(value) for key, value in self._client.get_multi(list(raw)).items()}
        missing = [key for key in raw if key not in found]
        if len(self._servers) == 1:
            missing = missing[:1] if sure else []
        for key in missing:
            self._make_sure(key)
        return {raw[key]: item for key, item in found.items()}

    def _gets(self, key: bytes) -> tuple[bytes, int]:
        found: tuple[bytes, int] = self._client.gets(key)
        return found

    def _make_sure(self, key: bytes) -> None:
        self._client.append(key, b"")  # to what is not there: nothing is done, and no answer is an error

    def add(self, key: str, value: bytes, seconds: int) -> bool:
        raw = key.encode()
        return bool(self._client.add(raw, value, time=_expiry(seconds)))

    def cas(self, key: str, value: bytes, was: Item, seconds: int) -> bool:
        raw, mark = key.encode(), was.mark
        if mark is None:  # it was read with others, which brings none
            now, mark = self._gets(raw)
            if now is None:
                self._make_sure(raw)
            if now != was.value:
                return False
        try:
            return bool(self._client.cas(raw, value, mark, time=_expiry(seconds)))
        except (self._lib.NotFound, self._lib.DataDoesNotExist):
            return False

    def reset(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            made.disconnect_all()

    close = reset

    def _is_slow(self, error: Exception) -> bool:
        return "TIMEOUT" in str(error).upper()
