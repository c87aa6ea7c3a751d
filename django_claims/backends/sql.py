"""Statements that the ORM builds once, with places in them that are filled at each run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from django.db import models
from django.db.models import sql

from django_claims.database.models import LeaseRow

T = TypeVar("T")


class Now(models.Func):
    """The database's clock as microseconds after 1970, at the statement and not at the transaction."""

    output_field = models.BigIntegerField()  # pyright: ignore[reportAssignmentType]  # as Django's docs have it
    arity = 0

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)", []

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::bigint", []

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)", []


class StatementNow(Now):
    """The database's clock, the same wherever it stands in one statement (as far as that is told)."""

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
        return "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)", []


class Told(models.Func):
    """The one value that MariaDB and MySQL tell of an UPDATE or INSERT; just the value elsewhere."""

    output_field = models.BigIntegerField()  # pyright: ignore[reportAssignmentType]  # as Django's docs have it
    arity = 1

    template = "%(expressions)s"

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="LAST_INSERT_ID(%(expressions)s)")


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

    def __init__(self, build: Callable[[], Any], tells: bool = False) -> None:
        self._build = build
        self._tells = tells
        self._compiled: dict[str, tuple[str, list[str]]] = {}

    def on(self, connection: Any, **values: Any) -> tuple[str, list[Any]]:
        """Return SQL and parameters."""
        found = self._compiled.get(connection.vendor)
        if found is None:
            found = self._compiled[connection.vendor] = self._compile(connection)
        statement, names = found
        return statement, [values[name] for name in names]

    def _compile(self, connection: Any) -> tuple[str, list[str]]:
        compiled = self._build().get_compiler(connection=connection).as_sql()
        if isinstance(compiled, list):  # an INSERT is a list of statements
            (compiled,) = compiled
        statement, params = compiled
        if self._tells and connection.vendor != "mysql":
            statement += " RETURNING fence, acquired_us"
        # What never changes is written out: each parameter costs a driver more than a whole clause costs the server.
        first, *others = statement.split("%s")
        mark = "?" if connection.vendor == "sqlite" else "%s"
        written = [first]
        for param, after in zip(params, others, strict=True):
            written += [mark if isinstance(param, Slot) else _literal(param), after]
        return "".join(written), [param.name for param in params if isinstance(param, Slot)]

    def _do(self, connection: Any, values: dict[str, Any], answer: Callable[[Any], T]) -> T:
        """Use the driver's own cursor: Django's would count, log and rewrite each statement anew."""
        statement, params = self.on(connection, **values)
        connection.ensure_connection()
        try:
            cursor = connection.connection.cursor()
            try:
                cursor.execute(statement, params)
                found = answer(cursor)
            except BaseException:
                # After a statement that was broken off, as by Ctrl-C, MariaDB's closing fails: that is not the news.
                with suppress(connection.Database.Error):
                    cursor.close()
                raise
            cursor.close()
            return found
        except connection.Database.Error:
            with connection.wrap_database_errors:
                raise

    def run(self, connection: Any, **values: Any) -> int:
        """Run it and return how many rows it changed."""
        return self._do(connection, values, _count)

    def fetch(self, connection: Any, **values: Any) -> list[tuple[Any, ...]]:
        """Run it and return all rows."""
        return self._do(connection, values, _rows)

    def tell(self, connection: Any, **values: Any) -> tuple[int, int] | None:
        """Run what tells, on one row; return fence and time of the grant, or None if it changed none."""
        return self._do(connection, values, _told_by_id if connection.vendor == "mysql" else _told_by_row)


def can_tell(connection: Any) -> bool:
    """Say whether a statement can tell what it wrote: SQLite does since 3.35."""
    return connection.vendor != "sqlite" or bool(connection.features.can_return_columns_from_insert)


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(int(value))
    assert isinstance(value, str) and re.fullmatch("[a-z]*", value), "a constant of ours is a number or a plain word"
    return f"'{value}'"


def _count(cursor: Any) -> int:
    return int(cursor.rowcount)


def _rows(cursor: Any) -> list[tuple[Any, ...]]:
    return list(cursor.fetchall())


def _told_by_row(cursor: Any) -> tuple[int, int] | None:
    found = cursor.fetchall()  # to the end: SQLite commits then
    return (int(found[0][0]), int(found[0][1])) if found else None


def _told_by_id(cursor: Any) -> tuple[int, int] | None:
    # The fence is the time, unless the clock was set back by more than the name has rested.
    return (int(cursor.lastrowid), int(cursor.lastrowid)) if cursor.rowcount else None


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
