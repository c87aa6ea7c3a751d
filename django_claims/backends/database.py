"""
Leases in a table: PostgreSQL, MariaDB/MySQL and SQLite.

Look, then take by one conditional statement: a waiter that is refused has written nothing, and
of two that saw the same free row one finds it changed. Who had a name last takes it without a
look, if it is free.

    A  look: free, fence 7          B  look: free, fence 7
    A  update … where fence = 7     B  update … where fence = 7
    A  one row: granted, fence 8    B  no row: look again

The fence is the last one plus one, or the database's clock if that is more: it grows also
after old rows were cleaned up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.apps import apps
from django.db import IntegrityError, connections

from django_claims import conf
from django_claims.backends import tables
from django_claims.backends.base import (
    AcquireRequest,
    BaseClaimBackend,
    Grant,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    sure,
)
from django_claims.backends.database_flags import TRIES
from django_claims.backends.database_handing import DatabaseHanding
from django_claims.backends.memory import MemoryBackend
from django_claims.backends.sql import can_tell, now_on, numbered
from django_claims.backends.sql_connections import KINDS, database_of
from django_claims.backends.sql_pools import in_transaction, is_in_memory, vendor_of
from django_claims.clock import clock
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.leases import HELD, Lease, LeasePage, StopFlag
from django_claims.names import digest, matches

T = TypeVar("T")
CLEAN_SECONDS = 60.0
MOST_KNOWN = 10_000
"""Names that this process was granted last, and so is likely to find free without a look."""
_cleaned_at: dict[str, float] = {}


class _Overtaken(Exception):
    """A row has changed since it was looked at."""


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


def _values(request: AcquireRequest) -> dict[str, Any]:
    """Return what a grant writes, as far as the request says it."""
    return {
        "digest": digest(request.name),
        "token": request.token,
        "holder": request.holder.packed,
        "ttl_ms": request.ttl_ms,
        "ttl_us": request.ttl_ms * 1000,
        "heartbeat_ms": request.heartbeat_ms,
    }


class InMemoryDatabaseBackend(MemoryBackend):
    """DatabaseBackend over an SQLite database in memory, as test runners make it: nothing there to share."""

    known_options = ("database",)

    def is_current(self) -> bool:
        return is_in_memory(_settings_of(self.settings)[1])

    def describe(self) -> str:
        return "memory of this process, as is the database"


class DatabaseBackend(DatabaseHanding):
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

    def is_current(self) -> bool:
        # The test runner gives the alias another database.
        return bool(connections.settings[self._database_alias]["NAME"] == self._name)

    def _look_at(self, connection: Any, names: Sequence[str]) -> dict[str, Any]:
        """Return the rows that there are, by name."""
        found = {}
        for at in range(0, len(names), tables.BATCH):
            batch = [digest(name) for name in names[at : at + tables.BATCH]]
            for values in tables.look_many(len(batch)).fetch(connection, **numbered("digest", batch)):
                row = tables.row_of(values)
                found[row.name] = row
        return found

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        return self._ask(lambda connection: self._acquire(connection, requests))

    def _acquire(self, connection: Any, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        known = self._database.known
        if len(requests) == 1 and requests[0].name in known:
            told = tables.TAKE_FREE.tell(connection, **_values(requests[0]))
            if told is not None:
                self._clean(connection)
                return [Grant(*told)]
        answer = self._look_and_take(connection, requests)
        if isinstance(answer, Refusal):
            known.discard(answer.name)
        elif len(requests) == 1 and can_tell(connection):
            if len(known) >= MOST_KNOWN:
                known.clear()
            known.add(requests[0].name)
        return answer

    def _look_and_take(self, connection: Any, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        for _ in range(TRIES):
            try:
                if len(requests) == 1:
                    answer = self._take(connection, requests)
                else:
                    with in_transaction(connection):
                        answer = self._take(connection, requests)
            except (_Overtaken, IntegrityError):
                continue
            if not isinstance(answer, Refusal):
                self._clean(connection)
            return answer
        return Refusal(requests[0].name)

    def _take(self, connection: Any, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        rows = {request.name: self._look(connection, request.name) for request in requests}
        own = 0
        for request in requests:
            row = rows[request.name]
            if row is None:
                continue
            flag = tables.flag_of(row, self.alias)
            if flag is not None and flag.keep:
                return Refusal(request.name, flag=flag)
            if not tables.is_live(row):
                continue
            lease = tables.lease_of(row, self.alias)
            if row.kind == HELD and row.token == request.token:
                own += 1
            elif row.kind != HELD or lease is None or lease.fence != request.over_fence:
                return Refusal(request.name, lease=lease)
        if own == len(requests):
            if self._push_back(connection, requests) != len(requests):
                raise _Overtaken  # it ran out in this very moment
            return [Grant(rows[request.name].fence, rows[request.name].acquired_us) for request in requests]
        first = requests[0]
        if len(requests) == 1 and rows[first.name] is None and can_tell(connection):
            told = tables.NEW_BY_THE_CLOCK.tell(connection, name=first.name, **_values(first))
            assert told is not None
            return [Grant(*told)]
        now = max((row.now for row in rows.values() if row is not None), default=0) or now_on(connection)
        fence = max([now, *(row.fence + 1 for row in rows.values() if row is not None)])
        # In one order for all, so that no two transactions wait for each other.
        for request in sorted(requests, key=lambda request: digest(request.name)):
            self._write(connection, request, rows[request.name], fence, now)
        return [Grant(fence, now) for _ in requests]

    def _write(self, connection: Any, request: AcquireRequest, row: Any, fence: int, now: int) -> None:
        values = {**_values(request), "fence": fence, "acquired_us": now}
        if row is None:
            tables.NEW.run(connection, name=request.name, **values)
            return
        over = row.fence if row.token == request.token else request.over_fence
        changed = tables.TAKE.run(
            connection,
            seen_fence=row.fence,
            seen_token=row.token,
            over=-1 if over is None else over,
            # Word for the holder of a run that was forced stays until that run would have ended.
            news_until_us=min(row.news_until_us, row.now + row.ttl_ms * 1000),
            **values,
        )
        if not changed:
            raise _Overtaken

    def _clean(self, connection: Any) -> None:
        """Forget, now and then and not many at once, names that nobody has used for a day."""
        now = clock()
        if now - _cleaned_at.get(self._database_alias, -CLEAN_SECONDS) >= CLEAN_SECONDS:
            _cleaned_at[self._database_alias] = now
            old = [str(found[0]) for found in tables.OLD.fetch(connection)]
            if old:
                tables.forget_many(len(old)).run(connection, **numbered("digest", old))

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        return self._ask(lambda connection: self._renew(connection, requests))

    def _push_back(self, connection: Any, requests: Sequence[AcquireRequest] | Sequence[RenewRequest]) -> int:
        """Move the expiry of the leases that their owner still has, by one statement for each TTL. Return how many."""
        changed = 0
        for ttl_ms in {request.ttl_ms for request in requests}:
            alike = [request for request in requests if request.ttl_ms == ttl_ms]
            for at in range(0, len(alike), tables.BATCH):
                batch = alike[at : at + tables.BATCH]
                changed += tables.renew_many(len(batch)).run(
                    connection,
                    ttl_ms=ttl_ms,
                    ttl_us=ttl_ms * 1000,
                    **numbered("digest", [digest(request.name) for request in batch]),
                    **numbered("token", [request.token for request in batch]),
                )
        return changed

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
            changed = tables.END.run(connection, **owner)
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
                for at, request in batch:
                    row = after.get(request.name)
                    if not self._was_ended(row, rows[request.name].fence):
                        answers[at] = self._not_ended(row)
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
            seen = {"seen_fence": row.fence, "seen_token": row.token}  # pyright: ignore[reportOptionalMemberAccess]
            return bool(tables.FORCE.run(connection, digest=digest(name), **seen))

        return self._ask(verb)

    def close(self) -> None:
        self._database.close()

    def describe(self) -> str:
        return f"database {self._database_alias!r}"
