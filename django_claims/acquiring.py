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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from django_claims import conf, interrupts, registry, shutdown, signals
from django_claims.backends.base import GRANT_SECONDS, LEAVE, AcquireRequest, Grant, Refusal, Waiter, within
from django_claims.backends.base import new_token as new_token
from django_claims.clock import clock, to_wait
from django_claims.deaths import deaths
from django_claims.exceptions import BackendUnavailable, ClaimHeld, ClaimRefused, ClaimStopped, InvalidClaim
from django_claims.handler import claim_backends
from django_claims.holders import ProcessId, this_holder
from django_claims.holds import SLOW_SECONDS, Hold, orphan_of
from django_claims.keeper import keeper_of
from django_claims.leases import Lease, StopFlag
from django_claims.logs import get_logger
from django_claims.names import cut
from django_claims.offload import start

if TYPE_CHECKING:
    from django_claims.claims import Claim

logger = get_logger(__name__)

FRESH_SECONDS = 0.25
"""How old a pushed grant may be to be begun with at once."""
CONFIRM_SECONDS = 0.05
"""When it is renewed for the first time, which confirms it. A shorter hold needs no renewal."""


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


class _Bell:
    """Wakes one sleeper. A bare lock: an exception of a signal handler leaves nothing of it half done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or the next one to come. From any thread."""
        with suppress(RuntimeError):  # rung already
            self._lock.release()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(max(seconds, 0.0), 3600.0))


class Acquiring:
    """One acquisition of one recipe."""

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
        self._waiter: Waiter | None = None
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

    def held_here(self) -> bool:
        return registry.held_here(self.alias, self.claim.names)

    def refused_here(self) -> Refused:
        """Say no at once, since waiting for oneself never ends."""
        logger.warning(
            "Claim refused: this very thread or task holds it already name=%s alias=%s",
            self.claim.name,
            self.alias,
        )
        return Refused(self.claim.name, reentrant=True)

    def once(self) -> Hold | Refused:
        """
        Try once. Raises BackendUnavailable if the outcome is unknown.

        Raises ClaimError, with nothing stored, if no thread can be started to keep the lease.
        """
        if not self.enabled:
            return off_hold(self.claim)
        self.keeper.ready(self.claim.name)
        if self._waiter is not None:
            self._prepare(self._waiter)
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
        return lease.holder.is_dead() if self._waiter is None else deaths.is_dead(lease.holder)

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
        logger.info("Claim refused name=%s alias=%s holder=%s", name, alias, outcome.lease and outcome.lease.holder)
        signals.send(
            signals.claim_refused,
            name=name,
            alias=alias,
            lease=outcome.lease,
            flag=outcome.flag,
            waited=waited,
        )
        return outcome

    # Waiting.

    def acquire(self) -> Hold | Refused:
        """Try, and try again until the timeout is over; the last try is at its end."""
        if self.held_here():
            return self.done(self.refused_here())
        if self.timeout == 0 or not self.enabled:
            return self.done(self.once())
        bell = _Bell()
        waiter = self._waiter = claim_backends[self.alias].wait(self.claim.names, bell.ring)
        try:
            while True:
                outcome = self.once()
                if isinstance(outcome, Hold) or outcome.is_final or (left := self._left()) <= 0:
                    return self.done(outcome)
                if self._on_wait is not None:
                    self._on_wait(outcome)
                with self._watched(outcome, bell.ring):
                    bell.wait(to_wait(min(left, self._pause(waiter, outcome)), left))
                if (hold := self._pushed(waiter)) is not None:
                    return self.done(hold)
        finally:
            self._wait_no_more(waiter)

    async def aacquire(self) -> Hold | Refused:
        """See acquire(). Sleeps on the loop, and takes a thread for single tries only."""
        if self.held_here():
            return self.done(self.refused_here())
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
                try:
                    outcome = await asyncio.wrap_future(trying)
                except asyncio.CancelledError:
                    # A try that has begun goes on in its thread, with or without a loop: what it is granted goes back.
                    trying.add_done_callback(give_back)
                    raise
                if isinstance(outcome, Hold) or outcome.is_final or waiter is None or (left := self._left()) <= 0:
                    return self.done(outcome)
                with self._watched(outcome, ring), suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), to_wait(min(left, self._pause(waiter, outcome)), left))
                rung.clear()
                if (hold := self._pushed(waiter)) is not None:
                    return self.done(hold)
        finally:
            if waiter is not None and trying is None:
                waiter.close()
            elif waiter is not None and trying is not None:
                trying.add_done_callback(lambda _: self._wait_no_more(waiter))  # at once, unless it is under way

    def _prepare(self, waiter: Waiter) -> None:
        """Say how the next try stands in line: the last one leaves it."""
        if (left := self._left()) > 0:
            waiter.prepare(min(self._hurry, left))
            self._place = waiter.place
        elif self._place:
            self._place = LEAVE

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

    @contextmanager
    def _watched(self, refused: Refused, bell: Callable[[], object]) -> Iterator[None]:
        """Have the bell rung if the holder dies meanwhile, and is one of this machine."""
        lease = refused.lease
        holder = lease.holder if lease is not None and lease.is_followed and self._follow_dead else None
        if holder is None:
            yield
            return
        deaths.watch(holder, bell)
        try:
            yield
        finally:
            deaths.forget(holder, bell)

    def _wait_no_more(self, waiter: Waiter) -> None:
        waiter.close()
        if self._place not in ("", LEAVE):
            # It left by an exception, or its last try came too late for the line to be told.
            self._delete_later(once=not self._was_slow)

    def _left(self) -> float:
        return float("inf") if self.timeout is None else self.started + self.timeout - clock()


def give_back(trying: Future[Any]) -> None:
    """Let go of what was granted to a task that was cancelled meanwhile."""
    if trying.cancelled() or trying.exception() is not None:
        return
    hold = trying.result()
    if isinstance(hold, Hold) and hold.retire() is not None and hold._keeper is not None:
        hold._keeper.drop(hold)
        hold._keeper.delete_later(hold.as_orphan())
