"""
Leases in a table: PostgreSQL, MariaDB/MySQL and SQLite.

How a name is granted stands in database_granting.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.apps import apps
from django.db import connections

from django_claims import conf
from django_claims.backends import tables
from django_claims.backends.base import (
    BaseClaimBackend,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    sure,
)
from django_claims.backends.database_granting import DatabaseGranting
from django_claims.backends.memory import MemoryBackend
from django_claims.backends.sql import numbered
from django_claims.backends.sql_connections import KINDS, database_of
from django_claims.backends.sql_pools import is_in_memory, vendor_of
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.leases import Lease, LeasePage, StopFlag
from django_claims.names import digest, matches

T = TypeVar("T")


def _settings_of(settings: conf.AliasSettings) -> tuple[str, dict[str, Any]]:
    """Return the alias of DATABASES and its entry. Raises InvalidClaimsSetting."""
    where = f"CLAIMS[{settings.alias!r}]"
    if not apps.is_installed("django_claims.database"):
        raise InvalidClaimsSetting(
            f"{where} uses DatabaseBackend: add 'django_claims.database' to INSTALLED_APPS and run 'manage.py migrate'."
        )
    alias = settings.options.get("database", "default")
    if alias not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise InvalidClaimsSetting(
            f"{where}['OPTIONS']['database'] names no alias of DATABASES: {alias!r} (there is: {known})."
        )
    entry = connections.settings[alias]
    if vendor_of(entry["ENGINE"]) not in KINDS:
        raise InvalidClaimsSetting(
            f"{where} uses DatabaseBackend, which knows PostgreSQL, MariaDB, MySQL and SQLite. "
            f"DATABASES[{alias!r}] has ENGINE {entry['ENGINE']!r}."
        )
    return alias, entry


class InMemoryDatabaseBackend(MemoryBackend):
    """DatabaseBackend over an SQLite database in memory, as test runners make it: nothing there to share."""

    known_options = ("database",)

    def is_current(self) -> bool:
        return is_in_memory(_settings_of(self.settings)[1])

    def describe(self) -> str:
        return "memory of this process, as is the database"


class DatabaseBackend(DatabaseGranting):
    """OPTIONS: `database`, an alias of DATABASES. On SQLite leases live in a file of their own beside it."""

    known_options = ("database",)
    poll_interval = (0.02, 0.25)

    @classmethod
    def build(cls, settings: conf.AliasSettings) -> BaseClaimBackend:
        in_memory = is_in_memory(_settings_of(settings)[1])
        return InMemoryDatabaseBackend(settings) if in_memory else cls(settings)

    def __init__(self, settings: conf.AliasSettings) -> None:
        super().__init__(settings)
        self._database_alias, entry = _settings_of(settings)
        self._name = entry["NAME"]
        self._database = database_of(self._database_alias, settings.store_timeout)

    @property
    def is_machine_local(self) -> bool:
        return connections[self._database_alias].vendor == "sqlite"

    def is_current(self) -> bool:
        # The test runner gives the alias another database.
        return bool(connections.settings[self._database_alias]["NAME"] == self._name)

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        return self._ask(lambda connection: self._renew(connection, requests))

    def _renew(self, connection: Any, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        self._push_back(connection, requests)
        for request in requests:
            owner = {"digest": digest(request.name), "token": request.token}
            if request.progress is not None:
                tables.WRITE_PROGRESS.run(connection, progress=request.progress, **owner)
            if request.seen:
                tables.SEE_FLAG.run(connection, **owner)
        rows = self._look_at(connection, [request.name for request in requests])
        return [self._renewed(rows.get(request.name), request) for request in requests]

    def _renewed(self, row: Any, request: RenewRequest) -> RenewAnswer:
        if row is not None and tables.is_live(row) and row.token == request.token:
            return RenewAnswer(Renewal.RENEWED, tables.flag_of(row, self.alias), row.now)
        if row is not None and tables.is_forced(row, request.fence):
            return RenewAnswer(Renewal.FORCED)
        return RenewAnswer(Renewal.TAKEN if row is not None and tables.is_live(row) else Renewal.GONE)

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        times = 0

        def verb(connection: Any) -> list[Released]:
            nonlocal times
            times += 1
            if len(requests) == 1:
                return [self._end(connection, requests[0])]
            return self._end_many(connection, requests)

        return sure(self._ask(verb), times > 1, self.alias)

    def _end(self, connection: Any, request: ReleaseRequest) -> Released:
        owner = {"digest": digest(request.name), "token": request.token}
        if request.rest_ms:
            changed = tables.REST.run(connection, rest_us=request.rest_ms * 1000, **owner)
        else:
            changed = tables.END.run(connection, **owner) or tables.END_FLAGGED.run(connection, **owner)
        return Released.RELEASED if changed else self._not_ended(self._look(connection, request.name))

    def _not_ended(self, row: Any) -> Released:
        return Released.NOT_OWNER if row is not None and tables.is_live(row) else Released.GONE

    def _end_many(self, connection: Any, requests: Sequence[ReleaseRequest]) -> list[Released]:
        """Look first, since one statement for many does not say which it has changed; and again, if not all."""
        rows = self._look_at(connection, [request.name for request in requests])
        answers: dict[int, Released] = {}
        plain = []
        for at, request in enumerate(requests):
            row = rows.get(request.name)
            if row is None or not tables.is_live(row) or row.token != request.token:
                answers[at] = self._not_ended(row)
            elif request.rest_ms:
                answers[at] = self._end(connection, request)
            else:
                plain.append((at, request))
                answers[at] = Released.RELEASED
        for start in range(0, len(plain), tables.BATCH):
            batch = plain[start : start + tables.BATCH]
            changed = tables.end_many(len(batch)).run(
                connection,
                **numbered("digest", [digest(request.name) for _, request in batch]),
                **numbered("token", [request.token for _, request in batch]),
            )
            if changed != len(batch):
                after = self._look_at(connection, [request.name for _, request in batch])
                left = {
                    at: request.name
                    for at, request in batch
                    if not self._was_ended(after.get(request.name), rows[request.name].fence)
                }
                # Of those that are another's by now, so many were ended here, and the others before.
                taken = [at for at, name in left.items() if (row := after.get(name)) and row.fence != rows[name].fence]
                ended = changed - (len(batch) - len(left))
                for at, name in left.items():
                    if at not in taken or ended != len(taken):
                        answers[at] = self._not_ended(after.get(name))
        return [answers[at] for at in range(len(requests))]

    def _was_ended(self, row: Any, fence: int) -> bool:
        """Say whether the run with that fence was released: it neither ran out, nor was it ended by an operator."""
        return row is not None and row.fence == fence and not row.token and not tables.is_forced(row, fence)

    def held(self, name: str, token: str) -> bool:
        row = self._row(name)
        return row is not None and tables.is_live(row) and row.token == token

    def lease(self, name: str) -> Lease | None:
        row = self._row(name)
        return None if row is None else tables.lease_of(row, self.alias)

    def leases(self, *, match: str, page: int, per_page: int) -> LeasePage:
        names = [name for name in self._names() if matches(name, match)]
        found = self.leases_of(names[(page - 1) * per_page : page * per_page])
        return LeasePage(leases=found, total=len(names), page=page, per_page=per_page)

    def overview(self) -> tuple[list[str], list[StopFlag]]:
        return self._names(), self.flags()

    def _names(self) -> list[str]:
        return sorted(name for (name,) in self._ask(tables.LIVE.fetch) if matches(name, ""))

    def leases_of(self, names: Sequence[str]) -> list[Lease]:
        rows = self._ask(lambda connection: self._look_at(connection, names))
        read = (tables.lease_of(rows[name], self.alias) for name in names if name in rows)
        return [lease for lease in read if lease is not None]

    def force_release(self, name: str, fence: int) -> bool:
        def verb(connection: Any) -> bool:
            row = self._look(connection, name)
            lease = None if row is None else tables.lease_of(row, self.alias)
            if lease is None or lease.fence != fence:
                return False
            # There is a row, or there were no lease.
            seen = {"seen_fence": row.fence, "seen_token": row.token}  # pyright: ignore[reportOptionalMemberAccess]
            return bool(tables.FORCE.run(connection, digest=digest(name), **seen))

        return self._ask(verb)

    def close(self) -> None:
        self._database.close()

    def describe(self) -> str:
        return f"database {self._database_alias!r}"
