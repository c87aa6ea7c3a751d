"""
Connections of our own to a database.

The caller's are of no use for leases: an open transaction would hide a lease from the others or
roll it back. Ours are apart from `connections`, in autocommit, few, and closed when this
process has had no hold for some seconds. `pool`, CONN_MAX_AGE, ATOMIC_REQUESTS and
DATABASE_ROUTERS mean nothing to them.

Tests: what a claim writes is committed at once, so TestCase does not roll it back; a lease that
a test leaves is there in the next. TransactionTestCase flushes the table of leases with all
others: who holds a claim then is told that it is FORGOTTEN. Before Django makes, clones or drops
a database, idle connections to it are closed.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import queue
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from django.db import Error, InterfaceError, OperationalError
from django.db.utils import load_backend

from django_claims.backends.shared import end_all
from django_claims.clock import clock
from django_claims.exceptions import ClaimError
from django_claims.hubs import PerHub
from django_claims.offload import start

T = TypeVar("T")


@functools.cache
def vendor_of(engine: str) -> str:
    """Return the kind of database of an ENGINE: 'sqlite', 'postgresql', 'mysql' or another."""
    return str(load_backend(engine).DatabaseWrapper.vendor)


def is_in_memory(settings: dict[str, Any]) -> bool:
    """Say whether a DATABASES entry is an SQLite database without a file."""
    name = str(settings.get("NAME") or "")
    without_file = name in ("", ":memory:") or (
        name.startswith("file:") and ("mode=memory" in name or ":memory:" in name)
    )
    return without_file and vendor_of(settings["ENGINE"]) == "sqlite"


def is_conflict(error: BaseException) -> bool:
    """Say whether a statement was undone in favour of another's (dead-lock, late snapshot): try it anew."""
    state = getattr(error.__cause__, "sqlstate", None) or getattr(error.__cause__, "pgcode", None)
    return state in ("40001", "40P01") or (bool(error.args) and error.args[0] in (1020, 1213))


class Room:
    """What is idle, and who may use it."""

    def __init__(self, most: int) -> None:
        # Permits in a queue of C, since an exception of a signal handler breaks a semaphore. It may still lose
        # a permit, between two instructions: who is inside tells that from a crowd.
        self.permits: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(most):
            self.permits.put(None)
        self.inside: set[object] = set()
        self.idle: list[Any] = []


class Database:
    """The connections of this process to one database."""

    most = 4

    def __init__(self, alias: str, settings: dict[str, Any]) -> None:
        self.alias = alias
        self.limit = 0.0  # the longest that anybody waits for one verb
        self._settings = copy.deepcopy(settings)
        self._settings.update(ATOMIC_REQUESTS=False, AUTOCOMMIT=True, CONN_MAX_AGE=None)
        self._start_anew()

    def _start_anew(self) -> None:
        self._rooms = PerHub(lambda: Room(self.most))
        self.known: set[str] = set()  # names that were granted to this process last

    @property
    def _idle(self) -> list[Any]:
        return self._rooms.own().idle

    def before_fork(self) -> None:
        """Make ready for a copy of this process."""

    def after_fork_in_parent(self) -> None:
        """Go on after a fork."""

    def after_fork(self) -> None:
        """In the child: connections are the parent's. Neither use nor close them, and keep them referenced."""
        _inherited.append(self._rooms)
        self._start_anew()

    def talk(self, verb: Callable[[Any], T], seconds: float) -> T:
        """
        Call verb(connection) within the time and return its answer.

        A connection that turns out to be dead is replaced once: each verb may be sent twice.
        Raises DatabaseError, also if no connection is free in time. Inside a running event loop, where
        Django refuses to talk to a database, another thread does it while this one waits.
        """
        if asyncio._get_running_loop() is None:
            return self._talk(verb, seconds)
        try:
            talking = start(lambda: self._talk(verb, seconds), kind="ask")
        except ClaimError as error:  # no thread to be had
            raise OperationalError(str(error)) from error
        return talking.result()

    def _talk(self, verb: Callable[[Any], T], seconds: float) -> T:
        ends = clock() + seconds
        room = self._rooms.own()
        try:
            room.permits.get(timeout=seconds)
        except queue.Empty:
            if room.inside:
                raise OperationalError(f"no free connection within {seconds:.1f} s") from None
            ends = clock() + seconds  # the permit was lost: go on, and put it back
        me = object()
        try:
            room.inside.add(me)
            while True:
                try:
                    return self._try(verb, ends)
                except Error as error:
                    if not is_conflict(error) or clock() >= ends:
                        raise
                time.sleep(random.uniform(0.001, 0.02))
        finally:
            room.inside.discard(me)
            room.permits.put(None)

    def _try(self, verb: Callable[[Any], T], ends: float) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._on(self._new(), verb, ends)
        try:
            return self._on(connection, verb, ends)
        except (OperationalError, InterfaceError) as error:
            if is_conflict(error) or not self.may_be_dead(error) or clock() >= ends:
                raise
        self.close()  # the others have most likely died with it
        return self._on(self._new(), verb, ends)

    def may_be_dead(self, error: Error) -> bool:
        """Say whether an error may mean that the connection has gone, so that a new one may help."""
        return True

    def _on(self, connection: Any, verb: Callable[[Any], T], ends: float) -> T:
        try:
            self._prepare(connection, ends)
            answer = verb(connection)
        except BaseException as error:
            self._done_with(connection)
            if is_conflict(error):
                self._idle.append(connection)
            else:
                close_quietly(connection)
            raise
        self._done_with(connection)
        self._idle.append(connection)
        return answer

    def _new(self) -> Any:
        settings = copy.deepcopy(self._settings)
        connection: Any = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, f"claims of {self.alias}")
        connection.inc_thread_sharing()  # lent to one thread at a time
        # Of its own: test runners put a guard there that is meant for the caller's connections.
        connection.ensure_connection = lambda: connect(connection)
        return connection

    def _prepare(self, connection: Any, ends: float) -> None:
        """Connect if need be, and bound what the database may take for what comes."""
        raise NotImplementedError

    def _done_with(self, connection: Any) -> None:
        """Take the bound away."""

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        for room in self._rooms.all():
            end_all(room.idle, lambda connection: connection.close())


@contextmanager
def in_transaction(connection: Any) -> Iterator[None]:
    """Make one step of several statements; undone if an exception leaves the block."""
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(Error):  # the connection has gone, and its transaction with it; what was raised says so
            connection.rollback()
            connection.set_autocommit(True)
        raise
    connection.set_autocommit(True)


def connect(connection: Any) -> None:
    if connection.connection is None:
        with connection.wrap_database_errors:
            connection.connect()


def close_quietly(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # a connection that fails to close is closed
        pass


_inherited: list[Any] = []
