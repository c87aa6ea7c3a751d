"""How an acquisition ends, if not with a hold that keeps a lease."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from django_claims.backends.base import Refusal, new_token
from django_claims.exceptions import ClaimHeld, ClaimRefused, ClaimStopped
from django_claims.holders import this_holder
from django_claims.holds import Hold
from django_claims.leases import Lease, StopFlag

if TYPE_CHECKING:
    from django_claims.claims import Claim

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no hold."""

    name: str
    lease: Lease | None = None
    flag: StopFlag | None = None
    reentrant: bool = False
    answer: Refusal | None = None  # of the store

    @property
    def is_final(self) -> bool:
        """Whether waiting is of no use: it is held here, or kept stopped."""
        return self.reentrant or self.flag is not None

    def error(self) -> ClaimRefused:
        if self.flag is not None:
            return ClaimStopped(self.name, self.flag)
        return ClaimHeld(self.name, self.lease, self.reentrant)


def off_hold(claim: Claim) -> Hold:
    """Return a hold that is always held and asks no store: claims are off, or the command was told not to care."""
    return Hold(
        keeper=None,
        names=claim.names,
        token=new_token(),
        holder=this_holder(claim.label),
        ttl_ms=0,
        heartbeat_ms=0,
        renew_deadline_ms=0,
        stop_on_shutdown=claim.stop_on_shutdown,
    )


async def outcome_of(trying: Future[T]) -> T:
    """
    Wait for a try that was begun in a thread, and return what came of it.

    It goes on there, with or without a loop: what it is granted once this task was cancelled goes back.
    """
    try:
        return await asyncio.wrap_future(trying)
    except asyncio.CancelledError:
        trying.add_done_callback(_give_back)
        raise


def _give_back(trying: Future[Any]) -> None:
    """Let go of what was granted to a task that was cancelled meanwhile."""
    if trying.cancelled() or trying.exception() is not None:
        return
    hold = trying.result()
    if isinstance(hold, Hold) and hold.retire() is not None and hold._keeper is not None:
        hold._keeper.drop(hold)
        hold._keeper.delete_later(hold.as_orphan())
