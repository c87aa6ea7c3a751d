"""Our own connections to each database that claims live in, through forks and test runs."""

from __future__ import annotations

import os
import threading
from typing import Any

from django.db import connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created

from django_claims.backends.cuts import cuts
from django_claims.backends.sql_files import DatabaseFile
from django_claims.backends.sql_pools import Database, vendor_of
from django_claims.backends.sql_servers import MySQL, PostgreSQL

KINDS: dict[str, type[Database]] = {"sqlite": DatabaseFile, "postgresql": PostgreSQL, "mysql": MySQL}

_lock = threading.RLock()  # reentrant: a signal handler may come here while its own thread is in here
_databases: dict[tuple[str, str], Database] = {}


def database_of(alias: str, seconds: float = 0.0) -> Database:
    """Return this process's connections to a database, as its settings are now, for verbs of so many seconds."""
    settings = connections.settings[alias]
    key = (alias, str(settings["NAME"]))  # the test runner gives an alias another name
    with _lock:
        if key not in _databases:
            _databases[key] = KINDS[vendor_of(settings["ENGINE"])](alias, settings)
        database = _databases[key]
        database.limit = max(database.limit, seconds)
    return database


def close_idle() -> None:
    for database in list(_databases.values()):
        database.close()


def _make_way(connection: Any, **about: Any) -> None:
    """Close what is idle before Django makes, clones or drops a database: PostgreSQL wants nobody in it."""
    if connection.alias == NO_DB_ALIAS:
        close_idle()


cuts.when_quiet.append(close_idle)
connection_created.connect(_make_way, dispatch_uid="django_claims.backends.sql_connections")


def _before_fork() -> None:
    for database in _databases.values():
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in _databases.values():
        database.after_fork_in_parent()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()
    for database in _databases.values():
        database.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
