"""DatabaseBackend on MariaDB: the contract, and what is special to it."""

import subprocess
import sys

import pytest
from django.db import OperationalError

from django_claims.test import BackendContract
from tests.backends.sql_servers import MariaDBServer, site, site_fixture
from tests.conftest import import_or_missing

__all__ = ["site"]  # a fixture

module_site = site_fixture(MariaDBServer, "mariadb", "MySQLdb")


class TestDatabaseBackendOnMariaDB(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, site):
        self.backend = site.backend()


def test_the_clock_does_not_jump_when_the_servers_time_zone_changes_to_winter_time(site):
    backend = site.backend()
    backend.poll()

    assert site.ask("SELECT @@session.time_zone") in ([("+02:00",)], [("SYSTEM",)])
    assert site.own.talk(lambda connection: ask(connection, "SELECT @@session.time_zone"), 5) == "+00:00"


def ask(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_a_dead_lock_is_tried_anew_and_reaches_no_caller(site):
    backend = site.backend()
    errors = []

    def verb(connection):
        if not errors:
            errors.append(OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction"))
            raise errors[0]
        return ask(connection, "SELECT 1")

    backend.poll()
    before = site.sessions()

    assert site.own.talk(verb, 5) == 1
    assert site.sessions() == before


@pytest.mark.long
def test_pymysql_in_place_of_mysqlclient_makes_no_difference(site):
    """In a process of its own: one process has one MySQLdb."""
    import_or_missing("pymysql")
    files = ["tests/backends/test_mariadb.py", "tests/backends/test_sql_servers.py"]
    chosen = "not long and not postgresql and not pymysql and not races and not isolation"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.backends.with_pymysql", "-k", chosen, *files],
        capture_output=True,
        text=True,
        timeout=115,
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
