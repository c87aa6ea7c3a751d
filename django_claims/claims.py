"""Claims: the recipe, and what can be done with it."""

from __future__ import annotations

import asyncio
import enum
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from django_claims import conf, signals
from django_claims.acquiring import Acquiring
from django_claims.adopting import Adopting
from django_claims.clock import Duration, milliseconds
from django_claims.conf import AliasSettings, timing_problem
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.holds import Hold
from django_claims.leases import Lease
from django_claims.offload import offload
from django_claims.outcomes import Refused


class _Sentinel(enum.Enum):
    RECIPE = "the claim's own timeout"


RECIPE = _Sentinel.RECIPE
OnLost = Literal["flag", "raise", "cancel", "interrupt"]

# The holds that "with claim" opened in this context, innermost last. Strong references: nobody
# need name the hold in "with claim(…):".
_opened: ContextVar[tuple[tuple[Any, Hold], ...]] = ContextVar("django_claims_opened", default=())


@dataclass(frozen=True, kw_only=True)  # no slots: with them, Python 3.11 says nonsense of `claim.name = …`
class Claim:
    """
    The recipe of a claim: a name and how to hold it. Made by `claim()`, free to share.

    Takes nothing until acquired. `with` and `async with` give the hold, or raise ClaimHeld or
    ClaimStopped; the open hold is kept by context, so that threads and tasks may share one
    recipe. Beware of `if claim("x").acquire(): work()`: the hold is dropped, and so released,
    before the work; write `if hold := claim("x").acquire():`.
    """

    names: tuple[str, ...]
    using: str
    ttl_ms: int | None
    heartbeat_ms: int | None
    renew_deadline_ms: int | None
    timeout: float | None
    label: str
    max_hold: float | None
    min_hold: float
    on_lost: OnLost
    stop_on_shutdown: bool
    release_on_commit: bool
    follow_dead: bool

    @property
    def name(self) -> str:
        return self.names[0]

    def timing(self, settings: AliasSettings) -> tuple[int, int, int]:
        """Return TTL, heartbeat and renew deadline in ms. Raises InvalidClaim if they do not fit together."""
        if self.ttl_ms is None:
            ttl, heartbeat, deadline = settings.ttl_ms, settings.heartbeat_ms, settings.renew_deadline_ms
        else:
            ttl, heartbeat, deadline = self.ttl_ms, max(self.ttl_ms // 3, 1), max(self.ttl_ms * 2 // 3, 1)
        heartbeat = heartbeat if self.heartbeat_ms is None else self.heartbeat_ms
        deadline = deadline if self.renew_deadline_ms is None else self.renew_deadline_ms
        if self.heartbeat_ms is not None or self.renew_deadline_ms is not None:
            problem = timing_problem(ttl, heartbeat, deadline)
            if problem:
                raise InvalidClaim(f"Claim {self.name!r}: {problem}")
        return ttl, heartbeat, deadline

    def acquire(self, timeout: Duration | _Sentinel | None = RECIPE) -> Hold | None:
        """
        Take the claim and return the hold, or None if it is refused.

        Waits for `timeout` seconds (0: tries once; None: without limit; left out: the claim's
        own). Raises BackendUnavailable if the store gave no answer: neither a yes nor a no.
        Keep the hold in a variable: one that is dropped is released.
        """
        outcome = Acquiring(self, self._timeout(timeout)).acquire()
        return outcome if isinstance(outcome, Hold) else None

    async def aacquire(self, timeout: Duration | _Sentinel | None = RECIPE) -> Hold | None:
        """See acquire(). A task that is cancelled while it waits leaves no lease behind."""
        outcome = await Acquiring(self, self._timeout(timeout), task=asyncio.current_task()).aacquire()
        return outcome if isinstance(outcome, Hold) else None

    def available(self) -> bool:
        """
        Ask the store whether an acquire would be granted now; take nothing.

        A name that is free and owed to somebody who waits for it is not available.
        For display: it may be taken a moment later. Raises BackendUnavailable.
        """
        if not conf.enabled():
            return True
        backend = claim_backends[self.using]
        for name in self.names:
            flag, lease = backend.flag(name), backend.lease(name)
            if flag is not None and flag.keep:
                return False
            if lease is not None and not self._is_over(lease, backend.settings):
                return False
            if backend.promised(name):
                return False
        return True

    def _is_over(self, lease: Lease, settings: AliasSettings) -> bool:
        """Say whether an acquire here would take over from a dead holder."""
        return bool(
            self.follow_dead and settings.follow_dead and lease.is_followed and lease.holder and lease.holder.is_dead()
        )

    async def aavailable(self) -> bool:
        """See available()."""
        return await offload(self.available, kind="ask")

    def lease(self) -> Lease | None:
        """
        Ask the store who has it: a snapshot, or None.

        For display, not for decisions: it may have changed by now. Raises BackendUnavailable.
        """
        return claim_backends[self.using].lease(self.name) if conf.enabled() else None

    async def alease(self) -> Lease | None:
        """See lease()."""
        return await offload(self.lease, kind="ask")

    def adopt(self, ticket: str) -> Hold:
        """
        Go on with a hold that another process handed over: same run, same fence.

        TTL, heartbeat and the rest are this recipe's; progress and a stop that was asked for
        stay; max_hold and min_hold count from the first acquire. The ticket is good once.

        Raises ClaimHeld if somebody else has the claim (also one who came with this ticket
        first), ClaimLost if the run is over: the ticket ran out, or was used and the work is done.
        BackendUnavailable if the store gave no answer: this process may try the ticket again.
        InvalidClaim if the ticket is for other names than the recipe.
        """
        return Adopting(self, ticket).adopt()

    async def aadopt(self, ticket: str) -> Hold:
        """See adopt(). What a task that is cancelled meanwhile is given nonetheless is released."""
        return await Adopting(self, ticket, task=asyncio.current_task()).aadopt()

    def _timeout(self, timeout: Duration | _Sentinel | None) -> float | None:
        if isinstance(timeout, _Sentinel):
            return self.timeout
        return None if timeout is None else milliseconds(timeout, "timeout", at_least=0) / 1000

    def __enter__(self) -> Hold:
        return self._open(Acquiring(self, self.timeout).acquire())

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        self._closed().__exit__(exc_type, exc, tb)

    async def __aenter__(self) -> Hold:
        return self._open(await Acquiring(self, self.timeout, task=asyncio.current_task()).aacquire())

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        await self._closed().__aexit__(exc_type, exc, tb)

    def _open(self, outcome: Hold | Refused) -> Hold:
        if isinstance(outcome, Refused):
            raise outcome.error()
        before = _opened.get()
        try:
            _opened.set((*before, (self, outcome)))
        except BaseException:  # a signal's exception: no body will begin, and nothing would close it
            _opened.set(before)
            outcome.release()
            raise
        return outcome

    def _closed(self) -> Hold:
        """Return the open hold, open no more."""
        try:
            return self._close()
        except BaseException:  # a signal's exception in the middle: nobody else would let go of it
            with suppress(RuntimeError):
                self._close().release()
            raise

    def _close(self) -> Hold:
        opened = _opened.get()
        for at in range(len(opened) - 1, -1, -1):
            if opened[at][0] is self:
                _opened.set(opened[:at] + opened[at + 1 :])
                return opened[at][1]
        raise RuntimeError(
            f"Claim {self.name!r} is left in another context than it was entered in. Take the hold by acquire() "
            f"and release it by hand, or enter and leave in one task."
        )


signals.sender = Claim
