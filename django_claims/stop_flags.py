"""Asking work to stop: set, clear and read stop flags."""

from __future__ import annotations

from django_claims import clock, conf, heartbeat, signals
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.leases import StopFlag
from django_claims.names import REASON_LENGTH, checked, text
from django_claims.offload import offload


def request_stop(
    name: str,
    *,
    reason: str = "",
    by: str = "",
    ttl: clock.Duration | None = None,
    keep: bool = False,
    fence: int | None = None,
    using: str = conf.DEFAULT_ALIAS,
) -> StopFlag | None:
    """
    Ask the run that has a claim now to end, and return the flag; None if nobody runs.

    The flag is bound to the fence of that run (or to `fence`, if the run with it still
    lives), ends with it, and never hits the next one. With `keep` it also sends waiters home
    and refuses new acquires with ClaimStopped until cleared, or for `ttl` seconds.

    Limit: a request, not a kill. Work ends when the job looks. Raises BackendUnavailable if
    the store did not answer: the flag may or may not be set then. None when claims are off.
    """
    checked(name)
    if fence is not None and (isinstance(fence, bool) or not isinstance(fence, int)):
        raise InvalidClaim(f"fence should be a whole number, not {fence!r}.")
    if keep and fence is not None:
        raise InvalidClaim("fence= aims at one run and keep= at all of them: give one.")
    if ttl is not None and not keep:
        raise InvalidClaim("ttl= is for keep=True only: the flag of a run lives as long as the run.")
    ttl_ms = None if ttl is None else clock.milliseconds(ttl, "ttl")
    reason, by = text(reason, "reason", REASON_LENGTH), text(by, "by")
    if not conf.enabled():
        return None
    flag = claim_backends[using].set_flag(name, keep=bool(keep), fence=fence, reason=reason, by=by, ttl_ms=ttl_ms)
    if flag is not None:
        heartbeat.poke(using)
        signals.send(signals.stop_requested, name=name, alias=using, flag=flag)
    return flag


def clear_stop(name: str, *, using: str = conf.DEFAULT_ALIAS) -> bool:
    """Remove the stop flag of a name. Return whether there was one."""
    checked(name)
    if not conf.enabled():
        return False
    flag = claim_backends[using].clear_flag(name)
    if flag is not None:
        heartbeat.poke(using)
        signals.send(signals.stop_cleared, name=name, alias=using, flag=flag)
    return flag is not None


def stop_flag(name: str, *, using: str = conf.DEFAULT_ALIAS) -> StopFlag | None:
    """
    Return the stop flag of a name, from the store.

    Raises BackendUnavailable if the store did not answer: that is not "no stop".
    """
    checked(name)
    return claim_backends[using].flag(name) if conf.enabled() else None


def list_stop_flags(*, using: str = conf.DEFAULT_ALIAS) -> list[StopFlag]:
    """Return all stop flags of an alias, in order of name."""
    return claim_backends[using].flags() if conf.enabled() else []


async def arequest_stop(
    name: str,
    *,
    reason: str = "",
    by: str = "",
    ttl: clock.Duration | None = None,
    keep: bool = False,
    fence: int | None = None,
    using: str = conf.DEFAULT_ALIAS,
) -> StopFlag | None:
    """See request_stop()."""
    return await offload(lambda: request_stop(name, reason=reason, by=by, ttl=ttl, keep=keep, fence=fence, using=using))


async def aclear_stop(name: str, *, using: str = conf.DEFAULT_ALIAS) -> bool:
    """See clear_stop()."""
    return await offload(lambda: clear_stop(name, using=using))


async def astop_flag(name: str, *, using: str = conf.DEFAULT_ALIAS) -> StopFlag | None:
    """See stop_flag()."""
    return await offload(lambda: stop_flag(name, using=using), kind="ask")
