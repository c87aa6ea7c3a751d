"""
Links to a cache: read, add and compare-and-set, each of which says so when it cannot.

Django's own way to memcached makes "down" look like "not stored" and "not there", and may
hang or go over to another server. So the clients here are the cache's by class, servers and
options, but ours by number: bounded in time, one verb at a time, never used after fork, and
never deserialising a value.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from django_claims.backends.shared import OnePerKey, end_all
from django_claims.clock import clock
from django_claims.hubs import PerHub

GONE = -1
"""An expiry in the past: what is set with it is deleted."""


class StoreError(Exception):
    """The store did not answer, or what it said is of no use."""


class Item(NamedTuple):
    """A value as it was read; `mark` is what a compare-and-set of it needs, if the reading brought that."""

    value: bytes
    mark: Any = None
    marks: dict[tuple[str, str], Any] = {}
    """By key and token: marks of leases as they were granted, for a release in one round trip. May be stale."""


class Write(NamedTuple):
    """What to store: by add if nothing was there, else by cas. 0 seconds: for good."""

    key: str
    value: bytes
    was: Item | None
    seconds: int


class Link:
    """One verb's way to the store. Whatever goes wrong is an exception, and the link is then closed."""

    exact = True
    """Whether cas() compares and sets in one step of the server's."""
    ends = 0.0
    is_new = True
    idle_since = 0.0
    mark: Any = None
    marks: dict[tuple[str, str], Any] = {}
    """By key and token: marks of leases as they were granted, for a release in one round trip. May be stale."""

    def read(self, keys: Sequence[str], *, sure: bool = True) -> dict[str, Item]:
        """Return what is there. `sure=False`: the caller will write to all that is not."""
        try:
            return self._read(keys, sure or clock() - self.idle_since > 1)
        except Exception as error:
            # What was left idle may have been closed by the server: ask again. Reading comes first in each verb.
            if self.is_new or clock() > self.ends or self._is_slow(error):
                raise
            self.reset()
            return self._read(keys, True)
        finally:
            self.is_new = True

    def remove_marked(self, key: str, mark: Any) -> bool | None:
        """Delete what was marked when it was stored; False if it has changed, None if nobody can tell."""
        try:
            return self.put([Write(key, b"", Item(b"", mark), GONE)])[0]
        except Exception as error:
            if self.is_new or clock() > self.ends or self._is_slow(error):
                raise
            self.reset()
            return None
        finally:
            self.is_new = True

    def hurry(self) -> None:
        """Raise StoreError if the time is up."""
        if clock() > self.ends:
            raise StoreError("others were faster at each try, or the store answers nonsense")

    def _read(self, keys: Sequence[str], sure: bool) -> dict[str, Item]:
        raise NotImplementedError

    def add(self, key: str, value: bytes, seconds: int) -> bool:
        """Store a value if there is none. 0 seconds: for good."""
        raise NotImplementedError

    def cas(self, key: str, value: bytes, was: Item, seconds: int) -> bool:
        """Store a value if what was read is still there."""
        raise NotImplementedError

    def put(self, writes: Sequence[Write], *, marked: bool = False) -> list[bool]:
        """
        Do all of the writes in their order, whatever becomes of each, and say which were done.

        `marked`: leave in `mark` what a later cas of the first needs, if that costs nothing.
        """
        return [
            self.add(key, value, seconds) if was is None else self.cas(key, value, was, seconds)
            for key, value, was, seconds in writes
        ]

    def reset(self) -> None:
        """Start anew, with a new connection."""

    def close(self) -> None:
        """Close all connections."""

    def _is_slow(self, error: Exception) -> bool:
        return isinstance(error, TimeoutError)


class CacheLink(Link):
    """
    Over a third party's cache, of which only add() is trusted.

    Compare-and-set is a comparison and a set, under a lock that is an add: one writer of ours
    at a time. The lock does not keep out what an expiry makes room for, so leases are touched
    only while their TTL, a second less than the store keeps them, has not run out.
    """

    exact = False
    LOCK_SECONDS = 10

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def _call(self, verb: str, *args: Any) -> Any:
        self.hurry()
        try:
            answer = getattr(self._cache, verb)(*args)
        except Exception as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        if answer is None and verb == "add":
            raise StoreError("add() gave neither True nor False")
        return answer

    def _read(self, keys: Sequence[str], sure: bool) -> dict[str, Item]:
        return {key: Item(_bytes(value), value) for key, value in self._call("get_many", keys).items()}

    def add(self, key: str, value: bytes, seconds: int) -> bool:
        return bool(self._call("add", key, value.decode(), seconds or None))

    def cas(self, key: str, value: bytes, was: Item, seconds: int) -> bool:
        lock = f"{key}:lock"
        while not self._call("add", lock, "1", self.LOCK_SECONDS):
            time.sleep(0.005)
        held_until = clock() + 0.5
        try:
            if self._call("get", key) != was.mark:
                return False
            if clock() > held_until:
                raise StoreError("it took too long to compare and set safely")
            if seconds == GONE:
                self._call("delete", key)
            else:
                self._call("set", key, value.decode(), seconds or None)
            return True
        finally:
            try:
                self._cache.delete(lock)
            except Exception:  # it ends by itself
                pass


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode(errors="replace")
    return value if isinstance(value, bytes) else b"\0"


class Links:
    """The idle links of a process to one cache, shared by its threads."""

    def __init__(self, make: Callable[[], Link], errors: tuple[type[Exception], ...]) -> None:
        self.errors: tuple[type[Exception], ...] = (StoreError, *errors)
        self._make = make
        self._shelf: PerHub[deque[Link]] = PerHub(deque)
        self._marks: dict[tuple[str, str], Any] = {}
        _all.add(self)

    def take(self, seconds: float) -> Link:
        try:
            link = self._shelf.own().pop()
            link.is_new = False
        except IndexError:
            link = self._make()
            link.idle_since = clock()
            link.marks = self._marks
        link.ends = clock() + seconds
        link.mark = None
        return link

    def give(self, link: Link) -> None:
        link.idle_since = clock()
        self._shelf.own().append(link)

    def close(self) -> None:
        for idle in self._shelf.all():
            end_all(idle, lambda link: link.close())


_all: weakref.WeakSet[Links] = weakref.WeakSet()
_inherited: list[Any] = []
shared: OnePerKey[Links] = OnePerKey()


def _after_fork_in_child() -> None:
    """The sockets are the parent's: neither use nor close them, since a client says goodbye on what it closes."""
    for links in list(_all):
        if any(links._shelf.all()):
            _inherited.append(links._shelf)
            _keep_for_ever(links._shelf)
        links._shelf = PerHub(deque)


def _keep_for_ever(thing: Any) -> None:
    """See that not even the end of the interpreter deletes a thing."""
    try:
        import_module("ctypes").pythonapi.Py_IncRef(import_module("ctypes").py_object(thing))
    except (ImportError, AttributeError):  # another Python, which has no pylibmc
        pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
