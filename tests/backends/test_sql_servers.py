"""DatabaseBackend on servers: faults, races and settings that PostgreSQL and MariaDB have in common."""

import asyncio
import contextlib
import multiprocessing
import threading
import time
import unittest
from collections import Counter

import pytest
from django.core.signals import request_finished
from django.db import connections, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings
from django.urls import path

from django_claims import LossReason, ReleaseResult, claim, claim_all, heartbeat, list_claims
from django_claims.backends import database_granting, tables
from django_claims.backends.base import (
    AcquireRequest,
    Refusal,
    Released,
    ReleaseRequest,
    RenewRequest,
)
from django_claims.backends.sql import now_on
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import this_holder
from django_claims.test.waiting import wait_until
from tests.backends import sql_children
from tests.backends.sql_servers import (
    DATABASE_BACKEND,
    GivenSQLServer,
    MariaDBServer,
    PostgreSQLServer,
    Site,
    server_or_skip,
    site,
)
from tests.helpers import tidy

__all__ = ["site"]  # a fixture

_tidy = pytest.fixture(autouse=True)(tidy)
spawn = multiprocessing.get_context("spawn")


@pytest.fixture(
    scope="module",
    params=[(PostgreSQLServer, "psycopg"), (MariaDBServer, "MySQLdb")],
    ids=["postgresql", "mariadb"],
)
def module_site(request, django_db_blocker):
    made = Site(server_or_skip(*request.param), "site")
    with django_db_blocker.unblock():
        made.migrate()
        yield made
        made.drop()


@pytest.fixture
def server(site):
    """A server that may be frozen and restarted."""
    if isinstance(site.server, GivenSQLServer):
        pytest.skip("not with a server that was given")
    return site.server


@pytest.fixture
def claims(site, settings):
    settings.CLAIMS = {"default": {"BACKEND": DATABASE_BACKEND, "OPTIONS": {"database": site.alias}}}


def request(name="job", token="t1", ttl_ms=60_000, over_fence=None):
    return AcquireRequest(name, token, ttl_ms, 20_000, this_holder(), over_fence)


VERBS = {
    "acquire": lambda backend: backend.acquire([request("new")]),
    "acquire of several": lambda backend: backend.acquire([request("several-1"), request("several-2")]),
    "renew": lambda backend: backend.renew([RenewRequest("job", "t1", 1, 60_000)]),
    "poll": lambda backend: backend.poll(),
    "held": lambda backend: backend.held("job", "t1"),
    "lease": lambda backend: backend.lease("job"),
    "leases": lambda backend: backend.leases(match="", page=1, per_page=100),
    "set_flag": lambda backend: backend.set_flag("job", keep=False, fence=None, reason="", by="", ttl_ms=None),
    "flag": lambda backend: backend.flag("job"),
    "flags": lambda backend: backend.flags(),
    "clear_flag": lambda backend: backend.clear_flag("job"),
    "force_release": lambda backend: backend.force_release("job", 1),
    "release": lambda backend: backend.release([ReleaseRequest("job", "t1")]),
}


class Rollback(Exception):
    """Ends a transaction."""


def test_in_a_running_event_loop_the_sync_verbs_work_as_elsewhere(site, claims):
    async def main():
        with claim("job") as hold:
            assert hold.renew()
            assert hold.verify()
            assert claim("job").acquire() is None
            with claim_all("a", "b"):
                assert list_claims().total == 3
        return hold.release()

    assert asyncio.run(main()) is ReleaseResult.NOT_HELD
    assert list_claims().total == 0


# Connections of our own.


def test_an_open_transaction_of_the_caller_neither_hides_nor_undoes_a_lease(site):
    backend = site.backend()
    with pytest.raises(Rollback), transaction.atomic(using=site.alias):
        with connections[site.alias].cursor() as cursor:
            cursor.execute("DELETE FROM django_migrations WHERE app = 'none'")
        backend.acquire([request()])
        seen = site.ask("SELECT name FROM django_claims_lease")
        raise Rollback

    assert seen == [("job",)]
    assert backend.held("job", "t1")


def test_connections_are_few_and_closed_when_asked(site):
    backend = site.backend()
    threads = [threading.Thread(target=lambda: [backend.poll() for _ in range(5)]) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 1 <= len(site.sessions()) <= 4

    backend.close()

    wait_until(lambda: not site.sessions(), 5)


def test_connections_are_closed_when_nobody_has_talked_for_a_while_also_without_any_hold(site, monkeypatch):
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 0.3)
    backend = site.backend()
    ends = clock() + 1
    backend.poll()
    before = site.sessions()
    while clock() < ends:
        backend.poll()

        assert set(before) <= set(site.sessions())  # that of the last question may be ending
    wait_until(lambda: not site.sessions(), 12)


def test_threads_take_and_release_at_the_same_time(site):
    answers = Counter()

    def work(number):
        backend = site.backend()
        for turn in range(10):
            granted = backend.acquire([request(f"job-{turn % 3}", f"t{number}")])
            if isinstance(granted, list):
                answers[backend.release([ReleaseRequest(f"job-{turn % 3}", f"t{number}")])[0]] += 1
            else:
                answers["refused"] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(answers.values()) == 120
    assert set(answers) <= {Released.RELEASED, "refused"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_session_that_the_server_ended_is_replaced(site, verb):
    backend = site.backend()
    backend.acquire([request()])
    assert site.end_sessions() >= 1

    VERBS[verb](backend)


def test_a_hold_outlives_its_session_and_all_connections_of_the_body(site, claims):
    with claim("job", ttl=6) as hold:
        site.end_sessions()
        connections[site.alias].ensure_connection()
        connections.close_all()
        request_finished.send(None)

        assert hold.verify()
        assert hold.renew()
        result = hold.release()

    assert result is ReleaseResult.RELEASED
    assert claim("job").available()


def test_a_hold_is_renewed_by_itself_though_its_sessions_are_ended_again_and_again(site, claims):
    with claim("job", ttl=2) as hold:
        ends = clock() + 2.5
        while clock() < ends:
            site.end_sessions()
            time.sleep(0.05)

        assert hold.held
        assert hold.verify()


def test_a_hold_survives_a_restart_of_the_server(site, server, claims):
    backend = site.backend(store_timeout=1)
    with claim("job", ttl=60) as hold:
        server.stop()
        with pytest.raises(BackendUnavailable):
            backend.held("job", "t1")
        assert hold.held
        server.start()

        assert hold.renew()
        assert isinstance(backend.acquire([request()]), Refusal)
    assert claim("job").available()


# Bounds.


def test_a_frozen_server_is_unavailable_within_the_time_for_each_verb(site, server):
    backend = site.backend(store_timeout=0.25)
    backend.acquire([request()])
    site.own.close()
    took = {}
    with server.frozen():
        for name, verb in VERBS.items():
            began = clock()
            with pytest.raises(BackendUnavailable):
                verb(backend)
            took[name] = clock() - began

    assert {name: seconds for name, seconds in took.items() if seconds > 1} == {}
    wait_until(lambda: answers(backend), 10)


def answers(backend):
    try:
        backend.poll()
    except BackendUnavailable:
        return False
    return True


@pytest.mark.parametrize("verb", ["acquire", "acquire of several", "renew", "release", "poll", "leases"])
def test_a_server_that_freezes_with_open_sessions_is_unavailable_within_the_time(site, server, verb):
    site.backend().acquire([request()])
    backend = site.backend(store_timeout=0.4)
    with server.frozen():
        began = clock()
        with pytest.raises(BackendUnavailable):
            VERBS[verb](backend)
        took = clock() - began

    assert 0.3 < took < 1.6  # and not 2 s, when mysqlclient would have given up by itself


def test_a_row_that_a_stranger_has_locked_is_unavailable_within_the_time_and_not_refused(site):
    backend = site.backend(store_timeout=0.4)
    backend.acquire([request(ttl_ms=1)])
    wait_until(lambda: backend.lease("job") is None, 5)
    with contextlib.closing(site.server.connect(site.name)) as stranger:
        stranger.cursor().execute("BEGIN")
        stranger.cursor().execute("UPDATE django_claims_lease SET heartbeat_ms = 1")
        began = clock()
        with pytest.raises(BackendUnavailable):
            backend.acquire([request(token="t2")])
        took = clock() - began
        stranger.cursor().execute("ROLLBACK")

    assert took < 1.2
    # As the core does with tokens whose outcome it does not know, until the server has ended what was cut.
    wait_until(
        lambda: backend.release([ReleaseRequest("job", "t2")]) and backend.acquire([request(token="t3")])[0] != "job", 5
    )


def test_sessions_end_statements_and_transactions_that_nobody_waits_for_any_more(site):
    backend = site.backend(store_timeout=5)
    backend.poll()
    if site.is_postgresql:
        names = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"]
        ask, bound = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names), {"4s"}
    else:
        names = ["max_statement_time", "innodb_lock_wait_timeout", "lock_wait_timeout", "idle_transaction_timeout"]
        ask, bound = "SELECT " + ", ".join(f"@@session.{name}" for name in names), {4}

    assert set(on_own(site, ask)) == bound


def on_own(site, statement):
    """Return the row that a statement gives over a connection of the backend's."""

    def verb(connection):
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()

    return site.own.talk(verb, 5)


def test_a_table_that_is_missing_is_named_with_what_makes_it(site):
    backend = site.backend()
    site.ask("ALTER TABLE django_claims_lease RENAME TO elsewhere")
    try:
        with pytest.raises(BackendUnavailable, match=r"manage\.py migrate --database=site"):
            backend.acquire([request()])
    finally:
        site.ask("ALTER TABLE elsewhere RENAME TO django_claims_lease")


# Settings of the site.


@pytest.mark.parametrize("level", ["read uncommitted", "repeatable read", "serializable"])
def test_the_isolation_level_of_the_site_is_not_ours(site, level):
    if site.is_postgresql:
        from django.db.backends.postgresql.psycopg_any import IsolationLevel

        option = IsolationLevel[level.replace(" ", "_").upper()]
        ask, answer = "SELECT current_setting('transaction_isolation')", "read committed"
    else:
        option, ask, answer = level, "SELECT @@session.tx_isolation", "READ-COMMITTED"
    site.configure(OPTIONS={"isolation_level": option})
    backend = site.backend()
    backend.acquire([request("a"), request("b")])

    assert on_own(site, ask) == (answer,)
    assert site.entry["OPTIONS"] == {"isolation_level": option}
    if level == "serializable":  # the one that refuses most
        assert race(site, 10) == [1] * 10


def test_routers_and_persistent_connections_mean_nothing_to_it(site):
    site.configure(CONN_MAX_AGE=0, ATOMIC_REQUESTS=True, AUTOCOMMIT=True, CONN_HEALTH_CHECKS=True)
    backend = site.backend()
    with override_settings(DATABASE_ROUTERS=["tests.backends.test_sql_servers.Astray"]):
        backend.acquire([request()])
        request_finished.send(None)

        assert backend.held("job", "t1")
    assert site.rows() == 1


@pytest.mark.parametrize("routed", [False, True], ids=["no router", "a router that sends all elsewhere"])
def test_a_request_in_a_transaction_that_is_rolled_back_keeps_its_lease_and_releases_it(site, claims, routed):
    site.ask("CREATE TABLE orders (number integer)")
    site.configure(ATOMIC_REQUESTS=True, CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=True)
    holds, seen = [], []

    def view(request):
        with connections[site.alias].cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (1)")
            holds.append(claim("kept").acquire())
            with claim("passing"):
                seen.append([name for (name,) in site.ask("SELECT name FROM django_claims_lease ORDER BY name")])
            assert connections[site.alias].in_atomic_block
        raise Rollback

    urls = type("urls", (), {"urlpatterns": [path("", view)]})
    routers = ["tests.backends.test_sql_servers.Astray"] if routed else []
    try:
        with override_settings(ROOT_URLCONF=urls, DATABASE_ROUTERS=routers, ALLOWED_HOSTS=["testserver"]):
            response = Client(raise_request_exception=False).get("/")
        assert response.status_code == 500
        assert site.ask("SELECT * FROM orders") in ([], ())
    finally:
        connections[site.alias].close()
        site.ask("DROP TABLE orders")

    assert seen == [["kept", "passing"]]
    assert [lease.name for lease in list_claims()] == ["kept"]
    assert holds[0].verify()
    assert holds[0].release()


class Astray:
    """A router that sends all models to another database."""

    def db_for_read(self, model, **hints):
        return "default"

    db_for_write = db_for_read


def test_the_databases_clock_decides_and_not_this_processes(site, monkeypatch):
    backend = site.backend()
    (first,) = backend.acquire([request()])
    real = time.time()
    for shift in (90, -90):
        monkeypatch.setattr(time, "time", lambda shift=shift: real + shift)
        backend.renew([RenewRequest("job", "t1", first.fence, 60_000)])

        assert isinstance(backend.acquire([request(token="t2")]), Refusal)
    assert 55 < backend.lease("job").remaining <= 60


def test_the_clock_is_that_of_utc_in_whatever_time_zone_the_server_is(site):
    site.backend().poll()

    now = site.own.talk(now_on, 5)

    assert abs(now / 1_000_000 - time.time()) < 10


# Rows.


def test_names_that_look_alike_are_different(site):
    backend = site.backend()
    names = [
        "job",
        "Job",
        "JOB",
        "jöb",
        "jo\N{COMBINING DIAERESIS}b",
        "ß",
        "ss",
        "\N{PARTY POPPER}",
        "\N{HAMMER}",
        "job-",
    ]
    for number, name in enumerate(names):
        assert isinstance(backend.acquire([request(name, f"t{number}")]), list), name

    page = backend.leases(match="", page=1, per_page=100)

    assert sorted(lease.name for lease in page.leases) == sorted(names)
    assert all(backend.held(name, f"t{number}") for number, name in enumerate(names))


def test_fences_grow_after_old_rows_were_cleaned_up(site, monkeypatch):
    backend = site.backend()
    fences = [backend.acquire([request(f"old-{number}", ttl_ms=1)])[0].fence for number in range(3)]
    fences.append(backend.acquire([request("old-3", "t3")])[0].fence)
    backend.release([ReleaseRequest("old-3", "t3")])  # what was ended has its time below 0
    site.ask(
        "UPDATE django_claims_lease SET expires_us = "
        "CASE WHEN expires_us < 0 THEN expires_us + 90000000000 ELSE expires_us - 90000000000 END"
    )
    monkeypatch.setattr(database_granting, "_clean_at", {})

    backend.acquire([request("new")])

    assert site.rows() == 1
    assert backend.acquire([request("old-2")])[0].fence > max(fences)


@pytest.mark.parametrize("end", ["release", "release of several", "force"])
def test_a_name_that_was_let_go_is_free_although_the_databases_clock_was_set_back(site, end):
    """As if by an hour: all that is written is an hour ahead of the clock."""
    backend = site.backend()
    backend.acquire([request("other", "t1")])
    (first,) = backend.acquire([request()])
    if end == "force":
        assert backend.force_release("job", first.fence)
    else:
        several = [ReleaseRequest("other", "t1")] if end == "release of several" else []
        assert backend.release([ReleaseRequest("job", "t1"), *several])[0] is Released.RELEASED
    site.ask(
        "UPDATE django_claims_lease SET fence = fence + 3600000000, expires_us = "
        "CASE WHEN expires_us < 0 THEN expires_us - 3600000000 ELSE expires_us + 3600000000 END"
    )

    assert backend.lease("job") is None
    (second,) = backend.acquire([request(token="t2")])

    assert second.fence == first.fence + 3600000000 + 1


def row_of(site):
    return site.ask("SELECT fence, acquired_us FROM django_claims_lease WHERE name = 'job'")[0]


def test_who_had_a_name_last_takes_it_without_a_look_and_is_told_what_was_written(site, monkeypatch):
    backend = site.backend()
    (new,) = backend.acquire([request()])
    assert row_of(site) == tuple(new)
    backend.release([ReleaseRequest("job", "t1")])
    monkeypatch.setattr(tables.LOOK, "fetch", None)

    (used,) = backend.acquire([request(token="t2")])

    assert row_of(site) == tuple(used)
    assert used.fence > new.fence


def test_a_fence_grows_when_the_databases_clock_was_set_back_whoever_had_the_name(site):
    backend = site.backend()
    for token in ("t1", "t2"):
        (grant,) = backend.acquire([request(token=token)])
        backend.release([ReleaseRequest("job", token)])
        ahead = grant.fence + 10**15
        site.ask("UPDATE django_claims_lease SET fence = %s", ahead)

    (known,) = backend.acquire([request(token="t3")])
    backend.release([ReleaseRequest("job", "t3")])
    site.own.known.clear()
    (looked,) = backend.acquire([request(token="t4")])

    assert (known.fence, looked.fence) == (ahead + 1, ahead + 2)
    assert row_of(site)[0] == looked.fence


def test_what_is_remembered_of_names_is_bounded(site, monkeypatch):
    monkeypatch.setattr(database_granting, "MOST_KNOWN", 3)
    backend = site.backend()

    for number in range(10):
        backend.acquire([request(f"job-{number}", token=f"t{number}")])
        assert len(site.own.known) <= 3
    backend.acquire([request("job-9", token="other")])

    assert "job-9" not in site.own.known


def test_a_waiter_that_is_refused_writes_nothing(site):
    backend = site.backend()
    backend.acquire([request(), request("other")])

    def written():
        if site.is_postgresql:
            return site.ask("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        return [row for row in site.ask("SHOW GLOBAL STATUS LIKE 'Innodb_rows_%'") if not row[0].endswith("read")]

    def nothing_written():
        before = written()
        for number in range(20):
            assert isinstance(backend.acquire([request(token=f"r{number}")]), Refusal)
            assert isinstance(backend.acquire([request("free"), request(token=f"r{number}")]), Refusal)
        return written() == before

    # The server has housework of its own to do at times.
    wait_until(nothing_written, 20)


# Races.


def race(site, rounds):
    """Return how many of four processes won each round."""
    barrier, granted = spawn.Barrier(4), spawn.Queue()
    racers = [
        spawn.Process(target=sql_children.race, args=(site.entry, f"p{number}", rounds, barrier, granted))
        for number in range(4)
    ]
    for racer in racers:
        racer.start()
    answers = [granted.get(timeout=60) for _ in range(4 * rounds)]
    for racer in racers:
        racer.join(30)
    return [sum(won for number, _, won in answers if number == round_) for round_ in range(rounds)]


@pytest.mark.parametrize("over", ["new", "ended"])
def test_of_four_processes_one_wins_each_round(site, over):
    if over == "ended":
        backend = site.backend()
        for number in range(100):
            backend.acquire([request(f"race-{number}", ttl_ms=1)])
        wait_until(lambda: not backend.leases(match="", page=1, per_page=1).leases, 5)

    assert race(site, 100) == [1] * 100


@pytest.mark.long
def test_eight_processes_on_three_names_raise_nothing_and_never_hold_together(site, tmp_path):
    reports = spawn.Queue()
    workers = [
        spawn.Process(
            target=sql_children.hammer, args=(site.entry, 3, str(tmp_path), number, bool(number % 2), reports)
        )
        for number in range(8)
    ]
    for worker in workers:
        worker.start()
    answers = [reports.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(30)

    assert [error for _, errors in answers for error in errors] == []
    assert sum(held for held, _ in answers) > 5  # how many, depends on what else the machine does
    assert site.rows() == 3


def test_a_holder_that_was_killed_is_followed_at_once(site, claims):
    taken = spawn.Queue()
    holder = spawn.Process(target=sql_children.hold_for_ever, args=(site.entry, "job", taken))
    holder.start()
    fence = taken.get(timeout=30)
    assert claim("job").acquire() is None

    holder.kill()
    holder.join(10)
    began = clock()
    hold = claim("job").acquire()

    assert hold is not None
    assert hold.fence > fence
    assert clock() - began < 2
    hold.release()


def test_a_forked_child_uses_no_connection_of_its_parent_and_harms_none(site):
    answers = spawn.Queue()
    parent = spawn.Process(target=sql_children.fork_and_go_on, args=(site.entry, answers))
    parent.start()

    assert answers.get(timeout=30) == (True, True, True)
    renewed, same_session, idle = answers.get(timeout=30)
    assert renewed
    assert same_session
    assert idle == 1
    parent.join(30)


# Test runs.


def test_the_test_runner_can_make_and_drop_its_database_with_claims_in_use(site, claims):
    creation = connections[site.alias].creation
    with claim("job"):
        name = creation.create_test_db(verbosity=0, autoclobber=True)
        try:
            assert claim("job").lease() is None
            with claim("other") as other:
                assert other.verify()
                assert site.rows() == 1  # in the site's own
            assert claim("other").available()
        finally:
            creation.destroy_test_db(site.name, verbosity=0)
        connections[site.alias].close()

        assert name == f"test_{site.name}"
        assert claim("job").lease().name == "job"


def run_case(case):
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case)(result)
    assert result.testsRun == 1
    assert result.errors + result.failures == []


def test_a_testcase_takes_and_releases_and_what_it_leaves_is_not_rolled_back(site, claims):
    left = []

    class Case(TestCase):
        databases = {site.alias}

        def test_claims(self):
            with claim("within"), transaction.atomic(using=site.alias):
                assert not claim("within").available()
            left.append(claim("left").acquire())

    run_case(Case)

    assert claim("within").available()
    assert left[0].verify()
    left[0].release()


def test_the_flush_of_a_transactiontestcase_takes_the_leases_with_it(site, claims):
    left = []

    class Case(TransactionTestCase):
        databases = {site.alias}
        available_apps = ["django_claims", "django_claims.database"]

        def test_claims(self):
            with claim("within"):
                assert not claim("within").available()
            left.append(claim("left").acquire())

    run_case(Case)

    assert site.rows() == 0
    assert left[0].renew() is False
    assert left[0].loss_reason is LossReason.FORGOTTEN
    left[0].release()
    with claim("left") as hold:
        assert hold.fence > left[0].fence
