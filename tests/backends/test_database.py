"""DatabaseBackend on SQLite: the contract, and what is special to it."""

import asyncio
import copy
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from itertools import pairwise

import pytest
from django.db import connections
from django.test import override_settings

from django_claims import ReleaseResult, claim, claim_all, list_claims
from django_claims.backends import database_granting, memory, sql, sql_connections, sql_pools, tables
from django_claims.backends.base import AcquireRequest, Refusal, Released, ReleaseRequest
from django_claims.backends.database import DatabaseBackend, InMemoryDatabaseBackend
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, ClaimError, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.holders import this_holder
from django_claims.test import BackendContract
from django_claims.test.waiting import wait_until
from tests.backends.racing import race_on_sqlite

SQLITE = "django_claims.backends.database.DatabaseBackend"


def settings_of(**changes):
    options = changes.pop("options", {"database": "file"})
    return AliasSettings(**{"alias": "default", "backend": SQLITE, "options": options, **changes})


@pytest.fixture
def database_file(tmp_path):
    """A DATABASES alias 'file' on a file, for one test."""
    entry = copy.deepcopy(connections.settings["default"])
    entry.update(ENGINE="django.db.backends.sqlite3", NAME=str(tmp_path / "site.sqlite3"))
    connections.settings["file"] = entry
    yield tmp_path / "site.sqlite3"
    sql_connections.database_of("file").close()
    if "file" in connections.settings:
        connections["file"].close()
        del connections["file"]
    del connections.settings["file"]


@pytest.fixture
def backend(database_file):
    return DatabaseBackend(settings_of())


def request(name="job", token="t1", ttl_ms=60_000, over_fence=None):
    return AcquireRequest(name, token, ttl_ms, 20_000, this_holder(), over_fence)


class TestDatabaseBackendOnSQLite(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, database_file):
        self.backend = DatabaseBackend(settings_of())


class TestDatabaseBackendInMemory(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self):
        self.backend = DatabaseBackend.build(settings_of(options={}, alias="in-memory"))
        assert isinstance(self.backend, InMemoryDatabaseBackend)
        yield
        memory.forget("in-memory")


@pytest.fixture
def other(database_file):
    """A second backend on the same file, with connections of its own."""
    connections.settings["twin"] = copy.deepcopy(connections.settings["file"])
    yield DatabaseBackend(settings_of(options={"database": "twin"}))
    sql_connections.database_of("twin").close()
    del connections.settings["twin"]


def between(backend, verb, deed):
    """Have something happen right after the next look of a backend, and before what it does then."""
    look = getattr(backend, verb)

    def look_and_be_late(*args):
        setattr(backend, verb, look)
        found = look(*args)
        deed()
        return found

    setattr(backend, verb, look_and_be_late)


def test_what_another_takes_right_after_its_release_among_many_was_released(backend, other, monkeypatch):
    """One statement ends them all; a second look, since one of them was forced, finds the other taken."""
    backend.acquire([request("taken")])
    (grant,) = backend.acquire([request("forced")])
    looked, look = [], backend._look_at

    def look_at(*args):
        looked.append(args)
        if len(looked) == 2:
            other.acquire([request("taken", token="t2")])
        found = look(*args)
        if len(looked) == 1:
            other.force_release("forced", grant.fence)
        return found

    monkeypatch.setattr(backend, "_look_at", look_at)
    requests = [ReleaseRequest("taken", "t1", 1), ReleaseRequest("forced", "t1", 1)]

    assert backend.release(requests) == [Released.RELEASED, Released.GONE]
    assert other.held("taken", "t2")


def test_a_lease_that_ends_in_the_moment_of_its_release_among_many_was_not_released(backend, other):
    """One statement ends them all: it must not be believed to have ended what an operator or time had."""
    for name in ("kept", "forced", "expired", "taken"):
        (grant,) = backend.acquire([request(name, ttl_ms=60_000 if name in ("kept", "forced") else 30)])
        if name == "forced":
            fence = grant.fence

    def meanwhile():
        assert other.force_release("forced", fence)
        wait_until(lambda: other.lease("expired") is None and other.lease("taken") is None)
        assert isinstance(other.acquire([request("taken", token="t2")]), list)

    between(backend, "_look_at", meanwhile)
    answers = backend.release([ReleaseRequest(name, "t1") for name in ("kept", "forced", "expired", "taken")])

    assert answers == [Released.RELEASED, Released.GONE, Released.GONE, Released.NOT_OWNER]
    assert other.held("taken", "t2")


def test_a_lease_that_runs_out_as_its_token_asks_again_is_granted_anew_or_refused(backend, other):
    (first,) = backend.acquire([request(ttl_ms=30)])

    def meanwhile():
        wait_until(lambda: other.lease("job") is None)
        assert isinstance(other.acquire([request(token="t2")]), list)

    between(backend, "_look", meanwhile)
    answer = backend.acquire([request(ttl_ms=30)])

    assert isinstance(answer, Refusal)
    assert answer.lease.fence > first.fence
    assert other.held("job", "t2")


def test_leases_live_in_a_file_of_their_own_beside_the_database(backend, database_file):
    backend.acquire([request()])

    assert not database_file.exists()
    assert database_file.with_name("site.sqlite3-claims").exists()


def test_an_open_write_transaction_of_the_caller_neither_blocks_nor_undoes_a_lease(backend, database_file):
    with closing(sqlite3.connect(database_file, isolation_level=None)) as caller:
        caller.execute("CREATE TABLE x (y)")
        caller.execute("BEGIN EXCLUSIVE")
        caller.execute("INSERT INTO x VALUES (1)")

        granted = backend.acquire([request()])
        caller.execute("ROLLBACK")

    assert isinstance(granted, list)
    assert backend.held("job", "t1")


def test_a_busy_file_is_waited_out_and_then_unavailable_never_refused(database_file):
    backend = DatabaseBackend(settings_of(store_timeout=0.4))
    backend.acquire([request("other")])
    file = database_file.with_name("site.sqlite3-claims")
    with closing(sqlite3.connect(file, isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendUnavailable, match="locked"):
            backend.acquire([request()])
        timer = threading.Timer(0.1, lambda: None)
        timer.start()
        timer.join()
        rival.execute("ROLLBACK")

    assert isinstance(backend.acquire([request()]), list)


def test_a_busy_file_that_frees_in_time_costs_nothing_but_time(backend, database_file):
    backend.acquire([request("other")])
    file = database_file.with_name("site.sqlite3-claims")
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, lambda: rival.execute("ROLLBACK"))
        timer.start()

        granted = backend.acquire([request()])
        timer.join()

    assert isinstance(granted, list)


def test_a_file_that_was_removed_is_made_anew_and_its_old_ghost_not_used(backend, database_file):
    backend.acquire([request()])
    for file in database_file.parent.glob("site.sqlite3-claims*"):
        file.unlink()

    granted = backend.acquire([request(token="t2")])

    assert isinstance(granted, list)
    assert not backend.held("job", "t1")
    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"))) as file:
        assert file.execute("SELECT name FROM django_claims_lease").fetchall() == [("job",)]


def test_a_waiter_that_is_refused_writes_nothing(backend, database_file):
    backend.acquire([request()])
    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"))) as file:
        before = file.execute("PRAGMA data_version").fetchone()

        refused = backend.acquire([request(token="t2")])

        assert isinstance(refused, Refusal)
        assert file.execute("PRAGMA data_version").fetchone() == before


@pytest.mark.parametrize("old", [False, True], ids=["this SQLite", "an SQLite before 3.35"])
def test_who_had_a_name_last_is_granted_it_as_is_written(backend, database_file, monkeypatch, old):
    if old:
        for module in (database_granting, sql):
            monkeypatch.setattr(module, "can_tell", lambda connection: False)
    else:
        backend.acquire([request()])
        backend.release([ReleaseRequest("job", "t1")])
        monkeypatch.setattr(tables.LOOK, "fetch", None)

    (grant,) = backend.acquire([request(token="t2")])

    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"))) as raw:
        assert raw.execute("SELECT fence, acquired_us, token FROM django_claims_lease").fetchall() == [(*grant, "t2")]
    assert sql_connections.database_of("file").known == (set() if old else {"job"})


@pytest.mark.parametrize("emptied", [1, 99])
def test_a_stop_is_kept_although_the_table_is_emptied_right_behind_it(backend, database_file, monkeypatch, emptied):
    looked, look = [], backend._look

    def look_after_a_loss(connection, name):
        looked.append(name)
        if len(looked) % 2 == 0 and len(looked) <= 2 * emptied:  # the look behind a write
            with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"), isolation_level=None)) as file:
                file.execute("DELETE FROM django_claims_lease")
        return look(connection, name)

    monkeypatch.setattr(backend, "_look", look_after_a_loss)
    keep = {"keep": True, "fence": None, "reason": "", "by": "", "ttl_ms": None}

    if emptied > 1:
        with pytest.raises(BackendUnavailable, match="gone each time"):
            backend.set_flag("job", **keep)
    else:
        flag = backend.set_flag("job", **keep)
        assert flag is not None
        assert flag == backend.flag("job")


def test_a_fence_grows_when_the_databases_clock_was_set_back(backend, database_file):
    (first,) = backend.acquire([request()])
    ahead = first.fence + 10**15
    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"), isolation_level=None)) as file:
        file.execute("UPDATE django_claims_lease SET fence = ?, token = '', expires_us = 0", [ahead])

    (second,) = backend.acquire([request(token="t2")])

    assert second.fence == ahead + 1


def test_rows_that_nobody_used_for_a_day_are_forgotten_a_bounded_number_at_a_time(backend, database_file, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE", 20)
    monkeypatch.setattr(tables.SOME, "_compiled", {})
    for number in range(130):
        backend.acquire([request(f"old-{number}", ttl_ms=1000)])
    backend.set_flag("old-0", keep=True, fence=None, reason="", by="", ttl_ms=None)
    file = database_file.with_name("site.sqlite3-claims")
    counts = [130]
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("UPDATE django_claims_lease SET expires_us = expires_us - 90000000000")
        while counts[-1] > 1 and len(counts) < 200:
            monkeypatch.setattr(database_granting, "_clean_at", {})
            backend.acquire([request("new")])
            backend.release([ReleaseRequest("new", "t1")])
            counts.append(raw.execute("SELECT count(*) FROM django_claims_lease WHERE name LIKE 'old-%'").fetchone()[0])

    assert all(0 <= before - after <= 40 for before, after in pairwise(counts))
    assert counts[-1] == 1  # a kept stop flag keeps its row


def test_a_record_of_a_newer_format_is_unreadable_and_not_taken_over_before_its_time(backend, database_file):
    (granted,) = backend.acquire([request(ttl_ms=400)])
    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"), isolation_level=None)) as file:
        file.execute("UPDATE django_claims_lease SET format = 2")

    refused = backend.acquire([request(token="t2", over_fence=granted.fence)])

    assert refused.lease.state == "unreadable"
    assert wait_until(lambda: isinstance(backend.acquire([request(token="t3")]), list), 5)


@pytest.mark.parametrize("column", ["holder", "progress"])
def test_a_broken_record_is_unreadable_and_can_be_force_released(backend, database_file, column):
    backend.acquire([request()])
    with closing(sqlite3.connect(database_file.with_name("site.sqlite3-claims"), isolation_level=None)) as file:
        file.execute(f"UPDATE django_claims_lease SET {column} = '{{'")

    lease = backend.lease("job")

    assert (lease.state, lease.fence, lease.holder) == ("unreadable", 0, None)
    assert isinstance(backend.acquire([request(token="t2")]), Refusal)
    assert backend.force_release("job", 0)
    assert isinstance(backend.acquire([request(token="t2")]), list)


def test_statements_are_built_once(backend, monkeypatch):
    backend.acquire([request()])
    monkeypatch.setattr(tables.LOOK, "_build", None)

    assert backend.lease("job").name == "job"


def test_in_a_running_event_loop_the_sync_verbs_work_as_elsewhere(database_file):
    async def main():
        with claim("job") as hold:
            assert hold.renew()
            assert hold.verify()
            assert claim("job").acquire() is None
            with claim_all("a", "b"):
                assert list_claims().total == 3
        return hold.release()

    with override_settings(CLAIMS={"default": {"BACKEND": SQLITE, "OPTIONS": {"database": "file"}}}):
        assert asyncio.run(main()) is ReleaseResult.NOT_HELD
        assert list_claims().total == 0


def test_in_a_running_event_loop_without_a_thread_to_be_had_the_store_is_unavailable(backend, monkeypatch):
    def refused(*args, **kwargs):
        raise ClaimError("no thread")

    monkeypatch.setattr(sql_pools, "start", refused)

    async def main():
        with pytest.raises(BackendUnavailable, match="no thread"):
            backend.poll()

    asyncio.run(main())


TESTS = """
from django.test import TestCase
from django_claims import claim

class First(TestCase):
    def test(self):
        with claim("x") as hold:
            self.assertTrue(hold.verify())

class Second(First):
    pass
"""

PROJECT = """
import sys
from pathlib import Path
import django
from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(
    SECRET_KEY="for tests only",
    USE_TZ=True,
    INSTALLED_APPS=["django_claims", "django_claims.database"],
    DATABASES={"default": {
        "ENGINE": "django.db.backends.sqlite3", "NAME": str(Path("site.sqlite3")), "TEST": {"NAME": "test.sqlite3"},
    }},
    CLAIMS={"default": {"BACKEND": "django_claims.backends.database.DatabaseBackend"}},
)
if __name__ == "__main__":
    execute_from_command_line(sys.argv)
"""


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ((), set()),
        pytest.param(("--parallel", "2"), set(), marks=pytest.mark.long),
        pytest.param(("--keepdb",), {"test.sqlite3", "test.sqlite3-claims"}, marks=pytest.mark.long),
    ],
    ids=["alone", "parallel", "kept"],
)
def test_a_test_database_takes_the_file_of_its_leases_with_it(tmp_path, options, left):
    (tmp_path / "test_jobs.py").write_text(TESTS)
    (tmp_path / "manage.py").write_text(PROJECT)
    kept = tmp_path / "test.sqlite3.bak-claims"
    kept.touch()

    done = subprocess.run(
        [sys.executable, "manage.py", "test", *options], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr
    assert {path.name for path in tmp_path.glob("*sqlite3*")} == {kept.name, *left}


def test_connections_are_few_and_closed_when_asked(backend):
    backend.acquire([request()])
    threads = [threading.Thread(target=lambda: backend.lease("job")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    own = sql_connections.database_of("file")
    assert 1 <= len(own._idle) <= own.most

    backend.close()

    assert own._idle == []


def test_an_alias_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InvalidClaimsSetting, match=r"'nowhere' \(there is: 'default'"):
        DatabaseBackend(settings_of(options={"database": "nowhere"}))


@override_settings(INSTALLED_APPS=["django_claims"])
def test_without_its_app_it_says_which_line_to_add():
    with pytest.raises(InvalidClaimsSetting, match=r"add 'django_claims\.database' to INSTALLED_APPS"):
        DatabaseBackend(settings_of(options={}))


def test_a_database_that_gets_another_name_gets_another_backend(database_file, tmp_path):
    with override_settings(CLAIMS={"default": {"BACKEND": SQLITE, "OPTIONS": {"database": "file"}}}):
        with claim("job"):
            connections.settings["file"]["NAME"] = str(tmp_path / "test_site.sqlite3")
            other = claim_backends["default"]

            assert other.lease("job") is None

            connections.settings["file"]["NAME"] = str(database_file)

            assert claim_backends["default"].lease("job").name == "job"
        assert claim_backends["default"].lease("job") is None


@pytest.mark.parametrize("over", ["new", pytest.param("ended", marks=pytest.mark.long)])
def test_of_four_processes_one_wins_each_round(backend, database_file, over):
    rounds = 100
    if over == "ended":
        for number in range(rounds):
            backend.acquire([request(f"race-{number}", ttl_ms=1)])
    context = multiprocessing.get_context("spawn")
    barrier, granted = context.Barrier(4), context.Queue()
    racers = [
        context.Process(target=race_on_sqlite, args=(f"p{number}", rounds, barrier, granted, str(database_file)))
        for number in range(4)
    ]
    for racer in racers:
        racer.start()
    answers = [granted.get(timeout=60) for _ in range(4 * rounds)]
    for racer in racers:
        racer.join(30)

    winners = [sum(won for number, _, won in answers if number == round_) for round_ in range(rounds)]

    assert winners == [1] * rounds
