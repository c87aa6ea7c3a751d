"""SQLite: leases in a file of their own beside the database, made at first use."""

from __future__ import annotations

import os
import queue
import time
from pathlib import Path
from typing import Any

from django.db import Error, OperationalError

from django_claims.backends.base import last_acts
from django_claims.backends.sql_pools import Database, Room, in_transaction
from django_claims.clock import clock
from django_claims.database.models import LeaseRow

FORK_SECONDS = 2.0


class DatabaseFile(Database):
    """
    The connection of this process to its SQLite file.

    Not the caller's file: an open write transaction there would block every renewal, and a
    renewal would break the caller's transaction.
    """

    # SQLite has one writer at a time, and mutexes of its own that no fork may find taken.
    most = 1

    def __init__(self, alias: str, settings: dict[str, Any]) -> None:
        super().__init__(alias, settings)
        test = settings.get("TEST") or {}
        if test.get("NAME") and str(test["NAME"]) == str(settings["NAME"]):
            _of_tests[str(settings["NAME"])] = self
        self._settings["NAME"] = f"{settings['NAME']}-claims"
        self._settings["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }

    def _start_anew(self) -> None:
        super()._start_anew()
        self._forking: Room | None = None
        self._file: tuple[int, int] | None = None

    def before_fork(self) -> None:
        """Wait, but not for ever, until no thread of ours is inside SQLite."""
        room = self._rooms.own()
        try:
            room.permits.get(timeout=FORK_SECONDS)
            self._forking = room
        except queue.Empty:
            self._forking = None

    def after_fork_in_parent(self) -> None:
        if self._forking is not None:
            self._forking.permits.put(None)
            self._forking = None

    def may_be_dead(self, error: Error) -> bool:
        return False  # busy for all of the time

    def _try(self, verb: Any, ends: float) -> Any:
        self._forget_lost_file()
        return super()._try(verb, ends)

    def _prepare(self, connection: Any, ends: float) -> None:
        left = max(ends - clock(), 0.001)
        if connection.connection is None:
            connection.settings_dict["OPTIONS"]["timeout"] = left
            self._open(connection, ends)
        elif abs(left - connection.settings_dict["OPTIONS"]["timeout"]) > 0.05:
            connection.settings_dict["OPTIONS"]["timeout"] = left
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
        if self._file is None:
            self._make_table(connection)

    def _open(self, connection: Any, ends: float) -> None:
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
            found = os.stat(self._settings["NAME"])  # noqa: PTH116 (twice in each run: a path object would cost more)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _make_table(self, connection: Any) -> None:
        """Make the table in our own file, unless another process has."""
        # Nothing but the text of the statements: run in one step with the look.
        with connection.schema_editor(collect_sql=True, atomic=False) as editor:
            editor.create_model(LeaseRow)
        with in_transaction(connection), connection.cursor() as cursor:
            if LeaseRow._meta.db_table not in connection.introspection.table_names(cursor):
                for statement in editor.collected_sql:
                    cursor.execute(statement)
        self._file = self._file_now()


_of_tests: dict[str, DatabaseFile] = {}


def _remove_of_tests() -> None:
    """At exit: a test runner has removed its databases, and those for its parallel processes; so are ours to be."""
    for name, database in _of_tests.items():
        database.close()
        test = Path(name)
        for ours in test.parent.glob("*-claims"):
            beside = ours.with_name(ours.name.removesuffix("-claims"))
            is_clone = beside.suffix == test.suffix and beside.stem.startswith(f"{test.stem}_")
            if (beside == test or is_clone) and not beside.exists():
                for end in ("", "-wal", "-shm"):
                    ours.with_name(ours.name + end).unlink(missing_ok=True)


last_acts.append(_remove_of_tests)
