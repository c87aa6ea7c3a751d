"""What a store says about claims at one moment: frozen snapshots, JSON-ready, without tokens."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from django_claims.clock import ago, from_microseconds, iso, wall
from django_claims.exceptions import ClaimStopped
from django_claims.holders import Holder


class LossReason(enum.StrEnum):
    """Why a hold is lost."""

    EXPIRED = "expired"
    TAKEN = "taken"
    FORGOTTEN = "forgotten"
    FORCED = "forced"
    FORKED = "forked"
    MAX_HOLD = "max_hold"

    @property
    def sentence(self) -> str:
        return {
            "expired": "it could not be renewed in time",
            "taken": "another holder has it",
            "forgotten": "the store has forgotten it (cleared, evicted, restarted or failed over)",
            "forced": "an operator force-released it",
            "forked": "it belongs to the process that this one was forked from",
            "max_hold": "it was held for max_hold, the longest it may be",
        }[self.value]


class ReleaseResult(enum.StrEnum):
    """What became of a release; only RELEASED is true."""

    RELEASED = "released"
    NOT_HELD = "not_held"  # this hold was released before
    NOT_OWNER = "not_owner"  # somebody else has it now
    EXPIRED = "expired"  # nobody has it: it had ended by itself
    UNKNOWN = "unknown"  # the store did not answer; it ends with the TTL at the latest

    def __bool__(self) -> bool:
        return self is ReleaseResult.RELEASED


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """
    How far a holder says it is. `at` is by the holder's wall clock.

    `kept` is what the holder keeps there for whoever comes after it, and shown to nobody.
    """

    done: int | float | None = None
    total: int | float | None = None
    note: str = ""
    at: datetime | None = None
    kept: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"done": self.done, "total": self.total, "note": self.note, "at": iso(self.at)}

    def pack(self) -> str:
        at = self.at.timestamp() if self.at else 0
        kept = [self.kept] if self.kept else []
        return json.dumps([self.done, self.total, self.note, at, *kept], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def unpack(cls, text: str) -> Progress | None:
        """Read what pack() wrote; '' is none. Raises ValueError for anything else."""
        if not text:
            return None
        try:
            done, total, note, at, *rest = json.loads(text)
            kept = str(rest[0]) if rest else ""
            return cls(done=done, total=total, note=str(note), at=from_microseconds(int(at * 1e6)), kept=kept)
        except (TypeError, OverflowError, RecursionError) as error:
            raise ValueError("not a progress") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFlag:
    """
    An operator's request that work should end.

    Bound to the run with the fence, and gone with it; or, with `keep`, for whoever has or
    wants the claim, until it is cleared or expires. `seen_at` is when the holder's process
    took note of it.
    """

    name: str
    alias: str
    fence: int | None
    keep: bool
    reason: str = ""
    by: str = ""
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    seen_at: datetime | None = None

    def __json__(self) -> str:
        """Return what is left of it in an error that was written as JSON."""
        return str(ClaimStopped(self.name, self))

    def aims_at(self, fence: int) -> bool:
        """Say whether it asks the run with this fence to end."""
        return self.keep or self.fence == fence

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "alias": self.alias,
            "fence": self.fence,
            "keep": self.keep,
            "reason": self.reason,
            "by": self.by,
            "requested_at": iso(self.requested_at),
            "expires_at": iso(self.expires_at),
            "seen_at": iso(self.seen_at),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """
    What the store said about one claim at one moment.

    A snapshot: renewing, losing or releasing the claim does not change it. Times are by the
    store's clock; `age` and `remaining` are seconds as of `read_at`. `holder` is None if
    nobody is named: the lease is resting or unreadable (its fence is then 0). One that was
    handed over names who had it, and its ttl is how long the ticket was good for.
    """

    name: str
    alias: str
    fence: int
    holder: Holder | None
    state: str  # held | stop_asked | stopping | overdue | resting | handed_over | unreadable
    acquired_at: datetime | None
    renewed_at: datetime | None
    expires_at: datetime | None
    read_at: datetime
    ttl: float
    heartbeat: float
    age: float
    remaining: float
    progress: Progress | None = None
    stop_flag: StopFlag | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "alias": self.alias,
            "fence": self.fence,
            "holder": self.holder.as_dict() if self.holder else None,
            "state": self.state,
            "acquired_at": iso(self.acquired_at),
            "renewed_at": iso(self.renewed_at),
            "expires_at": iso(self.expires_at),
            "read_at": iso(self.read_at),
            "ttl": self.ttl,
            "heartbeat": self.heartbeat,
            "age": self.age,
            "remaining": self.remaining,
            "progress": self.progress.as_dict() if self.progress else None,
            "stop_flag": self.stop_flag.as_dict() if self.stop_flag else None,
        }

    def __json__(self) -> str:
        """Return what is left of it in an error that was written as JSON, which Celery does."""
        return self.sentence()

    @property
    def is_followed(self) -> bool:
        """Whether it ends with the death of its holder: others name no process, and end by time."""
        return self.state not in ("resting", "handed_over", "unreadable") and self.holder is not None

    def sentence(self) -> str:
        """Answer the person at the terminal: who has it, since when, how fresh, how long still."""
        if self.state == "unreadable":
            return (
                f"Claim {self.name!r} has a lease that cannot be read (a foreign value, or one of a newer "
                f"version). It ends by its time, or by force_release({self.name!r}, fence=0)."
            )
        if self.state == "resting":
            return f"Claim {self.name!r} is resting after its last run (min_hold) for {ago(self.remaining)} more."
        by = str(self.holder) if self.holder else "another process"
        if self.state == "handed_over":
            return (
                f"Claim {self.name!r} was handed over by {by}, and is kept for {ago(self.remaining)} more for whoever "
                f"has the ticket."
            )
        since = f" since {local_time(self.acquired_at)}" if self.acquired_at else ""
        beat = (self.read_at - self.renewed_at).total_seconds() if self.renewed_at else 0.0
        return (
            f"Claim {self.name!r} is held by {by}{since}, last heartbeat {ago(beat)} ago, {self.remaining:.0f} s left."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePage:
    """One page of live leases, in order of name. `complete` is False where the store may miss some."""

    leases: list[Lease]
    total: int
    page: int
    per_page: int
    complete: bool = True

    def __iter__(self) -> Iterator[Lease]:
        return iter(self.leases)

    def __len__(self) -> int:
        return len(self.leases)

    def as_dict(self) -> dict[str, Any]:
        return {
            "leases": [lease.as_dict() for lease in self.leases],
            "total": self.total,
            "page": self.page,
            "per_page": self.per_page,
            "complete": self.complete,
        }


HELD, RESTING, HANDED_OVER = "h", "r", "o"


def read_lease(
    *,
    name: str,
    alias: str,
    fence: int,
    kind: str,
    holder: str,
    progress: str,
    flag: StopFlag | None,
    acquired_us: int,
    renewed_us: int,
    expires_us: int,
    now_us: int,
    ttl_ms: int,
    heartbeat_ms: int,
) -> Lease:
    """Return a lease from what a store keeps of it: integers, and JSON lines that may be broken."""
    try:
        who = Holder.unpack(holder) if kind != RESTING else None
        how_far = Progress.unpack(progress)
    except ValueError:
        return unreadable_lease(name=name, alias=alias, now_us=now_us, expires_us=expires_us)
    if flag is not None and not flag.aims_at(fence):
        flag = None
    if kind == RESTING:
        state = "resting"
    elif kind == HANDED_OVER:
        state = "handed_over"
    elif now_us - renewed_us > heartbeat_ms * 1500 + 2_000_000:
        state = "overdue"
    elif flag is not None:
        state = "stopping" if flag.seen_at else "stop_asked"
    else:
        state = "held"
    return Lease(
        name=name,
        alias=alias,
        fence=fence,
        holder=who,
        state=state,
        acquired_at=from_microseconds(acquired_us),
        renewed_at=from_microseconds(renewed_us),
        expires_at=from_microseconds(expires_us),
        read_at=from_microseconds(now_us),
        ttl=ttl_ms / 1000,
        heartbeat=heartbeat_ms / 1000,
        # A store's clock may be set back; an age is never negative.
        age=max(now_us - acquired_us, 0) / 1e6,
        remaining=max(expires_us - now_us, 0) / 1e6,
        progress=how_far,
        stop_flag=flag,
    )


def unreadable_lease(*, name: str, alias: str, now_us: int, expires_us: int | None) -> Lease:
    """Return what can be said of a value under our key that is not a lease of ours."""
    return Lease(
        name=name,
        alias=alias,
        fence=0,
        holder=None,
        state="unreadable",
        acquired_at=None,
        renewed_at=None,
        expires_at=None if expires_us is None else from_microseconds(expires_us),
        read_at=from_microseconds(now_us),
        ttl=0.0,
        heartbeat=0.0,
        age=0.0,
        remaining=0.0 if expires_us is None else max(expires_us - now_us, 0) / 1e6,
    )


def local_time(moment: datetime) -> str:
    """Return a time for the terminal: of today without the date, else with it, by the project's zone."""
    local = timezone.localtime(moment)
    if local.date() == timezone.localtime(wall()).date():
        return f"{local:%H:%M:%S}"
    return f"{local:%Y-%m-%d %H:%M:%S %Z}".rstrip()
