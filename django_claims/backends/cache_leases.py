"""Leases kept, ended and read, over a store that can add and compare-and-set; see cache.py for such stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from django_claims.backends.base import (
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    sure,
)
from django_claims.backends.cache_granting import CacheGranting, batches
from django_claims.backends.cache_index import names_of
from django_claims.backends.cache_links import GONE, Item, Link, Write
from django_claims.backends.cache_records import News, Row, now_us, read_row, store_seconds
from django_claims.leases import RESTING, Lease, LeasePage
from django_claims.names import matches

R = TypeVar("R", RenewRequest, ReleaseRequest)
A = TypeVar("A", RenewAnswer, Released)


class _Plan(NamedTuple):
    """What to write for one request, and the lease that it makes or ends."""

    write: Write
    row: Row


class CacheLeases(CacheGranting):
    """The verbs about leases, but for acquire."""

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
            for batch in batches(list(asked.items())):
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
                    # mypy infers no type for a lambda with defaults.
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
