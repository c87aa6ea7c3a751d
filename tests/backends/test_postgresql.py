"""DatabaseBackend on PostgreSQL: the contract, and what is special to it."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from django.db import connections

from django_claims.backends.base import AcquireRequest, Released, ReleaseRequest, Renewal, RenewRequest
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import this_holder
from django_claims.test import BackendContract
from django_claims.test.waiting import wait_until
from tests.backends.sql_servers import GivenSQLServer, PostgreSQLServer, site, site_fixture
from tests.conftest import import_or_missing, missing
from tests.servers import free_port

__all__ = ["site"]  # a fixture

module_site = site_fixture(PostgreSQLServer, "postgresql", "psycopg")


class TestDatabaseBackendOnPostgreSQL(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, site):
        self.backend = site.backend()


def request(name="job", token="t1", ttl_ms=60_000):
    return AcquireRequest(name, token, ttl_ms, 20_000, this_holder())


def use(backend, turns=1):
    for turn in range(turns):
        assert isinstance(backend.acquire([request(f"job-{turn}")]), list)
        (renewed,) = backend.renew([RenewRequest(f"job-{turn}", "t1", 1, 60_000)])
        assert renewed.outcome is Renewal.RENEWED
        assert backend.release([ReleaseRequest(f"job-{turn}", "t1")]) == [Released.RELEASED]


def test_the_pool_of_the_site_is_neither_used_nor_used_up(site):
    import_or_missing("psycopg_pool")
    site.configure(OPTIONS={"pool": {"min_size": 1, "max_size": 1, "timeout": 5}}, CONN_MAX_AGE=0)
    backend = site.backend()
    wrapper = connections[site.alias]
    try:
        with wrapper.cursor():  # all that the pool has
            use(backend)
            assert len(site.sessions()) == 2
    finally:
        wrapper.close()
        wrapper.close_pool()

    assert site.entry["OPTIONS"]["pool"]


def test_server_side_binding_and_a_socket_in_a_folder_make_no_difference(site):
    options = {"OPTIONS": {"server_side_binding": True, "application_name": "site"}}
    if not isinstance(site.server, GivenSQLServer):
        options["HOST"] = str(site.server.directory)
    site.configure(**options)

    use(site.backend())

    assert ("site",) in site.ask("SELECT application_name FROM pg_stat_activity WHERE datname = %s", site.name)


@pytest.fixture
def pooler_port(site):
    """A PgBouncer that hands each transaction to whichever of two sessions is free."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("no pgbouncer on PATH")
    port, where = free_port(), site.server.settings
    password = f" password='{where['PASSWORD']}'" if where["PASSWORD"] else ""
    folder = Path(tempfile.mkdtemp(prefix="claims-pooler-"))
    (folder / "ini").write_text(
        f"""[databases]
{site.name} = host={where["HOST"]} port={where["PORT"]} user='{where["USER"]}'{password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
ignore_startup_parameters = extra_float_digits
"""
    )
    as_user = []
    if os.getuid() == 0:
        folder.chmod(0o755)
        as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    process = subprocess.Popen(
        [*as_user, program, "-q", str(folder / "ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: can_connect(port), 10, what="pgbouncer")
        yield port
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder)


def can_connect(port):
    with contextlib.suppress(OSError), contextlib.closing(socket.create_connection(("127.0.0.1", port), 1)):
        return True
    return False


@pytest.mark.parametrize("told", [True, False])
def test_through_a_transaction_pooler_leases_work_and_no_setting_is_left_to_others(site, pooler_port, told):
    default = site.ask("SHOW statement_timeout")
    site.configure(HOST="127.0.0.1", PORT=str(pooler_port), DISABLE_SERVER_SIDE_CURSORS=told)
    backend = site.backend()
    failures = []

    def work(number):
        for turn in range(15):
            name = f"job-{number}-{turn}"
            try:
                granted = backend.acquire([request(name), request(f"{name}-2")])
                (renewed,) = backend.renew([RenewRequest(name, "t1", granted[0].fence, 60_000)])
                released = backend.release([ReleaseRequest(name, "t1"), ReleaseRequest(f"{name}-2", "t1")])
                if renewed.outcome is not Renewal.RENEWED or released != [Released.RELEASED] * 2:
                    failures.append((name, renewed, released))
            except BackendUnavailable as error:
                failures.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {site.own.talk(show, 5)[0] for _ in range(5)}
    site.own.close()

    assert failures == []
    assert found == {value for (value,) in default}


def test_behind_a_pooler_it_sets_nothing_that_others_would_find_and_conflicts_are_tried_anew(site):
    site.ask(f"ALTER DATABASE {site.name} SET default_transaction_isolation = 'serializable'")
    site.configure(DISABLE_SERVER_SIDE_CURSORS=True)
    errors, granted = [], []

    def work(number):
        backend = site.backend()
        try:
            for turn in range(25):
                if isinstance(backend.acquire([request("job", f"t{number}-{turn}")]), list):
                    granted.append(number)
                    backend.release([ReleaseRequest("job", f"t{number}-{turn}")])
        except BackendUnavailable as error:
            errors.append(str(error))

    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with contextlib.closing(site.server.connect(site.name)) as fresh:
            default = fresh.execute("SHOW statement_timeout").fetchone()
        own = site.own.talk(show, 5)
    finally:
        site.ask(f"ALTER DATABASE {site.name} RESET default_transaction_isolation")

    assert errors == []
    assert granted
    assert own == (*default, "serializable")


def show(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout'), current_setting('transaction_isolation')")
        return cursor.fetchone()


def test_a_database_is_cloned_for_parallel_tests_though_claims_are_in_use(site):
    creation = connections[site.alias].creation
    creation.create_test_db(verbosity=0, autoclobber=True)
    clone = creation.get_test_db_clone_settings("1")["NAME"]
    try:
        use(site.backend())
        creation.clone_test_db("1", verbosity=0, autoclobber=True)
        connections.settings[site.alias]["NAME"] = clone
        use(site.backend())
    finally:
        connections.settings[site.alias]["NAME"] = f"test_{site.name}"
        creation.destroy_test_db(verbosity=0, suffix="1")
        creation.destroy_test_db(site.name, verbosity=0)
        connections[site.alias].close()

    assert site.ask("SELECT datname FROM pg_database WHERE datname LIKE %s", f"test_{site.name}%") == []


def test_connecting_to_hosts_of_which_the_first_is_silent_reaches_the_second(site):
    if isinstance(site.server, GivenSQLServer):
        pytest.skip("not with a server that was given")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        site.configure(HOST="127.0.0.1,127.0.0.1", PORT=f"{port},{site.server.port}")

        use(site.backend(store_timeout=5))


@pytest.mark.long
def test_psycopg2_in_place_of_psycopg_3_makes_no_difference(site):
    """In a process of its own: Django makes its choice once."""
    if not importlib.util.find_spec("psycopg2"):
        missing("no psycopg2 installed")
    files = ["tests/backends/test_postgresql.py", "tests/backends/test_sql_servers.py"]
    chosen = "not mariadb and (TestDatabase or pooler or session or clock or without_a_look)"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.backends.with_psycopg2", "-k", chosen, *files],
        capture_output=True,
        text=True,
        timeout=115,
    )

    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
