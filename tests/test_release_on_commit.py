"""
Leaving a claim inside a transaction, on a database where others really see rows as they were.

    one                             the other
    begin; claim; read 0; write 1
    leave
                                    begin; claim; read 0   <- the row as it was
    commit: 1
                                    write 1; commit: 1     <- one of two is lost

With release_on_commit=True the other waits for the commit, and reads 1.
"""

import contextlib
import logging
import threading

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path

from django_claims import claim, transactions
from tests.backends.sql_servers import DATABASE_BACKEND, MariaDBServer, PostgreSQLServer, Site, server_or_skip
from tests.helpers import run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)
ALIAS = "counting"


@pytest.fixture(
    scope="module",
    params=[(PostgreSQLServer, "psycopg"), (MariaDBServer, "MySQLdb")],
    ids=["postgresql", "mariadb"],
)
def module_site(request, django_db_blocker):
    made = Site(server_or_skip(*request.param), ALIAS)
    with django_db_blocker.unblock():
        made.migrate()
        made.ask("CREATE TABLE counter (value integer)")
        yield made
        made.drop()


@pytest.fixture
def site(module_site, settings, monkeypatch):
    module_site.ask("DELETE FROM counter")
    module_site.ask("INSERT INTO counter VALUES (0)")
    settings.CLAIMS = {"default": {"BACKEND": DATABASE_BACKEND, "OPTIONS": {"database": ALIAS}}}
    monkeypatch.setattr(transactions, "_warned", set())
    yield module_site
    connections[ALIAS].close()


def read():
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT value FROM counter")
        return cursor.fetchone()[0]


def write(value):
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("UPDATE counter SET value = %s", [value])


def next_holder(seconds):
    """Return what the next holder reads, or None if the claim is not to be had in that time."""

    def take():
        try:
            with contextlib.ExitStack() as stack:
                hold = claim("counter").acquire(timeout=seconds)
                return None if hold is None else (stack.enter_context(hold), read())[1]
        finally:
            connections[ALIAS].close()

    return run_in_thread(take)


def test_without_it_the_next_holder_reads_rows_as_they_were_and_a_warning_says_so(site, caplog):
    with transaction.atomic(using=ALIAS):
        with claim("counter"):
            write(read() + 1)
        seen = next_holder(5)

    assert seen == 0
    assert [record.levelno for record in caplog.records if "release_on_commit=True" in record.getMessage()] == [
        logging.WARNING
    ]


def test_with_it_the_next_holder_waits_for_the_commit_and_reads_what_was_written(site):
    with transaction.atomic(using=ALIAS):
        with claim("counter", release_on_commit=True):
            write(read() + 1)
        before = next_holder(0.2)

    assert before is None
    assert next_holder(5) == 1


def test_a_rollback_frees_it_and_the_next_holder_reads_what_stood(site):
    with contextlib.suppress(ZeroDivisionError), transaction.atomic(using=ALIAS):
        with claim("counter", release_on_commit=True):
            write(read() + 1)
        raise ZeroDivisionError

    assert next_holder(5) == 0


def test_a_commit_that_the_database_refuses_frees_it(site):
    with pytest.raises(Exception, match=r"(?i)terminat|server|connection|gone"), transaction.atomic(using=ALIAS):
        with claim("counter", release_on_commit=True):
            write(read() + 1)
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()" if site.is_postgresql else "SELECT connection_id()")
            (number,) = cursor.fetchone()
        site.ask(f"SELECT pg_terminate_backend({number})" if site.is_postgresql else f"KILL {number}")
        read()

    assert next_holder(5) == 0


def increment(request):
    """Add one to the counter, under a claim, in the transaction that ATOMIC_REQUESTS makes of each request."""
    with claim("counter", release_on_commit=True).acquire(timeout=30):
        write(read() + 1)
    return HttpResponse(status=200 if connections[ALIAS].in_atomic_block else 500)


urlpatterns = [path("increment", increment)]


def test_two_clients_of_fifty_requests_each_make_it_a_hundred(site, settings, monkeypatch):
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connections.settings[ALIAS], "ATOMIC_REQUESTS", True)
    failures = []

    def client():
        handler = WSGIHandler()
        for _ in range(50):
            response = handler.get_response(RequestFactory().get("/increment"))
            if response.status_code != 200:
                failures.append(response.status_code)
            response.close()
        connections[ALIAS].close()

    clients = [threading.Thread(target=client) for _ in range(2)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()

    assert failures == []
    assert site.ask("SELECT value FROM counter") in ([(100,)], ((100,),))
