"""Handing over in a table: a ticket's digest stands where the owner's token stood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django_claims.backends import tables
from django_claims.backends.base import Adopted, AdoptRequest, HandOverRequest
from django_claims.backends.database_flags import DatabaseFlags
from django_claims.backends.sql_pools import in_transaction
from django_claims.leases import HANDED_OVER
from django_claims.names import digest

T = TypeVar("T")


class _NotOurs(Exception):
    """One of several is not, so none of them is changed."""


class DatabaseHanding(DatabaseFlags):
    """The part of DatabaseBackend that hands over and adopts."""

    supports_hand_over = True

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        def verb(connection: Any) -> bool:
            for request in sorted(requests, key=lambda request: digest(request.name)):
                changed = tables.HAND_OVER.run(
                    connection,
                    digest=digest(request.name),
                    token=request.token,
                    ticket=request.ticket,
                    ttl_ms=request.valid_ms,
                    ttl_us=request.valid_ms * 1000,
                )
                if not changed and not self._has(connection, request.name, HANDED_OVER, request.ticket):
                    raise _NotOurs
            return True

        return self._all_or_none(verb, len(requests)) or False

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        def verb(connection: Any) -> list[Adopted]:
            found = {}
            for request in sorted(requests, key=lambda request: digest(request.name)):
                changed = tables.ADOPT.run(
                    connection,
                    digest=digest(request.name),
                    ticket=request.ticket,
                    token=request.token,
                    holder=request.holder.packed,
                    ttl_ms=request.ttl_ms,
                    ttl_us=request.ttl_ms * 1000,
                    heartbeat_ms=request.heartbeat_ms,
                )
                if not changed:  # it may have been done before, and the answer been lost
                    again = tables.renew_many(1).run(
                        connection,
                        digest0=digest(request.name),
                        token0=request.token,
                        ttl_ms=request.ttl_ms,
                        ttl_us=request.ttl_ms * 1000,
                    )
                    if not again:
                        raise _NotOurs
                row = self._look(connection, request.name)
                flag = tables.flag_of(row, self.alias)
                found[request.name] = Adopted(row.fence, row.acquired_us, row.now, row.progress, flag)
            return [found[request.name] for request in requests]

        return self._all_or_none(verb, len(requests))

    def _has(self, connection: Any, name: str, kind: str, token: str) -> bool:
        row = self._look(connection, name)
        return row is not None and tables.is_live(row) and (row.kind, row.token) == (kind, token)

    def _all_or_none(self, verb: Callable[[Any], T], count: int) -> T | None:
        """Return what a verb gives; None, and nothing changed, if one of its leases is another's."""

        def whole(connection: Any) -> T | None:
            try:
                if count == 1:
                    return verb(connection)
                with in_transaction(connection):
                    return verb(connection)
            except _NotOurs:
                return None

        return self._ask(whole)
