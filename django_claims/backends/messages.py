"""What a backend is asked, and what it answers."""

from __future__ import annotations

import binascii
import enum
import os
from typing import Any, NamedTuple

from django_claims.exceptions import BackendUnavailable
from django_claims.holders import Holder
from django_claims.leases import Lease, StopFlag
from django_claims.tokens import Token

FORMAT = 1
"""Stands at the head of every record. A record with a larger number is unreadable, and left alone."""

_SECRETS = ("token", "ticket")


def new_token() -> str:
    """Return 16 random bytes as 22 characters."""
    return Token(binascii.b2a_base64(os.urandom(16), newline=False).decode().rstrip("="))


def without_token(request: Any) -> str:
    """Show a request as an error page may: an owner token is a password."""
    shown = ", ".join(f"{name}={value!r}" for name, value in request._asdict().items() if name not in _SECRETS)
    return f"{type(request).__name__}({shown})"


class AcquireRequest(NamedTuple):
    """
    One name that is wanted.

    `over_fence`: take over from that run, whose holder is known to be dead. `place`: of a
    waiter (see there); in the first of several requests it counts for all.
    """

    name: str
    token: str
    ttl_ms: int
    heartbeat_ms: int
    holder: Holder
    over_fence: int | None = None
    place: str = ""

    def __repr__(self) -> str:
        return without_token(self)


class Grant(NamedTuple):
    """The store said yes. Times are the store's, in microseconds after 1970."""

    fence: int
    acquired_us: int


class Refusal(NamedTuple):
    """
    The store said no: `lease` has it, or `flag` keeps it stopped, or (neither) it is owed to one who waits.

    `again_ms`: the waiter will be told when its turn comes, and should ask anew by then at the
    latest. None: it has to look.
    """

    name: str
    lease: Lease | None = None
    flag: StopFlag | None = None
    again_ms: int | None = None
    now_us: int = 0  # by the store's clock, when it keeps a line


class RenewRequest(NamedTuple):
    """One lease to be pushed back. `progress` is packed, or None if it has not changed."""

    name: str
    token: str
    fence: int
    ttl_ms: int
    progress: str | None = None
    seen: bool = False  # the holder has taken note of its stop flag

    def __repr__(self) -> str:
        return without_token(self)


class Renewal(enum.Enum):
    """What the store said to a renewal."""

    RENEWED = enum.auto()
    GONE = enum.auto()  # nobody has it
    TAKEN = enum.auto()  # another token has it
    FORCED = enum.auto()  # an operator ended it
    UNKNOWN = enum.auto()  # its part of the store gave no answer; from backends over several servers only


class RenewAnswer(NamedTuple):
    outcome: Renewal
    flag: StopFlag | None = None
    now_us: int = 0


class ReleaseRequest(NamedTuple):
    """One lease to be ended. `rest_ms` > 0: leave it resting for so long instead."""

    name: str
    token: str
    fence: int = 0
    rest_ms: int = 0

    def __repr__(self) -> str:
        return without_token(self)


class Released(enum.Enum):
    """What the store said to a release."""

    RELEASED = enum.auto()
    GONE = enum.auto()
    NOT_OWNER = enum.auto()


class HandOverRequest(NamedTuple):
    """One lease to be kept for whoever has a ticket. `ticket` is a digest of it, and takes the token's place."""

    name: str
    token: str
    ticket: str
    valid_ms: int

    def __repr__(self) -> str:
        return without_token(self)


class AdoptRequest(NamedTuple):
    """One lease that was handed over, to be gone on with. All requests of one call have one ticket and one token."""

    name: str
    ticket: str
    token: str
    ttl_ms: int
    heartbeat_ms: int
    holder: Holder

    def __repr__(self) -> str:
        return without_token(self)


class Adopted(NamedTuple):
    """The ticket was good. Fence, start and progress (packed) are those of the run that goes on."""

    fence: int
    acquired_us: int
    now_us: int
    progress: str = ""
    flag: StopFlag | None = None


def sure(answers: list[Released], again: bool, alias: str) -> list[Released]:
    """
    Return the answers to a release, unless it was sent `again` and they may be about what the first one left.

    Raises BackendUnavailable then: what is gone, or another's by now, may have been released by us.
    """
    if again and any(answer is not Released.RELEASED for answer in answers):
        raise BackendUnavailable(alias, "the connection ended before it answered, and the lease was gone afterwards")
    return answers


class Notice(NamedTuple):
    """News for the holders of a name: a stop flag, or that the run with the fence was force-released."""

    name: str
    flag: StopFlag | None = None
    forced_fence: int | None = None
