"""The live object between acquire and release."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

from django_claims import registry, signals
from django_claims.backends.base import Grant, Released, ReleaseRequest, within
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable, ClaimLost
from django_claims.handing import HandingHold
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from django_claims.keeper import Keeper
from django_claims.leases import HELD, Lease, LossReason, ReleaseResult, read_lease
from django_claims.logs import get_logger
from django_claims.orphans import Orphan
from django_claims.transactions import release_at_the_end, warn_once

logger = get_logger(__name__)

SLOW_SECONDS = 1.0
"""An acquire that took longer may have a twin under way: the client's own second try."""

_RESULTS = {
    Released.RELEASED: ReleaseResult.RELEASED,
    Released.GONE: ReleaseResult.EXPIRED,
    Released.NOT_OWNER: ReleaseResult.NOT_OWNER,
}


def result_of(answers: list[Released]) -> ReleaseResult:
    """Return what became of a hold: released only if each of its names was."""
    if len(answers) == 1:
        return _RESULTS[answers[0]]
    return _RESULTS[next((answer for answer in answers if answer is not Released.RELEASED), Released.RELEASED)]


def orphan_of(names: tuple[str, ...], token: str, ttl_ms: int, heartbeat_ms: int, *, dropped: bool = False) -> Orphan:
    """Return what is to be deleted until no late request can bring it back."""
    return Orphan(names, token, clock() + ttl_ms / 1000, min(2.0, heartbeat_ms / 4000), dropped)


class Hold(HandingHold):
    """
    A claim that this process has, until released or lost. All methods work from any thread.

    `held` is a comparison of the clock with the local deadline, without I/O: true means that,
    while the store keeps its data, its clock is not set forward and no operator forces it, no
    other process has been granted the claim. Limit: a process can be stopped right after the
    comparison, so where two writes would hurt, let the resource compare `fence`.
    """

    _keeper: Keeper | None = None  # until all else is there: what a signal leaves half made, its finalizer lets be
    on_end: Callable[[], Any] | None = None
    _loss: LossReason | None = None
    _released = False
    is_slow = False  # a late copy of its acquire may come after its release

    def __init__(
        self,
        *,
        keeper: Keeper | None,
        names: tuple[str, ...],
        token: str,
        holder: Holder,
        ttl_ms: int,
        heartbeat_ms: int,
        renew_deadline_ms: int,
        max_hold: float | None = None,
        min_hold: float = 0.0,
        sent_at: float = 0.0,
        grant: Grant | None = None,
        watch: str | None = None,
        trip: Callable[[], Any] | None = None,
        on_loss: Sequence[Callable[[Hold], Any]] = (),
        stop_on_shutdown: bool = False,
        on_lost: str = "flag",
        release_on_commit: bool = False,
    ) -> None:
        self.stop_on_shutdown = stop_on_shutdown
        self.on_lost = on_lost
        self.release_on_commit = release_on_commit
        self.names = names
        self.token = token
        self.holder = holder
        self.fence = grant.fence if grant else 0
        self.ttl_ms = ttl_ms
        self.heartbeat_ms = heartbeat_ms
        self.renew_deadline = renew_deadline_ms / 1000
        self._min_hold = min_hold
        self._since = self._confirmed_at = sent_at
        self._longest = self._cap = float("inf") if max_hold is None else sent_at + max_hold
        self.deadline = min(sent_at + self.renew_deadline, self._cap) if keeper else float("inf")
        self._acquired_us = self._renewed_us = grant.acquired_us if grant else 0
        self._on_loss = on_loss
        if watch is not None:
            self._watch = watch
        if trip is not None:
            self._trip = trip
        self._keeper = keeper

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def alias(self) -> str:
        return self._keeper.alias if self._keeper else ""

    @property
    def label(self) -> str:
        return self.holder.label

    @property
    def lease(self) -> Lease | None:
        """The lease as of the last confirmed renewal; ask `claim(name).lease()` for now. None when claims are off."""
        if self._keeper is None:
            return None
        return read_lease(
            name=self.name,
            alias=self.alias,
            fence=self.fence,
            kind=HELD,
            holder=self.holder.packed,
            progress=self._progress.pack() if self._progress else "",
            flag=self.stop_flag_now,
            acquired_us=self._acquired_us,
            renewed_us=self._renewed_us,
            expires_us=self._renewed_us + self.ttl_ms * 1000,
            now_us=self._renewed_us,
            ttl_ms=self.ttl_ms,
            heartbeat_ms=self.heartbeat_ms,
        )

    def __repr__(self) -> str:
        over = "handed over" if self._handed_over else "released"
        state = over if self._released else f"lost: {self._loss}" if self._loss else "held"
        return f"<Hold {self.name!r} fence={self.fence} {state}>"

    def fork(self) -> None:
        """In a forked child: it is the parent's. No signal, no store, no lock of the parent's threads."""
        if self.is_open:
            self._loss = LossReason.FORKED
            self.forget_events()

    # The end.

    def rest_not(self) -> None:
        """Let go at once when released, min_hold or not: this work is to go on in another run."""
        self._min_hold = 0.0

    def release(self) -> ReleaseResult:
        """
        End the hold, and its lease if it is still ours. Raises nothing; takes at most STORE_TIMEOUT.

        RELEASED, the only true answer, means that the claim is free now (or rests until
        min_hold is over). UNKNOWN: the store did not answer; the lease is deleted when it
        does, or ends with its TTL. Limit: what the guarded code started and left running,
        such as child processes, goes on.
        """
        try:
            requests = self.retire()
            if requests is None:
                return ReleaseResult.NOT_HELD
            if self._keeper is None:
                return ReleaseResult.RELEASED
            result = self._ask_to_release(self._keeper, requests)
        except BaseException:  # a signal's exception in the middle: the exit tries again
            self.abandon()
            raise
        self.end(result)
        return result

    def abandon(self) -> None:
        """Hold no more, whatever was done of that; have its lease deleted, should there be one left."""
        if self._keeper is not None and self._loss is not LossReason.FORKED:
            self._released = True
            self._keeper.drop(self)
            self._keeper.delete_later(self.as_orphan())

    def _ask_to_release(self, keeper: Keeper, requests: list[ReleaseRequest]) -> ReleaseResult:
        try:
            backend = claim_backends[self.alias]
            waited = keeper.drop(self, wait=backend.settings.store_timeout / 2)
            if not waited:
                return result_of(backend.release(requests))
            with within(backend.settings.store_timeout - waited):
                return result_of(backend.release(requests))
        except Exception as error:
            keeper.drop(self)
            logger.warning(
                "Release failed; the lease ends with its TTL at the latest name=%s alias=%s error=%s",
                self.name, self.alias, error, exc_info=not isinstance(error, BackendUnavailable),
                extra=self.log_extra(),
            )  # fmt: skip
            return ReleaseResult.UNKNOWN

    def retire(self) -> list[ReleaseRequest] | None:
        """Hold no more, locally; return what to ask the store, or None if it was over before."""
        with registry.lock:
            if self._released or self._loss is LossReason.FORKED:
                return None
            lost, self._released = self._loss is not None, True
        registry.remove(self.token, self.alias, self.names)
        if self.on_end is not None:
            self.on_end()
        if self._news is not None:
            self._news.set()  # somebody sleeps on it in another thread
        rest = 0.0 if lost else self._since + self._min_hold - clock()
        rest_ms = round(rest * 1000) if rest > 0.001 else 0
        return [ReleaseRequest(name, self.token, self.fence, rest_ms) for name in self.names]

    def end(self, result: ReleaseResult) -> None:
        """After the store was asked: see to what it may still do, and tell the others."""
        assert self._keeper is not None
        if result is ReleaseResult.UNKNOWN or self.is_slow:
            self._keeper.delete_later(self.as_orphan())
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "Claim released name=%s alias=%s fence=%s result=%s",
                self.name,
                self.alias,
                self.fence,
                result,
                extra=self.log_extra(),
            )
        if signals.claim_released.receivers:
            signals.send(
                signals.claim_released, name=self.name, alias=self.alias, lease=self.lease, result=result,
                held_for=clock() - self._since,
            )  # fmt: skip

    def as_orphan(self, *, dropped: bool = False, token: str | None = None, ttl_ms: int | None = None) -> Orphan:
        return orphan_of(self.names, token or self.token, ttl_ms or self.ttl_ms, self.heartbeat_ms, dropped=dropped)

    def log_extra(self) -> dict[str, Any]:
        return {
            "claim": self.name,
            "claim_alias": self.alias,
            "claim_holder": str(self.holder),
            "claim_fence": self.fence,
        }

    def __reduce__(self) -> Any:
        raise TypeError(f"A hold of claim {self.name!r} is neither copied nor pickled: two would release it.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        if self._handed_over:
            return  # it is another's to end
        try:
            was_lost = self.lost
        except ClaimLost:  # on_lost="interrupt", in this very thread
            self.release()
            raise
        if self.release_on_commit and self.is_open and release_at_the_end(self):
            return
        try:
            if self._keeper is not None:
                warn_once(self.name)
            result = self.release()
        except BaseException:  # a signal's exception before the release: nobody else would do it now
            self.release()
            raise
        self.left(was_lost, result, exc)

    def left(self, was_lost: bool, result: ReleaseResult, exc: BaseException | None) -> None:
        """The guarded code has ended, by an exception or not: say what was wrong, and hide none of it."""
        if was_lost and self._loss is not LossReason.FORKED:
            logger.error(
                "Work ended after its claim was lost; another holder may have been at work beside it "
                "name=%s alias=%s fence=%s reason=%s", self.name, self.alias, self.fence, self._loss,
                extra=self.log_extra(),
            )  # fmt: skip
            if self.on_lost == "raise" and exc is None:
                raise ClaimLost(self.name, self._loss)
        elif exc is not None and result is ReleaseResult.UNKNOWN:
            exc.add_note(f"Claim {self.name!r} could not be released; it ends with its TTL at the latest.")

    def __del__(self) -> None:
        # Only queues the token: this may run anywhere, also inside somebody's lock.
        if self._released or self._loss is LossReason.FORKED or self._keeper is None:
            return
        self._released = True
        self._keeper.dropped.append(self.as_orphan(dropped=True))
        if self.on_end is not None:
            self.on_end()
        warnings.warn(f"Hold of claim {self.name!r} was dropped without release", ResourceWarning, 2, source=self)
