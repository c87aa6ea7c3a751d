"""Claims: the recipe, and the functions that ask a store about claims by name."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from django_claims import conf, registry, signals
from django_claims.acquiring import Acquiring
from django_claims.adopting import Adopting
from django_claims.clock import Duration, milliseconds
from django_claims.conf import AliasSettings, timing_problem
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.holds import Hold
from django_claims.leases import Lease
from django_claims.names import checked, text, with_key
from django_claims.offload import offload
from django_claims.outcomes import Refused


class _Sentinel(enum.Enum):
    RECIPE = "the claim's own timeout"


RECIPE = _Sentinel.RECIPE
OnLost = Literal["flag", "raise", "cancel", "interrupt"]

# The holds that "with claim" opened in this context, innermost last. Strong references: nobody
# need name the hold in "with claim(…):".
_opened: ContextVar[tuple[tuple[Any, Hold], ...]] = ContextVar("django_claims_opened", default=())


@dataclass(frozen=True, slots=True, kw_only=True)
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
        self._close().__exit__(exc_type, exc, tb)

    async def __aenter__(self) -> Hold:
        return self._open(await Acquiring(self, self.timeout, task=asyncio.current_task()).aacquire())

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        await self._close().__aexit__(exc_type, exc, tb)

    def _open(self, outcome: Hold | Refused) -> Hold:
        if isinstance(outcome, Refused):
            raise outcome.error()
        _opened.set((*_opened.get(), (self, outcome)))
        return outcome

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


def claim(
    name: str,
    *,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    renew_deadline: Duration | None = None,
    timeout: Duration | None = 0.0,
    label: str = "",
    max_hold: Duration | None = None,
    min_hold: Duration = 0.0,
    on_lost: OnLost = "flag",
    stop_on_shutdown: bool = False,
    release_on_commit: bool = False,
    follow_dead: bool = True,
) -> Claim:
    """
    Return the recipe of a claim. Takes nothing, reads no settings, touches no store.

    - `key`: what exactly it is about, written after the name: a value or a tuple of values
    - `ttl`, `heartbeat`, `renew_deadline`: seconds; left out: the alias's, or a third and two thirds of `ttl`
    - `timeout`: seconds that an acquire may wait; 0 tries once, None waits without limit
    - `max_hold`: seconds after which the hold is lost though it be healthy
    - `min_hold`: seconds from the acquire before which nobody else gets it, even if released
    - `on_lost`: "flag"; "raise" ClaimLost at checkpoints and on leaving; "cancel" the asyncio task;
      "interrupt" the main thread
    - `release_on_commit`: left inside atomic(), stay until that has ended
    - `follow_dead`: take over at once from a process of this machine that is dead

    Raises InvalidClaim, naming the value, for whatever cannot be used.
    """
    return _recipe(
        (name,), key, using, ttl, heartbeat, renew_deadline, timeout, label, max_hold, min_hold, on_lost,
        stop_on_shutdown, release_on_commit, follow_dead,
    )  # fmt: skip


def claim_all(
    *names: str,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    renew_deadline: Duration | None = None,
    timeout: Duration | None = 0.0,
    label: str = "",
    max_hold: Duration | None = None,
    min_hold: Duration = 0.0,
    on_lost: OnLost = "flag",
    stop_on_shutdown: bool = False,
    release_on_commit: bool = False,
    follow_dead: bool = True,
) -> Claim:
    """
    Return the recipe of several claims that are taken together: all or none, in one step.

    One hold for all of them, with one fence that is above each name's last. A refusal names the
    one that was not free. Sets that overlap never wait for each other in a ring: the order is
    fixed, and nothing is held while waiting. Where the store keeps a line, it stands in that of
    each name; see the page on waiting. For the arguments see claim(); `key` is written
    after each name.
    """
    if not names:
        raise InvalidClaim("claim_all() should have at least one name.")
    return _recipe(
        names, key, using, ttl, heartbeat, renew_deadline, timeout, label, max_hold, min_hold, on_lost,
        stop_on_shutdown, release_on_commit, follow_dead,
    )  # fmt: skip


def _recipe(
    names: tuple[str, ...],
    key: Any,
    using: str,
    ttl: Duration | None,
    heartbeat: Duration | None,
    renew_deadline: Duration | None,
    timeout: Duration | None,
    label: str,
    max_hold: Duration | None,
    min_hold: Duration,
    on_lost: OnLost,
    stop_on_shutdown: bool,
    release_on_commit: bool,
    follow_dead: bool,
) -> Claim:
    """Judge the arguments and return the recipe. Raises InvalidClaim."""
    whole = tuple(with_key(checked(name), key) for name in names)
    if len(whole) > 1:
        whole = tuple(sorted(set(whole)))  # one order for all
    if not isinstance(using, str):
        raise InvalidClaim(f"using should be an alias of CLAIMS, not {using!r}.")
    if on_lost not in ("flag", "raise", "cancel", "interrupt"):
        raise InvalidClaim(f"on_lost should be 'flag', 'raise', 'cancel' or 'interrupt', not {on_lost!r}.")

    def optional(value: Duration | None, what: str) -> int | None:
        return None if value is None else milliseconds(value, what)

    most = optional(max_hold, "max_hold")
    made = Claim(
        names=whole,
        using=using,
        ttl_ms=optional(ttl, "ttl"),
        heartbeat_ms=optional(heartbeat, "heartbeat"),
        renew_deadline_ms=optional(renew_deadline, "renew_deadline"),
        timeout=None if timeout is None else milliseconds(timeout, "timeout", at_least=0) / 1000,
        label=text(label, "label"),
        max_hold=None if most is None else most / 1000,
        min_hold=milliseconds(min_hold, "min_hold", at_least=0) / 1000,
        on_lost=on_lost,
        stop_on_shutdown=bool(stop_on_shutdown),
        release_on_commit=bool(release_on_commit),
        follow_dead=bool(follow_dead),
    )
    if made.ttl_ms is not None:
        # All that is needed is known: say it now, not at the first acquire.
        made.timing(AliasSettings(alias=using, backend=""))
    return made


def hold(
    name: str,
    *,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    stop: str | None = None,
    signal: threading.Event | Callable[[], Any] | None = None,
    using: str = conf.DEFAULT_ALIAS,
) -> Hold | None:
    """
    Take a claim if it is free, and return the hold; None if it is refused, or claims are off.

    `stop` names a stop flag to watch besides the claim's own; `signal`, an event to set or a
    callable, is tripped when a stop is seen or the hold is lost, from another thread. Release
    it in a `finally`, or use it as `with hold:`.
    """
    recipe = claim(name, ttl=ttl, heartbeat=heartbeat, using=using)
    if stop is not None:
        checked(stop)
    trip: Any = getattr(signal, "set", signal)
    if trip is not None and not callable(trip):
        raise InvalidClaim(f"signal should be a threading.Event or a callable, not {signal!r}.")
    if not conf.enabled():
        return None
    outcome = Acquiring(recipe, 0.0, watch=stop, trip=trip).acquire()
    return outcome if isinstance(outcome, Hold) else None


def current_hold() -> Hold | None:
    """Return the innermost hold that this thread or task has, or None."""
    found = registry.current()
    return found if isinstance(found, Hold) else None


signals.sender = Claim
