"""The statements of DatabaseBackend, and what its rows say."""

from __future__ import annotations

import functools
from collections import namedtuple
from typing import Any

from django.db.models import Case, CharField, F, Q, Value, When
from django.db.models.functions import Greatest

from django_claims.backends.base import FORMAT
from django_claims.backends.records import read_flag
from django_claims.backends.sql import (
    FIELDS,
    Now,
    Slot,
    Statement,
    StatementNow,
    Told,
    delete,
    insert,
    select,
    slots,
    text,
    update,
)
from django_claims.database.models import LeaseRow
from django_claims.leases import HANDED_OVER, HELD, RESTING, Lease, StopFlag, read_lease, unreadable_lease

FOREVER = 2**62
DAY_US = 86_400_000_000
BATCH = 300
"""Names in one statement: SQLite takes some 999 parameters."""
SAMPLE = 200
"""Rows that are looked at in one go for old ones."""

_Row = namedtuple("_Row", [*FIELDS, "now"])  # type: ignore[misc]  # mypy wants the fields spelled out


def row_of(values: tuple[Any, ...]) -> Any:
    """Return the columns by name, and as `now` the clock when they were read."""
    return _Row(*values)


rows = LeaseRow._default_manager.all()
the_row = rows.filter(digest=text("digest"))
# Of two that saw the same row, one finds it changed.
as_seen = the_row.filter(fence=Slot("seen_fence"), token=text("seen_token"))
owned = the_row.filter(token=text("token"), expires_us__gt=Now())
kept = Q(flag_kind="k") & (Q(flag_ends_us=0) | Q(flag_ends_us__gt=Now()))
# A run's flag ends with the run; a kept one stays.
no_run_flag = {
    "flag_kind": Case(When(flag_kind="k", then=Value("k")), default=Value(""), output_field=CharField()),
    "news_until_us": Case(When(flag_kind="k", then=F("news_until_us")), default=Value(0)),
}
NOTHING: dict[str, Any] = {"holder": "", "progress": ""}
ENDED = Now() * -1
"""What stands for the expiry of a lease that was ended, and when: a clock that is set back does not revive it."""
# What a grant writes, whether the name has a row or not.
granted: dict[str, Any] = {
    "format": FORMAT,
    "token": text("token"),
    "fence": Slot("fence"),
    "kind": HELD,
    "holder": text("holder"),
    "progress": "",
    "ttl_ms": Slot("ttl_ms"),
    "heartbeat_ms": Slot("heartbeat_ms"),
    "acquired_us": Slot("acquired_us"),
    "renewed_us": Now(),
    "expires_us": Now() + Slot("ttl_us"),
    "flag_kind": "",
}

LOOK = Statement(lambda: select(the_row))
TAKE = Statement(
    lambda: update(
        as_seen.filter(Q(expires_us__lte=Now()) | Q(fence=Slot("over"))).exclude(kept),
        **granted,
        news_until_us=Slot("news_until_us"),
    )
)
# What a name without a row has besides.
no_flag: dict[str, Any] = {
    "flag_ends_us": 0,
    "flag_asked_us": 0,
    "flag_seen_us": 0,
    "flag_words": "",
    "forced_fence": 0,
    "forced_until_us": 0,
    "news_until_us": 0,
}
NEW = Statement(lambda: insert(digest=text("digest"), name=text("name"), **granted, **no_flag))
# The same two where one name is wanted and nobody has looked: the database says when and by which fence.
by_the_clock: dict[str, Any] = {**granted, "acquired_us": StatementNow()}
TAKE_FREE = Statement(
    lambda: update(
        # Without news, so that nothing has to be written of them: there is an index on those.
        the_row.filter(expires_us__lte=Now(), news_until_us__lte=Now()).exclude(kept),
        **{**by_the_clock, "fence": Told(Greatest(F("fence") + 1, StatementNow()))},
    ),
    tells=True,
)
NEW_BY_THE_CLOCK = Statement(
    lambda: insert(
        digest=text("digest"), name=text("name"), **{**by_the_clock, "fence": Told(StatementNow())}, **no_flag
    ),
    tells=True,
)
WRITE_PROGRESS = Statement(lambda: update(owned, progress=text("progress")))
SEE_FLAG = Statement(lambda: update(owned.filter(flag_seen_us=0).exclude(flag_kind=""), flag_seen_us=Now()))
END = Statement(lambda: update(owned.filter(flag_kind=""), token="", expires_us=ENDED, **NOTHING))
END_FLAGGED = Statement(lambda: update(owned, token="", expires_us=ENDED, **NOTHING, **no_run_flag))
REST = Statement(
    lambda: update(owned, token="", kind=RESTING, expires_us=Now() + Slot("rest_us"), **NOTHING, **no_run_flag)
)
HAND_OVER = Statement(
    lambda: update(
        owned.filter(kind=HELD),
        token=text("ticket"),
        kind=HANDED_OVER,
        ttl_ms=Slot("ttl_ms"),
        renewed_us=Now(),
        expires_us=Now() + Slot("ttl_us"),
    )
)
ADOPT = Statement(
    lambda: update(
        the_row.filter(token=text("ticket"), kind=HANDED_OVER, expires_us__gt=Now()),
        token=text("token"),
        kind=HELD,
        holder=text("holder"),
        ttl_ms=Slot("ttl_ms"),
        heartbeat_ms=Slot("heartbeat_ms"),
        renewed_us=Now(),
        expires_us=Now() + Slot("ttl_us"),
    )
)
FORCE = Statement(
    lambda: update(
        as_seen.filter(expires_us__gt=Now()),
        token="",
        expires_us=ENDED,
        forced_fence=F("fence"),
        forced_until_us=Now() + F("ttl_ms") * 1000,
        flag_kind=no_run_flag["flag_kind"],
        news_until_us=Case(When(flag_kind="k", then=F("news_until_us")), default=Now() + F("ttl_ms") * 1000),
        **NOTHING,
    )
)
ASK_RUN = Statement(
    lambda: update(
        as_seen.filter(expires_us__gt=Now()),
        flag_kind="r",
        flag_ends_us=0,
        flag_asked_us=Now(),
        flag_seen_us=0,
        flag_words=text("words"),
        news_until_us=FOREVER,
    )
)
KEEP = Statement(
    lambda: update(
        the_row,
        flag_kind="k",
        flag_ends_us=Slot("ends_us"),
        flag_asked_us=Slot("asked_us"),  # the time from which its end was counted
        flag_seen_us=0,
        flag_words=text("words"),
        news_until_us=Slot("news_until_us"),
    )
)
CLEAR = Statement(
    lambda: update(the_row.filter(flag_kind=text("flag_kind")), flag_kind="", news_until_us=Slot("news_until_us"))
)
NEWS = Statement(lambda: select(rows.filter(news_until_us__gt=Now())))
LIVE = Statement(lambda: rows.filter(expires_us__gt=Now()).values_list("name").query)
SOME = Statement(
    lambda: (
        rows.filter(digest__gte=text("start"))
        .order_by("digest")
        .annotate(now=Now())
        .values_list("digest", "expires_us", "news_until_us", "now")[:SAMPLE]
        .query
    )
)
# Expired, or ended, a day ago.
old = Q(expires_us__gt=DAY_US - Now(), expires_us__lt=Now() - DAY_US, news_until_us__lt=Now())


@functools.cache
def look_many(count: int) -> Statement:
    return Statement(lambda: select(rows.filter(digest__in=slots("digest", count))))


@functools.cache
def renew_many(count: int) -> Statement:
    return Statement(
        lambda: update(
            rows.filter(
                digest__in=slots("digest", count), token__in=slots("token", count), kind=HELD, expires_us__gt=Now()
            ),
            ttl_ms=Slot("ttl_ms"),
            renewed_us=Now(),
            expires_us=Now() + Slot("ttl_us"),
        )
    )


@functools.cache
def end_many(count: int) -> Statement:
    return Statement(
        lambda: update(
            rows.filter(digest__in=slots("digest", count), token__in=slots("token", count), expires_us__gt=Now()),
            token="",
            expires_us=ENDED,
            **NOTHING,
            **no_run_flag,
        )
    )


@functools.cache
def forget_many(count: int) -> Statement:
    return Statement(lambda: delete(rows.filter(old, digest__in=slots("digest", count))))


def is_live(row: Any) -> bool:
    return bool(row.expires_us > row.now)


def is_forced(row: Any, fence: int) -> bool:
    """Say whether there is word that an operator ended the run with that fence."""
    return bool(row.forced_fence == fence and row.forced_until_us > row.now)


def flag_of(row: Any, alias: str) -> StopFlag | None:
    """Return the live stop flag of a row."""
    live = is_live(row) if row.flag_kind == "r" else not row.flag_ends_us or row.flag_ends_us > row.now
    if not row.flag_kind or not live:
        return None
    value = (row.flag_kind, row.fence, row.flag_ends_us, row.flag_asked_us, row.flag_seen_us, row.flag_words)
    return read_flag(" ".join(map(str, value)), name=row.name, alias=alias)


def lease_of(row: Any, alias: str) -> Lease | None:
    """Return the live lease of a row."""
    if not is_live(row):
        return None
    if row.format > FORMAT:
        return unreadable_lease(name=row.name, alias=alias, now_us=row.now, expires_us=row.expires_us)
    return read_lease(
        name=row.name,
        alias=alias,
        fence=row.fence,
        kind=row.kind,
        holder=row.holder,
        progress=row.progress,
        flag=flag_of(row, alias),
        acquired_us=row.acquired_us,
        renewed_us=row.renewed_us,
        expires_us=row.expires_us,
        now_us=row.now,
        ttl_ms=row.ttl_ms,
        heartbeat_ms=row.heartbeat_ms,
    )
