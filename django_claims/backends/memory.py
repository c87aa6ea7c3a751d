"""
Leases in the memory of this process: for tests, and for sites of a single process.

Full semantics, one lock. The data of an alias outlives its backend objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from django_claims.backends.base import (
    AcquireRequest,
    Adopted,
    AdoptRequest,
    Grant,
    HandOverRequest,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    Waiter,
)
from django_claims.backends.memory_flags import MemoryFlags
from django_claims.backends.memory_store import Row, Store
from django_claims.backends.memory_store import forget as forget
from django_claims.backends.memory_store import stores as stores
from django_claims.clock import from_microseconds
from django_claims.leases import HANDED_OVER, HELD, RESTING, Lease, LeasePage, read_lease
from django_claims.names import matches


class _Waiter(Waiter):
    """Called at each end of a lease; looks as well, since an expiry calls nobody."""

    def __init__(self, interval: tuple[float, float], store: Store, bell: Callable[[], object]) -> None:
        super().__init__(interval)
        self._bells = store.bells
        self._bells[id(self)] = bell

    def close(self) -> None:
        self._bells.pop(id(self), None)


class MemoryBackend(MemoryFlags):
    """OPTIONS: `clock`, a callable (or its dotted path) that returns seconds, for tests."""

    is_process_local = True
    supports_hand_over = True

    def _read(self, store: Store, name: str, row: Row, now: int) -> Lease:
        return read_lease(
            name=name,
            alias=self.alias,
            fence=row.fence,
            kind=row.kind,
            holder=row.holder.packed,
            progress=row.progress,
            flag=self._flag(store, name, now),
            acquired_us=row.acquired_us,
            renewed_us=row.renewed_us,
            expires_us=row.expires_us,
            now_us=now,
            ttl_ms=row.ttl_ms,
            heartbeat_ms=row.heartbeat_ms,
        )

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        store = self._store
        with store.lock:
            now = store.now()
            for request in requests:
                flag = self._flag(store, request.name, now)
                if flag is not None and flag.keep:
                    return Refusal(request.name, flag=flag)
                row = self._live(store, request.name, now)
                if row is None or (row.kind == HELD and row.token == request.token):
                    continue
                if row.kind == HELD and row.fence == request.over_fence:
                    continue
                return Refusal(request.name, lease=self._read(store, request.name, row, now))
            rows = [store.rows.get(request.name) for request in requests]
            own = [row for row, request in zip(rows, requests, strict=True) if row and row.token == request.token]
            if len(own) == len(requests):
                for row, request in zip(own, requests, strict=True):
                    row.renewed_us, row.expires_us = now, now + request.ttl_ms * 1000
                return [Grant(row.fence, row.acquired_us) for row in own]
            fence = store.last_fence = max(store.last_fence + 1, now)
            for request in requests:
                row = store.rows.get(request.name)
                if row is not None:
                    self._end(store, request.name, row)
                store.rows[request.name] = Row(
                    token=request.token,
                    fence=fence,
                    kind=HELD,
                    holder=request.holder,
                    acquired_us=now,
                    renewed_us=now,
                    expires_us=now + request.ttl_ms * 1000,
                    ttl_ms=request.ttl_ms,
                    heartbeat_ms=request.heartbeat_ms,
                )
            return [Grant(fence, now) for _ in requests]

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        store = self._store
        with store.lock:
            now = store.now()
            return [self._renew(store, request, now) for request in requests]

    def _renew(self, store: Store, request: RenewRequest, now: int) -> RenewAnswer:
        row = self._live(store, request.name, now)
        if row is None or row.token != request.token:
            if store.forced.get((request.name, request.fence), 0) > now:
                return RenewAnswer(Renewal.FORCED)
            return RenewAnswer(Renewal.TAKEN if row else Renewal.GONE)
        row.renewed_us, row.expires_us = now, now + request.ttl_ms * 1000
        if request.progress is not None:
            row.progress = request.progress
        flag = self._flag(store, request.name, now)
        if flag is not None and request.seen and flag.seen_at is None:
            flag = store.flags[request.name] = replace(flag, seen_at=from_microseconds(now))
        return RenewAnswer(Renewal.RENEWED, flag, now)

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        store = self._store
        with store.lock:
            now = store.now()
            return [self._release(store, request, now) for request in requests]

    def _release(self, store: Store, request: ReleaseRequest, now: int) -> Released:
        row = self._live(store, request.name, now)
        if row is None:
            return Released.GONE
        if row.token != request.token:
            return Released.NOT_OWNER
        self._end(store, request.name, row)
        if request.rest_ms:
            store.rows[request.name] = replace(
                row, token="", kind=RESTING, progress="", expires_us=now + request.rest_ms * 1000
            )
        return Released.RELEASED

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        store = self._store
        with store.lock:
            now = store.now()
            rows = [self._live(store, request.name, now) for request in requests]
            pairs = [(row, request) for row, request in zip(rows, requests, strict=True) if row is not None]
            if len(pairs) < len(requests) or not all(
                (row.kind, row.token) in ((HELD, request.token), (HANDED_OVER, request.ticket))
                for row, request in pairs
            ):
                return False
            for row, request in pairs:
                row.kind, row.token, row.ttl_ms = HANDED_OVER, request.ticket, request.valid_ms
                row.renewed_us, row.expires_us = now, now + request.valid_ms * 1000
            return True

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        store = self._store
        with store.lock:
            now = store.now()
            rows = [self._live(store, request.name, now) for request in requests]
            pairs = [(row, request) for row, request in zip(rows, requests, strict=True) if row is not None]
            if len(pairs) < len(requests) or not all(
                (row.kind, row.token) in ((HANDED_OVER, request.ticket), (HELD, request.token))
                for row, request in pairs
            ):
                return None
            for row, request in pairs:
                row.kind, row.token, row.holder = HELD, request.token, request.holder
                row.ttl_ms, row.heartbeat_ms = request.ttl_ms, request.heartbeat_ms
                row.renewed_us, row.expires_us = now, now + request.ttl_ms * 1000
            return [
                Adopted(row.fence, row.acquired_us, now, row.progress, self._flag(store, request.name, now))
                for row, request in pairs
            ]

    def held(self, name: str, token: str) -> bool:
        store = self._store
        with store.lock:
            now = store.now()
            row = self._live(store, name, now)
            return row is not None and row.token == token

    def lease(self, name: str) -> Lease | None:
        store = self._store
        with store.lock:
            now = store.now()
            row = self._live(store, name, now)
            return None if row is None else self._read(store, name, row, now)

    def leases(self, *, match: str, page: int, per_page: int) -> LeasePage:
        store = self._store
        with store.lock:
            now = store.now()
            names = sorted(n for n in list(store.rows) if matches(n, match) and self._live(store, n, now))
            found = [
                self._read(store, name, store.rows[name], now)
                for name in names[(page - 1) * per_page : page * per_page]
            ]
        return LeasePage(leases=found, total=len(names), page=page, per_page=per_page)

    def force_release(self, name: str, fence: int) -> bool:
        store = self._store
        with store.lock:
            now = store.now()
            row = self._live(store, name, now)
            if row is None or row.fence != fence:
                return False
            store.forced = {run: until for run, until in store.forced.items() if until > now}
            store.forced[name, fence] = now + row.ttl_ms * 1000
            self._end(store, name, row)
            return True

    def wait(self, names: tuple[str, ...], bell: Callable[[], object]) -> Waiter:
        return _Waiter(self.poll_interval, self._store, bell)

    def describe(self) -> str:
        return "memory of this process"
