"""
Connections of our own to a database.

The caller's are of no use for leases: an open transaction would hide a lease from the others or
roll it back. Ours are apart from `connections`, in autocommit, few, and closed when this
process has had no hold for some seconds.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, connections
from django.db.utils import load_backend

from django_claims.clock import clock
from django_claims.database.models import LeaseRow

MOST_CONNECTIONS = 4
FORK_SECONDS = 2.0
T = TypeVar("T")


def is_in_memory(settings: dict[str, Any]) -> bool:
    """Say whether a DATABASES entry is an SQLite database without a file."""
    name = str(settings.get("NAME") or "")
    return settings["ENGINE"].endswith(".sqlite3") and (
        name in ("", ":memory:") or (name.startswith("file:") and ("mode=memory" in name or ":memory:" in name))
    )


class Database:
    """The connections of this process to one database."""

    def __init__(self, alias: str, settings: dict[str, Any]) -> None:
        self.alias = alias
        self.is_sqlite = settings["ENGINE"].endswith(".sqlite3")
        self._settings = self._own_settings(settings)
        self._start_anew()

    def _start_anew(self) -> None:
        self._lock = threading.Lock()
        # SQLite has one writer at a time, and mutexes of its own that no fork may find taken.
        self._free = threading.BoundedSemaphore(1 if self.is_sqlite else MOST_CONNECTIONS)
        self._forking = False
        self._idle: list[Any] = []
        self._file: tuple[int, int] | None = None

    def before_fork(self) -> None:
        """Wait, but not for ever, until no thread of ours is inside SQLite."""
        self._forking = self.is_sqlite and self._free.acquire(timeout=FORK_SECONDS)

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._forking = False
            self._free.release()

    def after_fork(self) -> None:
        """In the child: connections are the parent's. Neither use nor close them, and keep them referenced."""
        _inherited.append(self._idle)
        self._start_anew()

    def _own_settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        own = copy.deepcopy(settings)
        own["ATOMIC_REQUESTS"], own["AUTOCOMMIT"], own["CONN_MAX_AGE"] = False, True, None
        if self.is_sqlite:
            # A file of our own beside the database: an open write transaction in the caller's
            # would block every renewal, and a renewal would break the caller's transaction.
            own["NAME"] = f"{own['NAME']}-claims"
            own["OPTIONS"] = {
                "transaction_mode": "IMMEDIATE",
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            }
        else:
            own["OPTIONS"].pop("pool", None)
        return own

    def talk(self, verb: Callable[[Any], T], seconds: float) -> T:
        """
        Call verb(connection) within the time and return its answer.

        A connection that turns out to be dead is replaced once: each verb may be sent twice.
        Raises DatabaseError, also if no connection is free in time.
        """
        ends = clock() + seconds
        if not self._free.acquire(timeout=seconds):
            raise OperationalError(f"no free connection within {seconds:.1f} s")
        try:
            if self.is_sqlite:
                self._forget_lost_file()
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._on(self._new(), verb, ends)
            try:
                return self._on(connection, verb, ends)
            except (OperationalError, InterfaceError):
                if self.is_sqlite or clock() >= ends:
                    raise  # busy for all of the time, or too late
                self.close()
                return self._on(self._new(), verb, ends)
        finally:
            self._free.release()

    def _on(self, connection: Any, verb: Callable[[Any], T], ends: float) -> T:
        try:
            self._limit(connection, ends)
            answer = verb(connection)
        except BaseException:
            _close(connection)
            raise
        self._idle.append(connection)
        return answer

    def _new(self) -> Any:
        settings = copy.deepcopy(self._settings)
        connection = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, f"claims of {self.alias}")
        connection.inc_thread_sharing()  # lent to one thread at a time
        # Of its own: test runners put a guard there that is meant for the caller's connections.
        connection.ensure_connection = lambda: _connect(connection)
        return connection

    def _limit(self, connection: Any, ends: float) -> None:
        """Bound what the database may wait for."""
        if self.is_sqlite:
            left = max(ends - clock(), 0.001)
            if connection.connection is None:
                connection.settings_dict["OPTIONS"]["timeout"] = left
                self._open_file(connection, ends)
            elif abs(left - connection.settings_dict["OPTIONS"]["timeout"]) > 0.05:
                connection.settings_dict["OPTIONS"]["timeout"] = left
                with connection.cursor() as cursor:
                    cursor.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
            if self._file is None:
                self._make_table(connection)

    def _open_file(self, connection: Any, ends: float) -> None:
        """Open our file. Of many that do so first, all but one may find it busy, without being made to wait."""
        while True:
            try:
                connection.ensure_connection()
            except OperationalError:
                if clock() >= ends:
                    raise
                time.sleep(0.01)
            else:
                return

    def _forget_lost_file(self) -> None:
        """If our file was removed or replaced, open connections are to a ghost that nobody else sees."""
        if self._file is not None and self._file != self._file_now():
            self._file = None
            self.close()

    def _file_now(self) -> tuple[int, int] | None:
        try:
            found = Path(self._settings["NAME"]).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _make_table(self, connection: Any) -> None:
        """Make the table in our own file, unless another process has."""
        with self._lock:
            # Nothing but the text of the statements: run in one step with the look.
            with connection.schema_editor(collect_sql=True, atomic=False) as editor:
                editor.create_model(LeaseRow)
            with in_transaction(connection), connection.cursor() as cursor:
                if LeaseRow._meta.db_table not in connection.introspection.table_names(cursor):
                    for statement in editor.collected_sql:
                        cursor.execute(statement)
        self._file = self._file_now()

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        while self._idle:
            try:
                _close(self._idle.pop())
            except IndexError:
                return


@contextmanager
def in_transaction(connection: Any) -> Iterator[None]:
    """Make one step of several statements; undone if an exception leaves the block."""
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.set_autocommit(True)


def _connect(connection: Any) -> None:
    if connection.connection is None:
        with connection.wrap_database_errors:
            connection.connect()


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # a connection that fails to close is closed
        pass


_inherited: list[Any] = []
_lock = threading.Lock()
_databases: dict[tuple[str, str], Database] = {}


def database_of(alias: str) -> Database:
    """Return this process's connections to a database, as its settings are now."""
    settings = connections.settings[alias]
    key = (alias, str(settings["NAME"]))  # the test runner gives an alias another name
    with _lock:
        if key not in _databases:
            _databases[key] = Database(alias, settings)
        return _databases[key]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for database in _databases.values():
        database.after_fork()


def _before_fork() -> None:
    for database in _databases.values():
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in _databases.values():
        database.after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
