"""
What a claim costs in a table, as ratios to a floor measured in the same run.

usage: python benchmarks/sql.py [sqlite | postgresql | mariadb | all]

Starts private servers that flush each commit to disk, as they do by default. The floor is what
no lease in a table can beat, on one connection of the same driver in autocommit: one INSERT and
one DELETE for a name that is new each time; one UPDATE and one UPDATE for a name that is there.
Ours is acquire and release, verbs of the backend alone. Rounds of all take turns, and the ratio
is the median over the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.conf import settings

from django_claims.clock import clock

ROUNDS = 45
TURNS = 20


def set_up(folder: Path) -> None:
    settings.configure(
        INSTALLED_APPS=["django_claims", "django_claims.database"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "bench.sqlite3")}},
        CLAIMS={"default": {"BACKEND": "django_claims.backends.database.DatabaseBackend"}},
    )
    django.setup()


def measure(what: dict[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """Return the seconds of one turn of each, in each round."""
    count = itertools.count()
    for work in what.values():
        for _ in range(20):
            work(next(count))
    taken: dict[str, list[float]] = {name: [] for name in what}
    for _ in range(ROUNDS):
        for name, work in what.items():
            began = clock()
            for _ in range(TURNS):
                work(next(count))
            taken[name].append((clock() - began) / TURNS)
    return taken


def bench(store: str, alias: str, text: str) -> None:
    from django_claims.backends.base import AcquireRequest, ReleaseRequest
    from django_claims.backends.database import DatabaseBackend
    from django_claims.backends.sql_connections import database_of
    from django_claims.backends.sql_servers import DatabaseServer
    from django_claims.conf import AliasSettings
    from django_claims.holders import this_holder

    backend = DatabaseBackend(AliasSettings(alias="default", backend="", options={"database": alias}))
    holder = this_holder()
    backend.poll()
    own = database_of(alias)
    floor = own._new()  # a connection like ours, with the same settings
    floor.ensure_connection()
    if isinstance(own, DatabaseServer):
        own._session(floor, 4.0)

    def run(statement: str, *params: object) -> None:
        with floor.cursor() as cursor:
            cursor.execute(statement, params)

    run(f"CREATE TABLE floor (digest {text} PRIMARY KEY, token {text}, note varchar(300), expires bigint)")
    run("INSERT INTO floor VALUES ('job', '', '', 0)")
    note = "x" * 250

    def floor_new(number: int) -> None:
        run("INSERT INTO floor VALUES (%s, %s, %s, %s)", f"new-{number}", "t1", note, number)
        run("DELETE FROM floor WHERE digest = %s AND token = %s", f"new-{number}", "t1")

    def floor_used(number: int) -> None:
        run("UPDATE floor SET token = 't1', note = %s, expires = %s WHERE digest = 'job' AND token = ''", note, number)
        run("UPDATE floor SET token = '', note = '', expires = 0 WHERE digest = 'job' AND token = 't1'")

    def ours(name: str) -> None:
        granted = backend.acquire([AcquireRequest(name, "t1", 180_000, 60_000, holder)])
        assert isinstance(granted, list)
        backend.release([ReleaseRequest(name, "t1")])

    seconds = measure(
        {
            "floor, new name": floor_new,
            "ours, new name": lambda number: ours(f"new-{number}"),
            "floor, used name": floor_used,
            "ours, used name": lambda number: ours("job"),
        }
    )
    for kind in ("new name", "used name"):
        bases, owns = seconds[f"floor, {kind}"], seconds[f"ours, {kind}"]
        low, high = statistics.median(bases) * 1e6, statistics.median(owns) * 1e6
        # Round by round, since the load of a machine comes and goes.
        ratio = statistics.median(own / base for base, own in zip(bases, owns, strict=True))
        print(f"{store:24} {kind:10} floor {low:7.0f} us   ours {high:7.0f} us   ratio {ratio:.2f}")
    floor.close()
    backend.close()


def main(which: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        set_up(Path(folder))
        if which in ("sqlite", "all"):
            bench("SQLite", "default", "varchar(64)")
        from tests.backends.sql_servers import MariaDBServer, PostgreSQLServer, Site

        servers: list[tuple[str, type, str]] = [("postgresql", PostgreSQLServer, "1"), ("mariadb", MariaDBServer, "1")]
        for name, kind, durable in servers:
            if which not in (name, "all"):
                continue
            for setting in ("off", "on") if name == "postgresql" else ("0", durable):
                kind.fsync = setting
                server = kind()
                site = Site(server, f"{name}-{setting}")
                try:
                    site.migrate()
                    flushed = "flushed" if setting in ("on", "1") else "not flushed"
                    bench(f"{kind.__name__.removesuffix('Server')}, {flushed}", site.alias, "varchar(64)")
                    site.drop()
                finally:
                    server.end()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
