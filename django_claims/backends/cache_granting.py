"""Granting, over a store that can add and compare-and-set; see cache.py for such stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_claims.backends.base import (
    AcquireRequest,
    Grant,
    Refusal,
)
from django_claims.backends.cache_flags import CacheFlags
from django_claims.backends.cache_index import is_due, note, number
from django_claims.backends.cache_links import GONE, Item, Link, Write
from django_claims.backends.cache_records import News, Row, lease_of, now_us, read_row, store_seconds
from django_claims.leases import HELD, Lease

_DAY = 24 * 3600
_BATCH = 500
_MOST_MARKS = 10_000


class _Wanted:
    """One name of an acquire, and what was read of it."""

    def __init__(self, request: AcquireRequest, key: str, fence_key: str, found: dict[str, Item]) -> None:
        self.request = request
        self.key, self.fence_key = key, fence_key
        self.item, self.fence_item = found.get(key), found.get(fence_key)
        self.row = read_row(self.item.value, request.name) if self.item else None
        self.last = number(self.fence_item)

    @property
    def is_mine(self) -> bool:
        return self.row is not None and self.row.is_held_by(self.request.token)

    @property
    def is_dead(self) -> bool:
        return self.row is not None and self.row.kind == HELD and self.row.fence == self.request.over_fence


class CacheGranting(CacheFlags):
    """Acquire, and how leases are read."""

    def _touchable(self, link: Link, row: Row) -> bool:
        """Say whether to write to a lease. Where that is not one step, it must not run out in between."""
        return link.exact or now_us() < row.expires_us

    def _lease(self, name: str, row: Row | None, news: News) -> Lease:
        return lease_of(row, name=name, alias=self.alias, now=now_us(), flag=self._flag(news, name, row))

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        with self._link() as link:
            answer, before = self._try(link, requests, None)
            while answer is None:
                link.hurry()
                answer, before = self._try(link, requests, before)
            return answer

    def _try(
        self, link: Link, requests: Sequence[AcquireRequest], before: set[str] | None
    ) -> tuple[list[Grant] | Refusal | None, set[str]]:
        """
        Try once; the answer is None if others came between, and what is ours by then is kept for the next try.

        `before`: the names that the token had when it was asked first, which no refusal takes from it.
        """
        keys = [(self._keys.lease(request.name), self._keys.fence(request.name)) for request in requests]
        found = self._read(link, [self._keys.news, *(key for pair in keys for key in pair)], sure=False)
        news, now = self._news(found.get(self._keys.news), now_us()), now_us()
        wanted = [_Wanted(request, *pair, found) for request, pair in zip(requests, keys, strict=True)]
        is_first = before is None
        if before is None:
            before = {want.request.name for want in wanted if want.is_mine}
        for want in wanted:
            refusal = self._refusal(link, want, news)
            if refusal is not None:
                self._take_back(link, [want for want in wanted if want.is_mine], before)
                return refusal, before
        if is_first and len(before) == len(wanted):
            return self._grant_again(link, wanted, now), before
        last = max(max(want.last, want.row.fence if want.row else 0) for want in wanted)
        fence = max(now, last + 1)
        # The fence is above all of before if nobody was granted the name since it was read: its write asks that.
        fences = [Write(want.fence_key, b"%d" % fence, want.fence_item, _DAY) for want in wanted]
        done: list[_Wanted] = []
        # In one order for all, so that of two who want the same names one gets the first, and with it the rest.
        for want in sorted(wanted, key=lambda want: want.request.name):
            done.append(want)
            writes = [self._claim(want, fence, now)]
            # The last one together with the fences: if it is refused, they have grown for nothing.
            stored = link.put(writes if len(done) < len(wanted) else writes + fences, marked=len(wanted) == 1)
            if not stored[0]:
                self._take_back(link, done[:-1], before)
                return None, before
        if not all(stored):
            return None, before
        if link.mark is not None:
            if len(link.marks) > _MOST_MARKS:
                link.marks.clear()
            link.marks[wanted[0].key, requests[0].token] = link.mark
        note(link, self._keys, [want.request.name for want in wanted if is_due(fence, want.last)], now)
        return [Grant(fence, now)] * len(requests), before

    def _refusal(self, link: Link, want: _Wanted, news: News) -> Refusal | None:
        # Who keeps a name stopped just after this was read finds a run of it, which is told with the next poll.
        name, row = want.request.name, want.row
        flag = self._flag(news, name, row)
        if flag is not None and flag.keep:
            return Refusal(name, flag=flag)
        if want.item is None or (row and (want.is_mine or want.is_dead) and self._touchable(link, row)):
            return None
        return Refusal(name, lease=self._lease(name, row, news))

    def _claim(self, want: _Wanted, fence: int, now: int) -> Write:
        request = want.request
        row = Row(
            name=request.name,
            token=request.token,
            fence=fence,
            kind=HELD,
            holder=request.holder.packed,
            acquired_us=now,
            renewed_us=now,
            expires_us=now + request.ttl_ms * 1000,
            ttl_ms=request.ttl_ms,
            heartbeat_ms=request.heartbeat_ms,
        )
        return Write(want.key, row.pack(), want.item, store_seconds(request.ttl_ms))

    def _take_back(self, link: Link, wanted: list[_Wanted], but: set[str]) -> None:
        """End what this call had got of several names."""
        for want in wanted:
            if want.request.name in but:
                continue
            item = link.read([want.key]).get(want.key)
            row = read_row(item.value, want.request.name) if item else None
            if item and row and row.is_held_by(want.request.token) and self._touchable(link, row):
                link.put([Write(want.key, b"", item, GONE)])

    def _grant_again(self, link: Link, wanted: list[_Wanted], now: int) -> list[Grant] | None:
        """The same token, the same fence, a whole TTL from now."""
        grants, writes = [], []
        for want in wanted:
            assert want.row is not None
            row = want.row._replace(renewed_us=now, expires_us=now + want.request.ttl_ms * 1000)
            writes.append(Write(want.key, row.pack(), want.item, store_seconds(want.request.ttl_ms)))
            if want.last < row.fence:
                writes.append(Write(want.fence_key, b"%d" % row.fence, want.fence_item, _DAY))
            grants.append(Grant(row.fence, row.acquired_us))
        return grants if all(link.put(writes)) else None

    def _read(self, link: Link, keys: Sequence[str], *, sure: bool = True) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for batch in batches(keys):
            found.update(link.read(batch, sure=sure))
        return found


def batches(requests: Sequence[Any]) -> list[Sequence[Any]]:
    return [requests[at : at + _BATCH] for at in range(0, len(requests), _BATCH)]
