"""DatabaseBackend on PostgreSQL: the contract, and what is special to it."""

import contextlib
import socket
import threading

import pytest
from django.db import connections

from django_claims.backends.base import AcquireRequest, Released, ReleaseRequest, Renewal, RenewRequest
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import this_holder
from django_claims.test import BackendContract
from tests.backends.sql_servers import GivenSQLServer, PostgreSQLServer, site, site_fixture

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
    pytest.importorskip("psycopg_pool")
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
