"""What a test does to claims: hold one as somebody else, end one, stop one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_claims import conf, heartbeat, registry, stop_flags
from django_claims.backends.base import AcquireRequest, Refusal, ReleaseRequest, new_token
from django_claims.claims import Claim
from django_claims.clock import Duration, clock, milliseconds
from django_claims.deadlines import deadlines
from django_claims.handler import claim_backends
from django_claims.holders import Holder, ProcessId
from django_claims.holds import Hold
from django_claims.keeper import all_keepers
from django_claims.leases import Lease, LossReason, StopFlag
from django_claims.outcomes import Refused
from django_claims.recipes import claim
from django_claims.test.waiting import wait_until

Target = str | Claim | Hold
DAY_MS = 86_400_000
SOMEBODY = "somebody else"


def named(target: Target, key: Any = None, using: str = conf.DEFAULT_ALIAS) -> tuple[tuple[str, ...], str]:
    """Return the names and the alias that a test means by a name (with a key), a claim or a hold."""
    if isinstance(target, Hold):
        return target.names, target.alias
    recipe = target if isinstance(target, Claim) else claim(target, key=key, using=using)
    return recipe.names, recipe.using


@contextmanager
def held(
    target: str | Claim,
    *,
    by: str = SOMEBODY,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
) -> Iterator[Lease]:
    """
    Have somebody else hold a claim in the block, on a machine called `by`; gives the lease.

    Nothing renews it: it lives for `ttl` seconds, a day if left out. Raises ClaimHeld or
    ClaimStopped if it cannot be had.
    """
    names, alias = named(target, key, using)
    token, ttl_ms = new_token(), DAY_MS if ttl is None else milliseconds(ttl, "ttl")
    _take(names, alias, token, by, ttl_ms)
    try:
        lease = claim_backends[alias].lease(names[0])
        assert lease is not None, f"Claim {names[0]!r} was granted and has no lease."
        yield lease
    finally:
        claim_backends[alias].release([ReleaseRequest(name, token) for name in names])


def expire(target: Target, *, key: Any = None, using: str = conf.DEFAULT_ALIAS) -> None:
    """
    End the lease of a claim as if its TTL had passed, whoever holds it.

    A hold of this process is lost (LossReason.EXPIRED), as it would have been before. Raises
    AssertionError if there is no lease.
    """
    _end_leases(target, key, using, LossReason.EXPIRED)


def lose(
    target: Target,
    reason: LossReason = LossReason.TAKEN,
    *,
    by: str = SOMEBODY,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
) -> None:
    """
    Take a claim away from this process, which learns of it at once.

    With LossReason.TAKEN `by` has it then, with any other nobody. Raises AssertionError if no
    hold of this process has it.
    """
    names, alias = named(target, key, using)
    assert _holds_of(names, alias), f"This process has no hold of claim {names[0]!r}. {state_of(names[0], alias)}"
    _end_leases(target, key, using, reason, by)


def request_stop(
    target: Target,
    *,
    reason: str = "",
    by: str = "a test",
    keep: bool = False,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
) -> StopFlag:
    """
    Ask the run that has a claim to stop, and return when a holder in this process knows.

    Raises AssertionError if nobody runs (unless `keep`).
    """
    names, alias = named(target, key, using)
    flag = stop_flags.request_stop(names[0], reason=reason, by=by, keep=keep, using=alias)
    assert flag is not None, f"Nobody to stop. {state_of(names[0], alias)}"
    for hold in _holds_of(names[:1], alias):
        # mypy infers no type for a lambda with defaults.
        wait_until(lambda hold=hold: not hold.is_open or hold.stop_flag_now, what="the stop request")  # type: ignore[misc]
    return flag


def beat() -> None:
    """
    Do now what the threads would do with their next beat: renew every hold, look for stops, tell
    losses, delete what was dropped.

    Without threads all of it is done when it returns; with threads it is asked for.
    """
    for hold in registry.all_holds():
        if hold._keeper is not None:
            hold._keeper.renew_by(hold.token, clock())
    for each in [*(keeper.heartbeat for keeper in all_keepers()), deadlines.heartbeat]:
        each.poked = True
        if heartbeat.manual:
            each.beat()
        elif each.running:
            each.call_by(0.0)


def _take(names: tuple[str, ...], alias: str, token: str, by: str, ttl_ms: int) -> None:
    """Grant a claim to a process of which nobody here can tell whether it lives."""
    holder = Holder(host=by, pid=1, processes=(ProcessId(f"not here: {by}", 1, 1),))
    answer = claim_backends[alias].acquire(
        [AcquireRequest(name, token, ttl_ms, max(ttl_ms // 3, 1), holder) for name in names]
    )
    if isinstance(answer, Refusal):
        raise Refused(answer.name, answer.lease, answer.flag).error()


def _end_leases(target: Target, key: Any, using: str, reason: LossReason, by: str = "") -> None:
    names, alias = named(target, key, using)
    backend, mine = claim_backends[alias], _holds_of(names, alias)
    names = tuple({name: None for hold in mine for name in hold.names} or dict.fromkeys(names))
    leases = [(name, backend.lease(name)) for name in names]
    assert any(lease for _, lease in leases), f"There is no lease to end. {state_of(names[0], alias)}"
    try:
        for hold in mine:  # first: a thread would find that it was forced
            hold.lose(reason)
    finally:  # with on_lost="interrupt" that has raised
        for name, lease in leases:
            if lease is not None:
                backend.force_release(name, lease.fence)
        if reason is LossReason.TAKEN:
            _take(names, alias, new_token(), by, DAY_MS)


def _holds_of(names: tuple[str, ...], alias: str) -> list[Any]:
    """Return the open holds of this process that have one of the names."""
    return [
        hold for hold in registry.all_holds() if hold.alias == alias and hold.is_open and set(names) & set(hold.names)
    ]


def state_of(name: str, alias: str) -> str:
    """Say in words how things are with a claim, for the message of an assertion."""
    backend = claim_backends[alias]
    lease = backend.lease(name)
    if lease is not None:
        return lease.sentence()
    others = ", ".join(repr(other.name) for other in backend.leases(match="", page=1, per_page=10)) or "none"
    return f"Nobody holds claim {name!r} (claims that are held: {others})."
