"""
The text that stands for a lease or a stop flag in stores of plain values.

    lease:  1 token fence acquired_us ttl_ms heartbeat_ms kind
            holder, one line of JSON
            progress, one line of JSON or nothing
    flag:   kind fence expires_us requested_us seen_us [reason, by]

The lua/ scripts read and write the same. A lease that does not begin with this format's
number is unreadable, whatever it holds.
"""

from __future__ import annotations

import json
import re

from django_claims.clock import from_microseconds
from django_claims.leases import Lease, StopFlag, read_lease, unreadable_lease

_RECORD = re.compile(r"1 (\S+) (\d+) (\d+) (\d+) (\d+) ([a-z])\n([^\n]*)\n([^\n]*)")


def read_record(text: str, *, name: str, alias: str, now_us: int, left_ms: int, flag: StopFlag | None) -> Lease:
    """Return the lease that a record stands for; an unreadable one for anything else."""
    found = _RECORD.fullmatch(text)
    expires_us = now_us + left_ms * 1000 if left_ms >= 0 else None
    if found is None or expires_us is None:
        return unreadable_lease(name=name, alias=alias, now_us=now_us, expires_us=expires_us)
    try:
        acquired_us, ttl_ms = int(found[3]), int(found[4])
        return read_lease(
            name=name,
            alias=alias,
            fence=int(found[2]),
            kind=found[6],
            holder=found[7],
            progress=found[8],
            flag=flag,
            acquired_us=acquired_us,
            renewed_us=min(max(acquired_us, expires_us - ttl_ms * 1000), now_us),
            expires_us=expires_us,
            now_us=now_us,
            ttl_ms=ttl_ms,
            heartbeat_ms=int(found[5]),
        )
    except (ValueError, OverflowError):  # numbers that are no dates
        return unreadable_lease(name=name, alias=alias, now_us=now_us, expires_us=expires_us)


def flag_words(reason: str, by: str) -> str:
    return json.dumps([reason, by], ensure_ascii=False, separators=(",", ":"))


def read_flag(text: str, *, name: str, alias: str) -> StopFlag | None:
    """Return the stop flag that a value stands for, or None for none and for one that cannot be read."""
    try:
        kind, fence, expires, requested, seen, words = text.split(" ", 5)
        if kind not in ("r", "k"):
            return None
        reason, by, *_ = json.loads(words)
        return StopFlag(
            name=name,
            alias=alias,
            fence=int(fence) if kind == "r" else None,
            keep=kind == "k",
            reason=str(reason),
            by=str(by),
            requested_at=from_microseconds(int(requested)),
            expires_at=from_microseconds(int(expires)) if kind == "k" and int(expires) else None,
            seen_at=from_microseconds(int(seen)) if int(seen) else None,
        )
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
