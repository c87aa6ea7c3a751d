"""How a hold stays held: the local deadline, renewal, and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django_claims import registry, signals
from django_claims.async_holds import AsyncHold
from django_claims.backends.base import Renewal, RenewAnswer, RenewRequest, within
from django_claims.clock import Duration, clock, milliseconds
from django_claims.conf import MIN_STORE_TIMEOUT
from django_claims.exceptions import BackendUnavailable, ClaimLost, InvalidClaim
from django_claims.handler import claim_backends
from django_claims.leases import LossReason
from django_claims.logs import get_logger

logger = get_logger(__name__)

_REASONS = {Renewal.TAKEN: LossReason.TAKEN, Renewal.FORCED: LossReason.FORCED}


class RenewableHold(AsyncHold):
    """The part of a hold that knows for how long it may go on."""

    _loss: LossReason | None = None
    _released = False

    if TYPE_CHECKING:  # what Hold has
        deadline: float
        renew_deadline: float
        ttl_ms: int
        heartbeat_ms: int
        _cap: float
        _longest: float
        _since: float
        _confirmed_at: float
        _renewed_us: int
        _on_loss: Sequence[Callable[[Any], Any]]

        def log_extra(self) -> dict[str, Any]: ...

    @property
    def held(self) -> bool:
        """Whether this process may go on. A comparison, no I/O."""
        return not self._released and self._loss is None and (clock() < self.deadline or not self.lost)

    @property
    def lost(self) -> bool:
        """Whether this process must assume that it no longer holds. Sticky; False after a clean release."""
        if self._loss is None and not self._released and clock() >= self.deadline:
            self.lose(LossReason.MAX_HOLD if self.deadline >= self._cap else LossReason.EXPIRED)
        return self._loss is not None

    @property
    def loss_reason(self) -> LossReason | None:
        return self._loss if self.lost else None

    @property
    def is_open(self) -> bool:
        """Neither released nor lost, as far as anybody has noticed."""
        return not self._released and self._loss is None

    def remaining(self) -> float:
        """Return the seconds until the local deadline, at least 0; infinite when claims are off. No I/O."""
        return max(self.deadline - clock(), 0.0) if self.is_open else 0.0

    @property
    def keeps_on(self) -> bool:
        """Whether there is any use in renewing."""
        return self._cap > clock()

    @property
    def patience(self) -> float:
        """The seconds that the store has for one answer: half a heartbeat, so that there is time to ask again."""
        return max(self.heartbeat_ms / 2000, MIN_STORE_TIMEOUT)

    def keep_for(self, seconds: float) -> None:
        """
        Renew it for so many seconds from now and no longer, however healthy; each call sets that anew.

        For work that is to be watched: if it hangs, and calls this no more, the claim is lost (MAX_HOLD)
        and passes on. Less than the renew deadline is no less than that; max_hold stands.
        """
        if self._keeper is not None:
            self._cap = min(clock() + max(seconds, self.renew_deadline), self._longest)

    def renew_requests(self) -> list[RenewRequest]:
        """Return what to ask the store, once for each name."""
        progress = self.progress_to_write()
        return [
            RenewRequest(name, self.token, self.fence, self.ttl_ms, progress, self.has_seen_flag) for name in self.names
        ]

    def renewed(self, sent_at: float, answers: list[RenewAnswer]) -> None:
        """Take the store's answers to requests that were sent at that time."""
        if self.lost:
            return  # it came too late: a yes revives nothing, and a no is no news
        for answer in answers:
            if answer.outcome is not Renewal.RENEWED:
                late = clock() >= self._confirmed_at + self.ttl_ms / 1000
                gone = LossReason.EXPIRED if late else LossReason.FORGOTTEN
                self.lose(_REASONS.get(answer.outcome, gone))
                return
        now, margin = clock(), self.remaining()
        self._confirmed_at = max(self._confirmed_at, sent_at)
        self.deadline = max(self.deadline, min(sent_at + self.renew_deadline, self._cap))
        self._renewed_us = answers[0].now_us
        self.progress_written()
        if signals.claim_renewed.receivers:
            signals.send(
                signals.claim_renewed, name=self.name, alias=self.alias, lease=self.lease, margin=margin,
                took=now - sent_at,
            )  # fmt: skip
        self.told_by_renewal([answer.flag for answer in answers])

    def renew(self) -> bool:
        """
        Renew now. Return whether it is still held; False if it was lost or released.

        Raises BackendUnavailable if the store did not answer: it is then still held until
        the local deadline. Never takes a lease again that is gone.
        """
        if self._keeper is None:
            return not self._released
        if self.lost or self._released:
            return False
        sent_at = clock()
        with within(self.patience):
            answers = claim_backends[self.alias].renew(self.renew_requests())
        if any(answer.outcome is Renewal.UNKNOWN for answer in answers):
            raise BackendUnavailable(self.alias, "its server is away")
        self.renewed(sent_at, answers)
        return self.held

    def verify(self) -> bool:
        """
        Ask the store whether it is still ours, as of its answer.

        Raises BackendUnavailable if the store did not answer.
        """
        if self._keeper is None:
            return not self._released
        if self.lost or self._released:
            return False
        backend = claim_backends[self.alias]
        with within(self.patience):
            ours = all(backend.held(name, self.token) for name in self.names)
        if ours:
            return self.held
        self.renew()  # which says why
        return False

    def ensure(self, seconds: Duration = 0.0) -> None:
        """
        See to it that at least so many seconds are left, renewing if need be; else raise ClaimLost.

        Also when the store gives no answer: nobody can then promise so much. InvalidClaim if it
        is more than the renew deadline, which is the most that there can ever be.
        """
        wanted = milliseconds(seconds, "ensure(seconds)", at_least=0) / 1000
        if self._keeper is not None and wanted > self.renew_deadline:
            raise InvalidClaim(
                f"ensure({seconds!r}) asks claim {self.name!r} for more than its renew deadline "
                f"({self.renew_deadline} s) can give; raise the TTL."
            )
        if self.held and self.remaining() > wanted:
            return
        try:
            # As of when it was asked: else the renew deadline itself could never be had.
            enough = self.renew() and self.deadline - self._confirmed_at >= wanted
        except BackendUnavailable as error:
            raise ClaimLost(self.name, self.loss_reason) from error
        if not enough:
            raise self.gone()

    def lose(self, reason: LossReason) -> None:
        """Make it lost, for good, and tell everybody who waits for that. The first reason stands."""
        with registry.lock:
            if self._loss is not None or self._released:
                return
            self._loss = reason
        if self._keeper is not None:
            self._keeper.drop(self)
        logger.error(
            "Claim lost name=%s alias=%s fence=%s reason=%s", self.name, self.alias, self.fence, reason,
            extra=self.log_extra(),
        )  # fmt: skip
        self.wake_for_loss()
        held_for = clock() - self._since
        signals.send(
            signals.claim_lost, name=self.name, alias=self.alias, lease=self.lease, reason=reason, held_for=held_for
        )
        for tell in self._on_loss:
            try:
                tell(self)
            except ClaimLost:
                raise  # the interrupt itself, if this is the main thread
            except BaseException:  # a loop that is closed
                logger.exception("A loss could not be told name=%s", self.name)
