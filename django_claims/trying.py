"""
One acquisition, from the first try to the grant.

    now    send      reply                     deadline                  TTL ends
     |------|----------|--------- held ------------|--- time to stop --------|
            ^ everything is counted from here

The token is made once and sent with each try, so that a reply that was lost refuses nobody.
Whatever goes wrong once a request may be on its way, the token is deleted behind it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django_claims import conf, interrupts, registry, shutdown, signals
from django_claims.backends.base import AcquireRequest, Grant, Refusal, new_token, within
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable, InvalidClaim
from django_claims.handler import claim_backends
from django_claims.holders import Holder, ProcessId, this_holder
from django_claims.holds import SLOW_SECONDS, Hold, orphan_of
from django_claims.keeper import keeper_of
from django_claims.leases import Lease
from django_claims.logs import get_logger
from django_claims.names import cut
from django_claims.outcomes import Refused, off_hold

if TYPE_CHECKING:
    from django_claims.claims import Claim

logger = get_logger(__name__)

CONFIRM_SECONDS = 0.2
"""When it is renewed for the first time, which confirms it. A shorter hold needs no renewal."""


class Trying:
    """One acquisition of one recipe, try by try."""

    def __init__(
        self,
        claim: Claim,
        timeout: float | None,
        *,
        watch: str | None = None,
        trip: Callable[[], Any] | None = None,
        task: asyncio.Task[Any] | None = None,
        on_loss: Callable[[Hold], Any] | None = None,
        on_wait: Callable[[Refused], Any] | None = None,
        processes: tuple[ProcessId, ...] = (),
        node: str = "",
        task_id: str = "",
    ) -> None:
        self.claim = claim
        self.alias = claim.using
        self.timeout = timeout
        self._watch, self._trip, self._on_wait = watch, trip, on_wait
        self._on_loss: list[Callable[[Hold], Any]] = [on_loss] if on_loss else []
        if claim.on_lost == "cancel":
            if task is None:
                raise InvalidClaim(
                    f"Claim {claim.name!r} has on_lost='cancel', which is for 'async with' and aacquire()."
                )
            loop = asyncio.get_running_loop()
            self._on_loss.append(lambda hold: loop.call_soon_threadsafe(task.cancel, f"claim {hold.name!r} was lost"))
        elif claim.on_lost == "interrupt":
            if task is not None or threading.current_thread() is not threading.main_thread():
                raise InvalidClaim(
                    f"Claim {claim.name!r} has on_lost='interrupt', which is for holds that the main thread takes; "
                    f"use 'flag', 'raise' or, for coroutines, 'cancel'."
                )
            self._on_loss.append(interrupts.raise_in_main_thread)
        self.started = clock()
        self._was_slow = False
        self._place = ""  # of the last try
        self.enabled = conf.enabled()
        if self.enabled:
            settings = claim_backends[self.alias].settings
            self.ttl_ms, self.heartbeat_ms, self.renew_deadline_ms = claim.timing(settings)
            # A claim that beats faster than its alias gives the store less time.
            self._hurry = max(self.heartbeat_ms / 2000, conf.MIN_STORE_TIMEOUT)
            self._hurries = self._hurry < settings.store_timeout
            self._follow_dead = claim.follow_dead and settings.follow_dead
            self._token = new_token()
            self._holder = this_holder(claim.label)
            if node or task_id:
                self._holder = replace(self._holder, node=cut(node), task_id=cut(task_id))
            if processes:  # which the lease stands for as well: it ends with the last of them
                self._holder = replace(self._holder, processes=(*self._holder.processes, *processes))
            self.keeper = keeper_of(self.alias)

    def refused_here(self) -> Refused | None:
        """Say no at once to whoever has it already, since waiting for oneself never ends."""
        name = registry.held_here(self.alias, self.claim.names)
        if not name:
            return None
        logger.warning("Claim refused: this very thread or task holds it already name=%s alias=%s", name, self.alias)
        return Refused(name, reentrant=True)

    def once(self) -> Hold | Refused:
        """
        Try once. Raises BackendUnavailable if the outcome is unknown.

        Raises ClaimError, with nothing stored, if no thread can be started to keep the lease.
        """
        if not self.enabled:
            return off_hold(self.claim)
        self.keeper.ready(self.claim.name)
        self._prepare()
        sent_at = clock()
        try:
            if self._hurries:
                with within(self._hurry):
                    outcome = self._once(sent_at)
            else:
                outcome = self._once(sent_at)
        except BaseException:
            # Anything at all, a signal's exception too: the grant may exist, and nobody has it.
            self._delete_later()
            self._place = ""
            raise
        if clock() - sent_at > SLOW_SECONDS:
            # Its twin, the client's or the network's second try, may still be on its way.
            self._was_slow = True
        if isinstance(outcome, Hold):
            outcome.is_slow = self._was_slow
        if isinstance(outcome, Hold) or outcome.is_final:
            self._place = ""  # the store has seen to that
        return outcome

    def _delete_later(self, *, once: bool = False) -> None:
        """Delete the token, should it be granted or have been, or stand in line; again and again, or (`once`) once."""
        self.keeper.delete_later(orphan_of(self.claim.names, self._token, self.ttl_ms, self.heartbeat_ms, dropped=once))

    def _once(self, sent_at: float) -> Hold | Refused:
        dead: dict[str, int] = {}  # by name, the fence of a run whose holder is no more
        while isinstance(answer := self._ask(dead), Refusal):
            lease = answer.lease
            if lease is None or answer.name in dead or not self._is_dead(lease):
                return Refused(answer.name, lease, answer.flag, answer=answer)
            logger.warning(
                "Taking over from a dead holder name=%s alias=%s fence=%s holder=%s",
                answer.name,
                self.alias,
                lease.fence,
                lease.holder,
            )
            dead[answer.name] = lease.fence
            sent_at = clock()
        return self._granted(answer, sent_at)

    def _ask(self, dead: dict[str, int]) -> list[Grant] | Refusal:
        return claim_backends[self.alias].acquire(
            [
                AcquireRequest(
                    name,
                    self._token,
                    self.ttl_ms,
                    self.heartbeat_ms,
                    self._holder,
                    dead.get(name),
                    self._place,
                )
                for name in self.claim.names
            ]
        )

    def _is_dead(self, lease: Lease) -> bool:
        if not (self._follow_dead and lease.is_followed and lease.holder):
            return False
        return self._has_died(lease.holder)

    # What one who waits does otherwise.

    def _prepare(self) -> None:
        """Get ready for the next try."""

    def _has_died(self, holder: Holder) -> bool:
        return holder.is_dead()

    def _granted(self, grants: list[Grant], sent_at: float, deadline: float | None = None) -> Hold:
        """Return the hold; `deadline`: the seconds that it has until it is confirmed, if the store pushed it."""
        took = clock() - sent_at
        renew_deadline = self.renew_deadline_ms / 1000
        if renew_deadline - took < renew_deadline / 10:
            raise BackendUnavailable(
                self.alias, f"it granted {self.claim.name!r} after {took:.1f} s, too late to be of use"
            )
        claim = self.claim
        hold = Hold(
            keeper=self.keeper,
            names=claim.names,
            token=self._token,
            holder=self._holder,
            ttl_ms=self.ttl_ms,
            heartbeat_ms=self.heartbeat_ms,
            renew_deadline_ms=self.renew_deadline_ms,
            max_hold=claim.max_hold,
            min_hold=claim.min_hold,
            sent_at=sent_at,
            grant=grants[0],
            watch=self._watch,
            trip=self._trip,
            on_loss=self._on_loss,
            stop_on_shutdown=claim.stop_on_shutdown,
            on_lost=claim.on_lost,
            release_on_commit=claim.release_on_commit,
        )
        if claim.stop_on_shutdown and shutdown.draining():
            hold.shutting_down(shutdown.draining_reason())
        if claim.on_lost == "interrupt":
            interrupts.install()
            hold.on_end = interrupts.restore
        renew_at = sent_at + self.heartbeat_ms / 1000
        if deadline is not None:
            hold.deadline = min(hold.deadline, sent_at + deadline)
            renew_at = min(renew_at, clock() + CONFIRM_SECONDS)
        registry.add(hold)
        try:
            self.keeper.keep(hold, renew_at)
        except BaseException:
            hold.retire()
            raise
        return hold

    def done(self, outcome: Hold | Refused) -> Hold | Refused:
        """Tell the others how it ended, in the context of the one who asked."""
        waited = clock() - self.started
        name, alias = self.claim.name, self.alias
        if isinstance(outcome, Hold):
            registry.enter(outcome)
            if outcome._keeper is not None:
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug(
                        "Claim acquired name=%s alias=%s fence=%s",
                        name,
                        alias,
                        outcome.fence,
                        extra=outcome.log_extra(),
                    )
                if signals.claim_acquired.receivers:
                    signals.send(signals.claim_acquired, name=name, alias=alias, lease=outcome.lease, waited=waited)
            return outcome
        if self._was_slow:
            self._delete_later()
        refused = outcome.name  # of several, the one that was not free
        logger.info("Claim refused name=%s alias=%s holder=%s", refused, alias, outcome.lease and outcome.lease.holder)
        signals.send(
            signals.claim_refused,
            name=refused,
            alias=alias,
            lease=outcome.lease,
            flag=outcome.flag,
            waited=waited,
        )
        return outcome
