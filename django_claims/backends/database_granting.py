"""
Granting in a table.

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

import secrets
from collections.abc import Sequence
from typing import Any

from django.db import IntegrityError

from django_claims.backends import tables
from django_claims.backends.base import (
    AcquireRequest,
    Grant,
    Refusal,
    RenewRequest,
)
from django_claims.backends.database_flags import TRIES
from django_claims.backends.database_handing import DatabaseHanding
from django_claims.backends.sql import can_tell, now_on, numbered
from django_claims.backends.sql_pools import in_transaction
from django_claims.clock import clock
from django_claims.leases import HELD
from django_claims.names import digest

CLEAN_SECONDS = 60.0
MOST_KNOWN = 10_000
"""Names that this process was granted last, and so is likely to find free without a look."""
_clean_at: dict[str, float] = {}


class _Overtaken(Exception):
    """A row has changed since it was looked at."""


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


class DatabaseGranting(DatabaseHanding):
    """The part of DatabaseBackend that grants."""

    _database_alias: str

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
        if now < _clean_at.get(self._database_alias, now):
            return
        _clean_at[self._database_alias] = now + CLEAN_SECONDS
        some = tables.SOME.fetch(connection, start=secrets.token_hex(32))  # somewhere among the digests
        if len(some) < tables.SAMPLE:
            some += tables.SOME.fetch(connection, start="")
        old = list(
            {
                str(key): None
                for key, expires_us, news_until_us, now_us in some
                if abs(expires_us) < now_us - tables.DAY_US and news_until_us < now_us
            }
        )
        for at in range(0, len(old), tables.BATCH):
            batch = old[at : at + tables.BATCH]
            tables.forget_many(len(batch)).run(connection, **numbered("digest", batch))
        if len(old) > tables.SAMPLE // 2:
            _clean_at[self._database_alias] = now + 1.0  # there is more of it

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
