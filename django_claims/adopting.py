"""Going on with a hold that another process handed over."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING

from django_claims import registry, signals
from django_claims.backends.base import Adopted, AdoptRequest, Grant, ReleaseRequest, within
from django_claims.clock import clock
from django_claims.exceptions import ClaimError, ClaimHeld, ClaimLost, InvalidClaim
from django_claims.handler import claim_backends
from django_claims.holds import Hold
from django_claims.leases import Lease, LossReason
from django_claims.logs import get_logger
from django_claims.offload import start
from django_claims.outcomes import off_hold, outcome_of
from django_claims.tickets import Ticket, read_ticket
from django_claims.trying import Trying

if TYPE_CHECKING:
    from django_claims.claims import Claim

logger = get_logger(__name__)

_OVER = (
    "cannot be adopted: the run of this ticket is over. It was adopted before and has ended, or nobody adopted it in "
    "time. Acquire the claim anew if the work is still to be done."
)
_FORCED = "cannot be adopted: an operator has force-released the run of this ticket."
_NO_TICKET = "cannot be adopted: this is no ticket that hand_over() gave, or not all of it."

_MOST_UNSURE = 1000
_unsure: OrderedDict[str, str] = OrderedDict()
"""By a ticket's digest: the token of an adoption whose outcome is unknown. The next try finds its work done."""


class Adopting(Trying):
    """One adoption, by one recipe."""

    def __init__(self, claim: Claim, text: str, *, task: asyncio.Task[object] | None = None) -> None:
        if not isinstance(text, str):
            raise InvalidClaim(f"ticket should be the text that hand_over() gave, not {type(text).__name__}.")
        super().__init__(claim, 0.0, task=task)
        self._ticket: Ticket = read_ticket(text)
        if self._ticket.names is not None and self._ticket.names != claim.names:
            raise InvalidClaim(
                f"The ticket is for {_listed(self._ticket.names)}, and the recipe for {_listed(claim.names)}. Adopt by "
                f"the recipe that was acquired."
            )

    def once(self) -> Hold:
        """Ask the store, once. Raises ClaimHeld, ClaimLost, or BackendUnavailable: the ticket may be tried again."""
        if not self.enabled:
            return off_hold(self.claim)
        self.keeper.ready(self.claim.name)
        digest = self._ticket.digest
        self._token = _unsure.pop(digest, self._token)
        sent_at = clock()
        try:
            backend = claim_backends[self.alias]
            with within(min(self._hurry, backend.settings.store_timeout)):
                answers = backend.adopt(
                    [
                        AdoptRequest(name, digest, self._token, self.ttl_ms, self.heartbeat_ms, self._holder)
                        for name in self.claim.names
                    ]
                )
            hold = None if answers is None else self._adopted(answers, sent_at)
        except ClaimLost:
            raise
        except BaseException:
            # A signal's exception too: it may be ours by now, and who tries again finds it so.
            _unsure[digest] = self._token
            while len(_unsure) > _MOST_UNSURE:
                _unsure.popitem(last=False)
            raise
        if hold is None:
            raise self._refusal()
        return hold

    def _adopted(self, answers: list[Adopted], sent_at: float) -> Hold:
        first, claim = answers[0], self.claim
        age = max(first.now_us - first.acquired_us, 0) / 1e6
        # They count from the first acquire, whoever made it.
        most = None if claim.max_hold is None else claim.max_hold - age
        if most is not None and most <= 0:
            claim_backends[self.alias].release([ReleaseRequest(name, self._token) for name in claim.names])
            raise ClaimLost(claim.name, LossReason.MAX_HOLD)
        self.claim = replace(claim, max_hold=most, min_hold=max(claim.min_hold - age, 0.0))
        hold = self._granted([Grant(answer.fence, answer.acquired_us) for answer in answers], sent_at)
        hold.goes_on(first.now_us, first.progress)
        hold.told_by_renewal([answer.flag for answer in answers])
        return hold

    def _refusal(self) -> ClaimError:
        """Say why, as of now."""
        backend, ticket, name = claim_backends[self.alias], self._ticket, self.claim.name
        leases = {each: backend.lease(each) for each in self.claim.names}
        other = next((lease for lease in leases.values() if lease and lease.state != "handed_over"), None)
        missing = next((each for each, lease in leases.items() if lease is None), None)
        error: ClaimError
        if other is not None:
            error = ClaimHeld(other.name, other)
        elif missing is None:  # handed over, with another ticket
            error = ClaimHeld(name, leases[name])
        elif ticket.names is None:
            error = ClaimLost(missing, None, _NO_TICKET)
        elif any(notice.name in leases and notice.forced_fence == ticket.fence for notice in backend.poll()):
            error = ClaimLost(missing, LossReason.FORCED, _FORCED)
        else:
            error = ClaimLost(missing, LossReason.EXPIRED, _OVER)
        lease: Lease | None = error.lease if isinstance(error, ClaimHeld) else None
        logger.info("Ticket refused name=%s alias=%s holder=%s", name, self.alias, lease and lease.holder)
        waited = clock() - self.started
        signals.send(signals.claim_refused, name=name, alias=self.alias, lease=lease, flag=None, waited=waited)
        return error

    def _enter(self, hold: Hold) -> Hold:
        """Tell the others, in the context of the one who asked."""
        registry.enter(hold)
        if self.enabled:
            logger.info("Claim adopted name=%s alias=%s fence=%s", self.claim.name, self.alias, hold.fence)
            signals.send(signals.claim_adopted, name=self.claim.name, alias=self.alias, lease=hold.lease)
        return hold

    def adopt(self) -> Hold:
        return self._enter(self.once())

    async def aadopt(self) -> Hold:
        """See adopt(). What a task that was cancelled is given nonetheless is released."""
        return self._enter(await outcome_of(start(self.once, kind="try")))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unsure.clear)  # the adoptions of the parent are the parent's


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))
