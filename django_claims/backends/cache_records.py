"""
What stands in a cache: plain text of our own, read back with suspicion.

    lease   the three lines of records.py, and a fourth: renewed_us expires_us name
    news    1, then a line for each: name, a tab, a flag as in records.py; or kind f, word of a force-release
    index   1, then a line for each: seen_s name
    fence   a number

A cache tells neither its time nor when a key ends, so a lease brings its own times, by the
clock of the machine that wrote it. They are for display: whether it lives is the store's to say.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import NamedTuple

from django_claims.backends.records import read_flag
from django_claims.leases import HANDED_OVER, HELD, RESTING, Lease, StopFlag, read_lease, unreadable_lease

_ROW = re.compile(
    r"1 (\S+) ([0-9]{1,19}) ([0-9]{1,17}) ([0-9]{1,14}) ([0-9]{1,14}) ([a-z])\n([^\n]*)\n([^\n]*)\n"
    r"([0-9]{1,17}) ([0-9]{1,17}) ([^\n]*)"
)


def now_us() -> int:
    """Return the time of day of this machine, which test tools that freeze time leave alone."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1000 if hasattr(time, "clock_gettime_ns") else _time_us()


def _time_us() -> int:
    return time.time_ns() // 1000


def store_seconds(ttl_ms: int) -> int:
    """Return a TTL in whole seconds, rounded up, and one more: a store that counts them may be in its last."""
    return -(-ttl_ms // 1000) + 1


class Row(NamedTuple):
    """A lease as it stands in the cache."""

    name: str
    token: str
    fence: int
    kind: str
    holder: str
    acquired_us: int
    renewed_us: int
    expires_us: int
    ttl_ms: int
    heartbeat_ms: int
    progress: str = ""

    def pack(self) -> bytes:
        return (
            f"1 {self.token} {self.fence} {self.acquired_us} {self.ttl_ms} {self.heartbeat_ms} {self.kind}\n"
            f"{self.holder}\n{self.progress}\n{self.renewed_us} {self.expires_us} {self.name}"
        ).encode()

    def is_held_by(self, token: str) -> bool:
        return self.kind == HELD and self.token == token

    def is_handed_over_by(self, ticket: str) -> bool:
        return self.kind == HANDED_OVER and self.token == ticket


def read_row(value: bytes, name: str) -> Row | None:
    """Return the lease that a value stands for, or None if it is none of ours or another name's."""
    try:
        found = _ROW.fullmatch(value.decode())
    except ValueError:
        return None
    if found is None or found[11] != name or found[6] not in (HELD, RESTING, HANDED_OVER):
        return None
    return Row(
        name=name,
        token=found[1],
        fence=int(found[2]),
        kind=found[6],
        holder=found[7],
        acquired_us=int(found[3]),
        renewed_us=int(found[9]),
        expires_us=int(found[10]),
        ttl_ms=int(found[4]),
        heartbeat_ms=int(found[5]),
        progress=found[8],
    )


def lease_of(row: Row | None, *, name: str, alias: str, now: int, flag: StopFlag | None) -> Lease:
    """Return what people see of a live lease; None stands for one that cannot be read."""
    if row is None:
        return unreadable_lease(name=name, alias=alias, now_us=now, expires_us=None)
    ahead = max(row.renewed_us - now, 0)  # of a machine whose clock is
    try:
        return read_lease(
            name=name,
            alias=alias,
            fence=row.fence,
            kind=row.kind,
            holder=row.holder,
            progress=row.progress,
            flag=flag,
            acquired_us=row.acquired_us,
            renewed_us=row.renewed_us - ahead,
            expires_us=max(row.expires_us - ahead, now),  # past its TTL, and the store still keeps it
            now_us=now,
            ttl_ms=row.ttl_ms,
            heartbeat_ms=row.heartbeat_ms,
        )
    except (ValueError, OverflowError):  # numbers that are no dates
        return unreadable_lease(name=name, alias=alias, now_us=now, expires_us=None)


News = dict[tuple[str, int], str]
"""By name and 0: a stop flag. By name and fence: word that the run was force-released."""


def read_news(value: bytes, now: int) -> News:
    """Return what has not ended. Raises ValueError for what is not ours to read."""
    head, *lines = value.decode().split("\n")
    if head != "1":
        raise ValueError("the stop flags are in a format that this version does not know")
    news: News = {}
    for line in lines:
        name, text = line.split("\t", 1)
        kind, fence, ends, _ = text.split(" ", 3)
        if int(ends) == 0 or int(ends) > now:
            news[name, int(fence) if kind == "f" else 0] = text
    return news


def pack_news(news: Mapping[tuple[str, int], str]) -> bytes:
    return "\n".join(["1", *(f"{name}\t{news[name, fence]}" for name, fence in sorted(news))]).encode()


def flag_of(news: News, name: str, row: Row | None, alias: str) -> StopFlag | None:
    """Return the stop flag of a name: one of a run only while that run lives, and works."""
    text = news.get((name, 0))
    flag = read_flag(text, name=name, alias=alias) if text else None
    if flag is None or flag.keep:
        return flag
    return flag if row is not None and row.kind != RESTING and flag.fence == row.fence else None


def read_index(value: bytes | None) -> dict[str, int]:
    """Return when each name of one part of the index was last seen to live, in seconds after 1970."""
    names: dict[str, int] = {}
    head, *lines = (value or b"").decode(errors="replace").split("\n")
    for line in lines if head == "1" else []:
        seen, _, name = line.partition(" ")
        if seen.isdecimal() and len(seen) < 15 and name:
            names[name] = int(seen)
    return names


def pack_index(names: Mapping[str, int]) -> bytes:
    return "\n".join(["1", *(f"{seen} {name}" for name, seen in names.items())]).encode()
