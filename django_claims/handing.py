"""
How a hold is handed over to another process.

    web request                          task
    acquire: held, fence 7
    hand_over: the ticket's digest stands
      where the owner's token stood
    queue(ticket)                        adopt(ticket): a token of its own, fence 7
                                         renewed from here
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django_claims import registry, signals
from django_claims.backends.base import HandOverRequest, ReleaseRequest, within
from django_claims.clock import Duration, milliseconds
from django_claims.exceptions import BackendUnavailable, UnsupportedFeature
from django_claims.handler import claim_backends
from django_claims.keeper import Keeper
from django_claims.leases import LossReason, Progress
from django_claims.logs import get_logger
from django_claims.orphans import Orphan
from django_claims.renewing import RenewableHold
from django_claims.tickets import Ticket, new_ticket

logger = get_logger(__name__)


class HandingHold(RenewableHold):
    """The part of a hold that can be given away."""

    _handed_over = False

    if TYPE_CHECKING:  # what Hold has
        heartbeat_ms: int
        is_slow: bool
        on_end: Callable[[], Any] | None

        def retire(self) -> list[ReleaseRequest] | None: ...
        def abandon(self) -> None: ...
        def as_orphan(
            self, *, dropped: bool = False, token: str | None = None, ttl_ms: int | None = None
        ) -> Orphan: ...

    def goes_on(self, now_us: int, progress: str) -> None:
        """Be told, after adopting, what was written of the run before."""
        self._renewed_us = max(self._renewed_us, now_us)
        try:
            self._progress = Progress.unpack(progress)
        except ValueError:
            pass  # somebody else's; it is written over

    def hand_over(self, valid: Duration | None = None) -> str:
        """
        Give the claim to whoever comes with the ticket that is returned: `claim(name).adopt(ticket)`.

        This process stops renewing, and from then on neither holds nor has lost: leaving the
        `with` block releases nothing. The lease stays, with its fence, for `valid` seconds (left
        out: the TTL; never less than is left of min_hold), and ends then if nobody adopts. The
        ticket is good once. It is a secret: who has it has the claim, so pass it on as you would
        a password, and not through a log.

        Raises ClaimLost if it is not held any more, InvalidClaim for a `valid` that is no
        duration, and BackendUnavailable if the store gave no answer: the claim is then given up,
        and freed as soon as the store answers.
        """
        valid_ms = self.ttl_ms if valid is None else milliseconds(valid, "valid")
        if self._keeper is not None and not claim_backends[self.alias].supports_hand_over:
            raise UnsupportedFeature("handing over a hold", self.alias)
        if self.is_open and self._unwritten is not None:
            with suppress(BackendUnavailable):  # which the store will say again
                self.renew()  # so that who goes on sees how far it is
        if self.lost:
            raise self.gone()
        ticket, given = new_ticket(self.names, self.fence), True
        try:
            with registry.lock:
                requests = None if self._loss is not None else self.retire()
            if requests is not None:
                self._handed_over = True
                if self._keeper is not None:
                    valid_ms = max(valid_ms, requests[0].rest_ms)
                    given = self._ask_to_keep_it(self._keeper, ticket, valid_ms)
        except BaseException:  # a signal's exception too
            self._give_up(ticket, valid_ms)
            raise
        if requests is None:
            raise self.gone()
        if not given:
            self._take_the_no()
        return ticket.text

    def _ask_to_keep_it(self, keeper: Keeper, ticket: Ticket, valid_ms: int) -> bool:
        """Ask the store. Return whether it was ours to give."""
        backend = claim_backends[self.alias]
        seconds = backend.settings.store_timeout
        waited = keeper.drop(self, wait=seconds / 2)
        with within(seconds - waited):
            given = backend.hand_over(
                [HandOverRequest(name, self.token, ticket.digest, valid_ms) for name in self.names]
            )
        if not given:
            return False
        if self.is_slow:
            keeper.delete_later(self.as_orphan())
        valid = valid_ms / 1000
        logger.info("Claim handed over name=%s alias=%s fence=%s valid=%s", self.name, self.alias, self.fence, valid)
        signals.send(signals.claim_handed_over, name=self.name, alias=self.alias, lease=self.lease, valid=valid)
        return True

    def _give_up(self, ticket: Ticket, valid_ms: int) -> None:
        """Nobody can tell whose it is, so it is to be nobody's."""
        self._handed_over = False
        self.abandon()
        if self._keeper is not None:
            self._keeper.delete_later(self.as_orphan(token=ticket.digest, ttl_ms=valid_ms))

    def _take_the_no(self) -> None:
        """It was ours no more: be lost, for the reason that the store gives. Raises ClaimLost."""
        with registry.lock:
            self._released = self._handed_over = False
            self.on_end = None  # it was called
        try:
            self.renew()
        except BackendUnavailable:
            pass
        self.lose(LossReason.EXPIRED)  # unless it is lost by now
        raise self.gone()
