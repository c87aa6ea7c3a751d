"""Acquiring: try, wait, and try again; on a thread or on a loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress

from django_claims.backends.base import GRANT_SECONDS, LEAVE, Waiter
from django_claims.backends.waiters import Bell
from django_claims.clock import clock, to_wait
from django_claims.deaths import deaths, watched
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from django_claims.holds import Hold
from django_claims.offload import start
from django_claims.outcomes import Refused, outcome_of
from django_claims.trying import Trying

FRESH_SECONDS = 0.25
"""How old a pushed grant may be to be begun with at once."""


class Acquiring(Trying):
    """One acquisition of one recipe, with its waiting."""

    _waiter: Waiter | None = None

    def acquire(self) -> Hold | Refused:
        """Try, and try again until the timeout is over; the last try is at its end."""
        if (refused := self.refused_here()) is not None:
            return self.done(refused)
        if self.timeout == 0 or not self.enabled:
            return self.done(self.once())
        bell = Bell()
        waiter = self._waiter = claim_backends[self.alias].wait(self.claim.names, bell.ring)
        try:
            while True:
                outcome = self.once()
                if isinstance(outcome, Hold) or outcome.is_final or (left := self._left()) <= 0:
                    return self.done(outcome)
                if self._on_wait is not None:
                    self._on_wait(outcome)
                with watched(self._followed(outcome), bell.ring):
                    waiter.sleep(bell, to_wait(min(left, self._pause(waiter, outcome)), left))
                if (hold := self._pushed(waiter)) is not None:
                    return self.done(hold)
        finally:
            self._wait_no_more(waiter)

    async def aacquire(self) -> Hold | Refused:
        """See acquire(). Sleeps on the loop, and takes a thread for single tries only."""
        if (refused := self.refused_here()) is not None:
            return self.done(refused)
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            loop.call_soon_threadsafe(rung.set)

        waiter: Waiter | None = None
        trying: Future[Hold | Refused] | None = None
        if self.timeout != 0 and self.enabled:
            waiter = self._waiter = claim_backends[self.alias].wait(self.claim.names, ring)
        try:
            while True:
                trying = start(self.once, kind="try")
                outcome = await outcome_of(trying)
                if isinstance(outcome, Hold) or outcome.is_final or waiter is None or (left := self._left()) <= 0:
                    return self.done(outcome)
                with watched(self._followed(outcome), ring), suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), to_wait(min(left, self._pause(waiter, outcome)), left))
                rung.clear()
                if (hold := self._pushed(waiter)) is not None:
                    return self.done(hold)
        finally:
            if waiter is not None and trying is None:
                waiter.close()
            elif waiter is not None and trying is not None:
                trying.add_done_callback(lambda _: self._wait_no_more(waiter))  # at once, unless it is under way

    def _prepare(self) -> None:
        """Say how the next try stands in line: the last one leaves it."""
        waiter = self._waiter
        if waiter is None:
            return
        if (left := self._left()) > 0:
            waiter.prepare(min(self._hurry, left))
            self._place = waiter.place
        elif self._place:
            self._place = LEAVE

    def _has_died(self, holder: Holder) -> bool:
        return holder.is_dead() if self._waiter is None else deaths.is_dead(holder)

    def _pause(self, waiter: Waiter, refused: Refused) -> float:
        return waiter.pause(refused.answer) if refused.answer is not None else 0.0

    def _pushed(self, waiter: Waiter) -> Hold | None:
        """
        Return a hold if the store has just granted it, without asking: it is confirmed by its first renewal.

        Until then it is held for a shorter time. One that was long under way, or that there is
        little time for, is confirmed by a try instead.
        """
        pushed = waiter.granted()
        if pushed is None or clock() - pushed[1] > FRESH_SECONDS:
            return None
        grant, granted_at = pushed
        deadline = min(self.renew_deadline_ms / 1000, GRANT_SECONDS * 2 / 3)
        if deadline < 4 * FRESH_SECONDS:
            return None
        try:
            hold = self._granted([grant], granted_at, deadline)
        except BaseException:
            self._delete_later()
            self._place = ""
            raise
        self._place = ""
        hold.is_slow = self._was_slow
        return hold

    def _followed(self, refused: Refused) -> Holder | None:
        """Return the holder if it is worth a look whether it lives: the store cannot know."""
        lease = refused.lease
        return lease.holder if lease is not None and lease.is_followed and self._follow_dead else None

    def _wait_no_more(self, waiter: Waiter) -> None:
        waiter.close()
        if self._place not in ("", LEAVE):
            # It left by an exception, or its last try came too late for the line to be told.
            self._delete_later(once=not self._was_slow)

    def _left(self) -> float:
        return float("inf") if self.timeout is None else self.started + self.timeout - clock()
