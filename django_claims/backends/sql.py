"""Statements that the ORM builds once, with places in them that are filled at each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from django.db import models
from django.db.models import sql

from django_claims.database.models import LeaseRow


class Now(models.Func):
    """The database's clock as microseconds after 1970, at the statement and not at the transaction."""

    output_field = models.BigIntegerField()  # pyright: ignore[reportAssignmentType]
    arity = 0

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)", []

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint", []

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)", []


def now_on(connection: Any) -> int:
    """Ask the database for its time."""
    expression, _ = getattr(Now(), f"as_{connection.vendor}")(None, connection)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {expression}")
        return int(cursor.fetchone()[0])


class Slot(models.Expression):
    """A place in a compiled statement, filled by name when it runs."""

    def __init__(self, name: str, output_field: models.Field[Any, Any] | None = None) -> None:
        super().__init__(output_field=output_field or models.BigIntegerField())
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "%s", [self]


def text(name: str) -> Slot:
    """Return a place for text."""
    return Slot(name, models.CharField())


def slots(name: str, count: int) -> list[Slot]:
    """Return places for a list of text, named name0, name1, …"""
    return [text(f"{name}{number}") for number in range(count)]


def numbered(name: str, values: Sequence[str]) -> dict[str, str]:
    """Return what fills slots()."""
    return {f"{name}{number}": value for number, value in enumerate(values)}


class Statement:
    """A statement with places in it, compiled once for each kind of database."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._compiled: dict[str, tuple[str, Sequence[Any]]] = {}

    def on(self, connection: Any, **values: Any) -> tuple[str, list[Any]]:
        """Return SQL and parameters."""
        if connection.vendor not in self._compiled:
            compiler = self._build().get_compiler(connection=connection)
            compiled = compiler.as_sql()
            if isinstance(compiled, list):  # an INSERT is a list of statements
                (compiled,) = compiled
            text, params = compiled
            self._compiled[connection.vendor] = (
                text.replace("%s", "?") if connection.vendor == "sqlite" else text,
                params,
            )
        statement, params = self._compiled[connection.vendor]
        return statement, [values[p.name] if isinstance(p, Slot) else p for p in params]

    @contextmanager
    def _done(self, connection: Any, values: dict[str, Any]) -> Iterator[Any]:
        """Give the driver's own cursor: Django's would count, log and rewrite each statement anew."""
        statement, params = self.on(connection, **values)
        connection.ensure_connection()
        with connection.wrap_database_errors, closing(connection.connection.cursor()) as cursor:
            cursor.execute(statement, params)
            yield cursor

    def run(self, connection: Any, **values: Any) -> int:
        """Run it and return how many rows it changed."""
        with self._done(connection, values) as cursor:
            return int(cursor.rowcount)

    def fetch(self, connection: Any, **values: Any) -> list[tuple[Any, ...]]:
        """Run it and return all rows."""
        with self._done(connection, values) as cursor:
            return list(cursor.fetchall())


def select(queryset: models.QuerySet[LeaseRow]) -> Any:
    return queryset.annotate(now=Now()).values_list(*FIELDS, "now").query


def update(queryset: models.QuerySet[LeaseRow], **values: Any) -> Any:
    query: Any = queryset.query.chain(sql.UpdateQuery)
    query.add_update_values(values)
    return query


def insert(**values: Any) -> Any:
    query = sql.InsertQuery(LeaseRow)
    fields = LeaseRow._meta.concrete_fields
    row = LeaseRow(**values)
    query.insert_values(fields, [row], raw=False)
    return query


def delete(queryset: models.QuerySet[LeaseRow]) -> Any:
    return queryset.query.chain(sql.DeleteQuery)


FIELDS = [field.attname for field in LeaseRow._meta.concrete_fields]
