"""
Handing over in a store that can compare-and-set one value at a time.

Of several names one after the other is changed. If one turns out to be another's, those
before it are put back; a process that dies in between leaves some of each, to end by time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django_claims.backends.base import Adopted, AdoptRequest, HandOverRequest
from django_claims.backends.cache_leases import CacheLeases
from django_claims.backends.cache_links import Link, Write
from django_claims.backends.cache_records import News, Row, now_us, read_row, store_seconds
from django_claims.leases import HANDED_OVER, HELD

Test = Callable[[Row], bool]


class CacheHanding(CacheLeases):
    """The part of CacheBackend that hands over and adopts."""

    supports_hand_over = True

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        request = requests[0]

        def handed(row: Row, now: int) -> Row:
            return row._replace(
                token=request.ticket,
                kind=HANDED_OVER,
                ttl_ms=request.valid_ms,
                renewed_us=now,
                expires_us=now + request.valid_ms * 1000,
            )

        with self._link() as link:
            rows = self._change_all(
                link,
                [each.name for each in requests],
                lambda row: row.is_held_by(request.token),
                lambda row: row.is_handed_over_by(request.ticket),
                handed,
            )
            link.marks.pop((self._keys.lease(request.name), request.token), None)
        return rows is not None

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        request = requests[0]

        def adopted(row: Row, now: int) -> Row:
            return row._replace(
                token=request.token,
                kind=HELD,
                holder=request.holder.packed,
                ttl_ms=request.ttl_ms,
                heartbeat_ms=request.heartbeat_ms,
                renewed_us=now,
                expires_us=now + request.ttl_ms * 1000,
            )

        with self._link() as link:
            found = self._change_all(
                link,
                [each.name for each in requests],
                lambda row: row.is_handed_over_by(request.ticket),
                lambda row: row.is_held_by(request.token),
                adopted,
            )
        if found is None:
            return None
        rows, news, now = found
        return [Adopted(row.fence, row.acquired_us, now, row.progress, self._flag(news, row.name, row)) for row in rows]

    def _change_all(
        self, link: Link, names: Sequence[str], before: Test, after: Test, change: Callable[[Row, int], Row]
    ) -> tuple[list[Row], News, int] | None:
        """Change the lease of each name from `before` to `after`, or put all back and return None."""
        changed: dict[str, Row] = {}  # as they were
        while True:
            keys = {name: self._keys.lease(name) for name in names}
            found = self._read(link, [self._keys.news, *keys.values()])
            now = now_us()
            news = self._news(found.get(self._keys.news), now)
            rows = {name: read_row(found[key].value, name) for name, key in keys.items() if key in found}
            writes: dict[str, Write] = {}
            done = []
            for name, key in keys.items():
                row = rows.get(name)
                if row is None or not (before(row) or after(row)) or not self._touchable(link, row):
                    self._put_back(link, changed, after)
                    return None
                done.append(change(row, now))
                writes[name] = Write(key, done[-1].pack(), found[key], store_seconds(done[-1].ttl_ms))
            stored = link.put(list(writes.values()))
            for name, was_stored in zip(writes, stored, strict=True):
                row = rows[name]
                if was_stored and row is not None and before(row):
                    changed[name] = row
            if all(stored):
                return done, news, now
            link.hurry()

    def _put_back(self, link: Link, changed: dict[str, Row], after: Test) -> None:
        for name, row in changed.items():
            key = self._keys.lease(name)
            item = link.read([key]).get(key)
            there = read_row(item.value, name) if item else None
            left_ms = (row.expires_us - now_us()) // 1000
            if item and there and after(there) and self._touchable(link, there) and left_ms > 0:
                link.put([Write(key, row.pack(), item, store_seconds(left_ms))])
