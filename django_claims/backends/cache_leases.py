"""The verbs about leases, over a store that can add and compare-and-set; see cache.py for such stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from django_claims.backends.base import (
    AcquireRequest,
    Grant,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    sure,
)
from django_claims.backends.cache_flags import CacheFlags
from django_claims.backends.cache_index import is_due, names_of, note, number
from django_claims.backends.cache_links import GONE, Item, Link, Write
from django_claims.backends.cache_records import News, Row, lease_of, now_us, read_row, store_seconds
from django_claims.leases import HELD, RESTING, Lease, LeasePage
from django_claims.names import matches

R = TypeVar("R", RenewRequest, ReleaseRequest)
A = TypeVar("A", RenewAnswer, Released)

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


class _Plan(NamedTuple):
    """What to write for one request, and the lease that it makes or ends."""

    write: Write
    row: Row


class CacheLeases(CacheFlags):
    """The verbs about leases."""

    def _touchable(self, link: Link, row: Row) -> bool:
        """Say whether to write to a lease. Where that is not one step, it must not run out in between."""
        return link.exact or now_us() < row.expires_us

    def _lease(self, name: str, row: Row | None, news: News) -> Lease:
        return lease_of(row, name=name, alias=self.alias, now=now_us(), flag=self._flag(news, name, row))

    # -- acquire -----------------------------------------------------------------------------------

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

    # -- renew, release ----------------------------------------------------------------------------

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        def ask(request: RenewRequest, item: Item | None, news: News, now: int) -> RenewAnswer | _Plan:
            row = read_row(item.value, request.name) if item else None
            if item is None or row is None or not row.is_held_by(request.token):
                if (request.name, request.fence) in news:
                    return RenewAnswer(Renewal.FORCED)
                return RenewAnswer(Renewal.TAKEN if item else Renewal.GONE)
            if not self._touchable(link, row):
                return RenewAnswer(Renewal.GONE)
            row = row._replace(
                renewed_us=now,
                expires_us=now + request.ttl_ms * 1000,
                progress=row.progress if request.progress is None else request.progress,
            )
            key = self._keys.lease(request.name)
            return _Plan(Write(key, row.pack(), item, store_seconds(request.ttl_ms)), row)

        def renewed(request: RenewRequest, row: Row, news: News, now: int) -> RenewAnswer:
            flag = self._flag(news, request.name, row)
            if flag is not None and request.seen and flag.seen_at is None:
                flag = self._mark_seen(link, row)
            return RenewAnswer(Renewal.RENEWED, flag, now)

        if not requests:
            return []
        with self._link() as link:
            return self._write_all(link, requests, ask, renewed, with_news=True)

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        def ask(request: ReleaseRequest, item: Item | None, news: News, now: int) -> Released | _Plan:
            if item is None:
                return Released.GONE
            row = read_row(item.value, request.name)
            if row is None or not (row.is_held_by(request.token) or row.is_handed_over_by(request.token)):
                return Released.NOT_OWNER
            if not self._touchable(link, row):
                return Released.GONE  # as good as: it ends within two seconds
            key = self._keys.lease(request.name)
            if not request.rest_ms:
                return _Plan(Write(key, b"", item, GONE), row)
            row = row._replace(token="-", kind=RESTING, progress="", expires_us=now + request.rest_ms * 1000)
            return _Plan(Write(key, row.pack(), item, store_seconds(request.rest_ms)), row)

        def released(request: ReleaseRequest, row: Row, news: News, now: int) -> Released:
            return Released.RELEASED

        if not requests:
            return []
        again = False
        with self._link() as link:
            if len(requests) == 1 and not requests[0].rest_ms:
                key = self._keys.lease(requests[0].name)
                mark = link.marks.pop((key, requests[0].token), None)
                if mark is not None:
                    removed = link.remove_marked(key, mark)
                    if removed:
                        return [Released.RELEASED]
                    again = removed is None
            answers = self._write_all(link, requests, ask, released, with_news=False)
        return sure(answers, again, self.alias)

    def _write_all(
        self,
        link: Link,
        requests: Sequence[R],
        ask: Callable[[R, Item | None, News, int], A | _Plan],
        done: Callable[[R, Row, News, int], A],
        *,
        with_news: bool,
    ) -> list[A]:
        """
        Read the leases and write to those that ask() says, again where others came between.

        ask() gives the answer to a request, or what to write; done() gives the answer to what was written.
        """
        answers: dict[int, A] = {}
        asked = {at: self._keys.lease(request.name) for at, request in enumerate(requests)}
        news_keys: list[str] = [self._keys.news] if with_news else []
        batch: Sequence[tuple[int, str]]
        while asked:
            for batch in _batches(list(asked.items())):
                found = link.read([*news_keys, *(key for _, key in batch)])
                now = now_us()
                news = self._news(found.get(self._keys.news), now) if with_news else {}
                plans: list[tuple[int, _Plan]] = []
                for at, key in batch:
                    said = ask(requests[at], found.get(key), news, now)
                    if isinstance(said, _Plan):
                        plans.append((at, said))
                    else:
                        answers[at] = said
                stored = link.put([plan.write for _, plan in plans]) if plans else []
                for (at, plan), was_stored in zip(plans, stored, strict=True):
                    if was_stored:
                        answers[at] = done(requests[at], plan.row, news, now)
            asked = {at: key for at, key in asked.items() if at not in answers}
            if asked:
                link.hurry()
        return [answers[at] for at in range(len(requests))]

    def force_release(self, name: str, fence: int) -> bool:
        key = self._keys.lease(name)
        with self._link() as link:
            told = False
            while item := link.read([key]).get(key):
                row = read_row(item.value, name)
                if self._lease(name, row, {}).fence != fence or (row and not self._touchable(link, row)):
                    break
                if row and not told:
                    # Before the lease ends: its holder may be told too soon, and never too late.
                    self._change_news(link, lambda news, now, row=row: self._tell(news, row, now))  # type: ignore[misc]
                    told = True
                    continue  # and read it anew, as near to the cas as can be
                if link.put([Write(key, b"", item, GONE)])[0]:
                    return True
                link.hurry()
            if told:
                self._change_news(link, lambda news, now: news.pop((name, fence), None))
        return False

    def _tell(self, news: News, row: Row, now: int) -> None:
        news[row.name, row.fence] = f"f {row.fence} {now + row.ttl_ms * 1000} 0 0 []"

    # -- read --------------------------------------------------------------------------------------

    def held(self, name: str, token: str) -> bool:
        with self._link() as link:
            row = self._rows(link, [name])[name]
        return row is not None and row.is_held_by(token)

    def lease(self, name: str) -> Lease | None:
        key, news_key = self._keys.lease(name), self._keys.news
        with self._link() as link:
            found = link.read([key, news_key])
            if key not in found:
                return None
            return self._lease(name, read_row(found[key].value, name), self._news(found.get(news_key), now_us()))

    def leases(self, *, match: str, page: int, per_page: int) -> LeasePage:
        with self._link() as link:
            names = [name for name in names_of(link, self._keys) if matches(name, match)]
            found = self._read(link, [self._keys.news, *map(self._keys.lease, names)])
            news = self._news(found.get(self._keys.news), now_us())
        live = [name for name in names if self._keys.lease(name) in found]
        leases = [
            self._lease(name, read_row(found[self._keys.lease(name)].value, name), news)
            for name in live[(page - 1) * per_page : page * per_page]
        ]
        return LeasePage(leases=leases, total=len(live), page=page, per_page=per_page, complete=False)

    def _read(self, link: Link, keys: Sequence[str], *, sure: bool = True) -> dict[str, Item]:
        found: dict[str, Item] = {}
        for batch in _batches(keys):
            found.update(link.read(batch, sure=sure))
        return found


def _batches(requests: Sequence[Any]) -> list[Sequence[Any]]:
    return [requests[at : at + _BATCH] for at in range(0, len(requests), _BATCH)]
