"""
Stop flags and word of force-releases, over a store that can compare-and-set.

All of an alias stand in one record, the news, so that a poll is one read. A flag of a run
carries its fence and counts while the lease with that fence lives, whatever the record says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from django_claims.backends.base import BaseClaimBackend, Notice
from django_claims.backends.cache_keys import Keys
from django_claims.backends.cache_links import GONE, Item, Link, StoreError, Write
from django_claims.backends.cache_records import News, Row, flag_of, now_us, pack_news, read_news, read_row
from django_claims.backends.records import flag_words, read_flag
from django_claims.leases import RESTING, StopFlag

T = TypeVar("T")


class CacheFlags(BaseClaimBackend):
    """The verbs about stop flags."""

    _keys: Keys

    def _link(self) -> AbstractContextManager[Link]:
        raise NotImplementedError

    def _news(self, item: Item | None, now: int) -> News:
        """Return the news that were read. What cannot be read is no "not stopped": raises StoreError."""
        try:
            return read_news(item.value, now) if item else {}
        except ValueError as error:
            raise StoreError(str(error)) from error

    def _flag(self, news: News, name: str, row: Row | None) -> StopFlag | None:
        return flag_of(news, name, row, self.alias)

    def _rows(self, link: Link, names: list[str]) -> dict[str, Row | None]:
        keys = {name: self._keys.lease(name) for name in names}
        found = link.read(list(keys.values())) if keys else {}
        return {name: read_row(found[key].value, name) if key in found else None for name, key in keys.items()}

    def _run_flags(self, news: News) -> list[str]:
        return [name for (name, _), text in news.items() if text.startswith("r")]

    def _change_news(self, link: Link, change: Callable[[News, int], T]) -> T:
        """Change the news in one step, and forget what has ended. The change may be tried several times."""
        key = self._keys.news
        while True:
            item, now = link.read([key]).get(key), now_us()
            news = self._news(item, now)
            result = change(news, now)
            rows = self._rows(link, self._run_flags(news))
            for name in rows:
                if self._flag(news, name, rows[name]) is None:
                    del news[name, 0]
            packed = pack_news(news) if news else b""
            if packed == (item.value if item else b""):
                return result  # nothing to write, nor to remove
            if link.put([Write(key, packed, item, 0 if news else GONE)])[0]:
                return result
            link.hurry()

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        def change(news: News, now: int) -> StopFlag | None:
            there = None if keep else self._flag(news, name, row)
            if there is not None:
                return there  # asked before; the first one stands
            ends = now + ttl_ms * 1000 if keep and ttl_ms else 0
            of = f"k 0 {ends}" if keep or row is None else f"r {row.fence} 0"
            news[name, 0] = f"{of} {now} 0 {flag_words(reason, by)}"
            return read_flag(news[name, 0], name=name, alias=self.alias)

        row = None
        with self._link() as link:
            if not keep:
                row = self._rows(link, [name])[name]
                if row is None or row.kind == RESTING or (fence is not None and row.fence != fence):
                    return None
            return self._change_news(link, change)

    def _mark_seen(self, link: Link, row: Row) -> StopFlag | None:
        """Write down that the holder has taken note of its flag."""

        def change(news: News, now: int) -> StopFlag | None:
            flag = self._flag(news, row.name, row)
            if flag is None or flag.seen_at is not None:
                return flag
            kind, of, ends, asked, _, words = news[row.name, 0].split(" ", 5)
            news[row.name, 0] = f"{kind} {of} {ends} {asked} {now} {words}"
            return self._flag(news, row.name, row)

        return self._change_news(link, change)

    def _all_flags(self, link: Link) -> tuple[News, list[StopFlag]]:
        key = self._keys.news
        news = self._news(link.read([key]).get(key), now_us())
        runs = self._run_flags(news)
        rows = self._rows(link, runs)
        found = [self._flag(news, name, rows.get(name)) for name, fence in sorted(news) if fence == 0]
        flags = [flag for flag in found if flag is not None]
        if len(flags) < len(found):
            self._change_news(link, lambda news, now: None)  # forgets those of runs that are over
        return news, flags

    def flag(self, name: str) -> StopFlag | None:
        lease, key = self._keys.lease(name), self._keys.news
        with self._link() as link:
            found = link.read([lease, key])
            row = read_row(found[lease].value, name) if lease in found else None
            return self._flag(self._news(found.get(key), now_us()), name, row)

    def flags(self) -> list[StopFlag]:
        with self._link() as link:
            return self._all_flags(link)[1]

    def clear_flag(self, name: str) -> StopFlag | None:
        def change(news: News, now: int) -> StopFlag | None:
            flag = self._flag(news, name, row)
            news.pop((name, 0), None)
            return flag

        with self._link() as link:
            row = self._rows(link, [name])[name]
            return self._change_news(link, change)

    def poll(self) -> list[Notice]:
        with self._link() as link:
            news, flags = self._all_flags(link)
        forced = [Notice(name, forced_fence=fence) for (name, fence), text in news.items() if text.startswith("f")]
        return forced + [Notice(flag.name, flag) for flag in flags]
