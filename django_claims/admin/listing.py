"""The page of claims that was asked for: searched, filtered, sorted, cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.paginator import Paginator

from django_claims import conf
from django_claims.admin import keys, stores, words
from django_claims.admin.rows import Row
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag
from django_claims.names import checked

PER_PAGE = 100
SMALL = 1000
"""Up to so many claims a search looks at the holders too without being asked: it must read them all."""

MOST_GROUPS = 100
MOST_FOLLOWED = 100

_T = TypeVar("_T")
_Key = Callable[[Row], object]
ORDERS: dict[str, _Key] = {
    "name": lambda row: row.name,
    "holder": lambda row: (row.host, row.label, row.pid),
    "held": lambda row: row.lease.age if row.lease else 0.0,
    "beat": lambda row: row.beat_age,
    "left": lambda row: row.lease.remaining if row.lease else 0.0,
    "progress": lambda row: row.bar.fraction if row.bar else -1.0,
    "state": lambda row: list(words.STATES).index(row.state) if row.state in words.STATES else -1,
}


@dataclass(frozen=True)
class Query:
    """What the address asks for. What makes no sense in it is left out."""

    search: str = ""
    alias: str = ""
    group: str = ""
    state: str = ""
    host: str = ""
    order: str = "name"
    reverse: bool = False
    page: int = 1
    in_holders: bool = False
    followed: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: Mapping[str, str], followed: Iterable[str] = ()) -> Query:
        order = given.get("o", "name")
        page = given.get("p", "1")
        alias, state = given.get("alias", ""), given.get("state", "")
        return cls(
            search=given.get("q", "").strip()[:500],
            alias=alias if alias in conf.aliases() else "",
            group=given.get("group", "")[:500],
            state=state if state in words.STATES else "",
            host=given.get("host", "").strip()[:500],
            order=order.removeprefix("-") if order.removeprefix("-") in ORDERS else "name",
            reverse=order.startswith("-"),
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 9 else 1,
            in_holders=given.get("in") == "holders",
            followed=tuple(followed)[:MOST_FOLLOWED],
        )

    @property
    def is_filtered(self) -> bool:
        return bool(self.search or self.alias or self.group or self.state or self.host)

    @property
    def needs_leases(self) -> bool:
        """Whether more must be read than the leases of the page."""
        return bool(self.order != "name" or self.state or self.host)


Pair = tuple[str, str]
"""Name and alias: of ten thousand claims, most are never more than that to a page."""


@dataclass
class Listing:
    """One page of claims, with what a reader must know to understand it."""

    query: Query
    rows: list[Row] = field(default_factory=list)
    total: int = 0  # of those that fit
    live: int = 0
    kept: int = 0
    page: int = 1
    paginator: Paginator[Any] = field(default_factory=lambda: Paginator([], PER_PAGE))
    complete: bool = True
    names_only: bool = False  # the search left out the holders
    groups: list[tuple[str, int]] = field(default_factory=list)
    followed: list[Row] = field(default_factory=list)
    report: stores.Report = field(default_factory=stores.Report)

    def cut(self, fitting: list[_T]) -> list[_T]:
        """Return the page that was asked for, or the last one there is, and note the numbers."""
        paginator = Paginator(fitting, PER_PAGE)
        page = paginator.get_page(self.query.page)
        self.total, self.page, self.paginator = paginator.count, page.number, paginator
        return list(page)


def browse(query: Query) -> Listing:
    """Ask the stores. One that does not answer is a notice in the listing, not an error."""
    if not conf.enabled():
        return Listing(query, report=stores.Report([stores.off()]))
    return _Browsing(query).listing()


class _Browsing:
    def __init__(self, query: Query) -> None:
        self.query = query
        self.report = stores.Report()
        aliases = [query.alias] if query.alias else conf.aliases()
        self.found = {alias: stores.contents(alias, self.report) for alias in aliases}
        self._look_up(query.search)
        self.pairs: list[Pair] = [(name, alias) for alias, there in self.found.items() for name in there.names]
        self.live = set(self.pairs)
        self.kept: dict[Pair, StopFlag] = {
            (name, alias): flag
            for alias, there in self.found.items()
            for name, flag in there.flags.items()
            if flag.keep
        }

    def _look_up(self, name: str) -> None:
        """Ask for a claim by its whole name where the listing may miss it."""
        try:
            checked(name)
        except InvalidClaim:
            return
        for alias, there in self.found.items():
            if name not in there.names and (not there.complete or alias in self.report.unlisted):
                with self.report.asking(alias):
                    if lease := claim_backends[alias].lease(name):
                        there.names.append(name)
                        there.leases = {**(there.leases or {}), name: lease}

    def listing(self) -> Listing:
        query = self.query
        # In order already, but for what several stores have and what does not run.
        everything = sorted(self.pairs + [pair for pair in self.kept if pair not in self.live])
        listing = Listing(query, report=self.report, live=len(self.live), kept=len(self.kept))
        listing.groups = _groups(everything)
        listing.complete = all(there.complete for there in self.found.values())
        pairs = [pair for pair in everything if _group(pair) == query.group] if query.group else everything
        sought = query.search.casefold().split()
        if sought and not query.in_holders and len(pairs) > SMALL and not query.needs_leases:
            by_name = [pair for pair in pairs if _has_all(sought, pair[0].casefold())]
            if by_name:
                listing.names_only = True
                pairs, sought = by_name, []
        if sought or query.needs_leases:
            rows = self._fitting(self.read(pairs), sought)
            listing.rows = listing.cut(rows)
        else:
            listing.rows = self.read(listing.cut(pairs[::-1] if query.reverse else pairs))
        self._follow(listing)
        return listing

    def read(self, pairs: list[Pair]) -> list[Row]:
        """Return what the stores say of these claims now; those that have ended meanwhile are left out."""
        leases: dict[Pair, Lease] = {}
        for alias, there in self.found.items():
            wanted = [name for name, of in pairs if of == alias and (name, of) in self.live]
            with self.report.asking(alias):
                leases.update({(name, alias): lease for name, lease in there.leases_of(wanted).items()})
        rows = []
        for pair in pairs:
            name, alias = pair
            if lease := leases.get(pair):
                rows.append(Row(alias, name, lease, lease.stop_flag))
            elif pair in self.kept:
                rows.append(Row(alias, name, flag=self.kept[pair]))
        return rows

    def _fitting(self, rows: list[Row], sought: list[str]) -> list[Row]:
        query = self.query
        if sought:
            rows = [row for row in rows if _has_all(sought, f"{row.name.casefold()} {row.holder_text}")]
        if query.state:
            rows = [row for row in rows if _in_state(row, query.state)]
        if query.host:
            rows = [row for row in rows if row.host.casefold() == query.host.casefold()]
        by = ORDERS[query.order]
        # Each order compares values of one kind among themselves, which no type says.
        rows.sort(key=lambda row: by(row), reverse=query.reverse)  # type: ignore[arg-type,return-value]
        if query.order not in ("name", "state"):
            rows.sort(key=lambda row: row.lease is None)  # those that do not run come last
        return rows

    def _follow(self, listing: Listing) -> None:
        """Look what has become of the runs that somebody asked to stop: 'fence key' each."""
        wanted: list[tuple[str, Pair]] = []
        for run in self.query.followed:
            fence, _, key = run.partition(" ")
            parts = keys.find(key, lambda alias: [name for name, of in self.live if of == alias])
            if parts is not None and parts[0] in self.found:
                wanted.append((fence, (parts[1], parts[0])))
        now = {(row.name, row.alias): row for row in listing.rows}
        elsewhere = [pair for _, pair in wanted if pair not in now]
        self.live.update(elsewhere)  # a listing that may miss some does not tell that one has ended
        now.update({(row.name, row.alias): row for row in self.read(elsewhere)})
        for fence, pair in wanted:
            row = now.get(pair)
            if row is not None and row.fence == fence:
                listing.followed.append(row)
            elif pair[1] not in self.report.unanswered:  # else nobody can tell
                listing.followed.append(Row(pair[1], pair[0]))


def _group(pair: Pair) -> str:
    return pair[0].partition(":")[0]


def _has_all(words: list[str], text: str) -> bool:
    return all(word in text for word in words)


def _in_state(row: Row, state: str) -> bool:
    if state == "kept_stopped":
        return row.flag is not None and row.flag.keep
    return row.state == state


def _groups(pairs: Iterable[Pair]) -> list[tuple[str, int]]:
    """Return what stands before the first colon of the names, the most frequent ones, in order."""
    counted = Counter([name[: name.index(":")] for name, _ in pairs if ":" in name])
    return sorted(counted.most_common(MOST_GROUPS))
