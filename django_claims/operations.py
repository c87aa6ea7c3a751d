"""What is asked and done about claims by name, by whoever looks after them."""

from __future__ import annotations

from typing import Literal

from django_claims import conf, signals
from django_claims.exceptions import InvalidClaim
from django_claims.handler import claim_backends
from django_claims.heartbeat import poke
from django_claims.leases import LeasePage
from django_claims.logs import get_logger
from django_claims.names import checked, text
from django_claims.offload import offload

logger = get_logger(__name__)


def liveness(name: str, *, using: str = conf.DEFAULT_ALIAS) -> Literal["running", "interrupted"]:
    """
    Say whether somebody runs under a claim: "running" while its lease lives, and when claims are off.

    Raises BackendUnavailable if nobody can tell.
    """
    checked(name)
    if not conf.enabled():
        return "running"
    lease = claim_backends[using].lease(name)
    return "interrupted" if lease is None or lease.state == "resting" else "running"


def list_claims(*, using: str = conf.DEFAULT_ALIAS, match: str = "", page: int = 1, per_page: int = 100) -> LeasePage:
    """
    Return one page of live leases in order of name; `match` is a glob over names.

    `complete` is False where the store may miss some. Raises BackendUnavailable.
    """
    for what, value, most in (("page", page, 10**9), ("per_page", per_page, 1000)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise InvalidClaim(f"{what} should be a whole number from 1 to {most}, not {value!r}.")
    if not isinstance(match, str):
        raise InvalidClaim(f"match should be a glob over names, not {match!r}.")
    if not conf.enabled():
        return LeasePage(leases=[], total=0, page=page, per_page=per_page)
    return claim_backends[using].leases(match=match, page=page, per_page=per_page)


def force_release(name: str, *, fence: int, by: str = "", using: str = conf.DEFAULT_ALIAS) -> bool:
    """
    End the lease of the run with that fence, whoever has it. Return False if that run has ended.

    For holders that are beyond asking: one that is alive is told as fast as of a stop, but two
    may run at once until it looks. Fence 0 is a lease that cannot be read.
    """
    checked(name)
    if isinstance(fence, bool) or not isinstance(fence, int) or fence < 0:
        raise InvalidClaim(f"fence should be the whole number of the run to end, not {fence!r}.")
    by = text(by, "by")
    if not conf.enabled():
        return False
    done = claim_backends[using].force_release(name, fence)
    if done:
        logger.warning("Claim force-released name=%s alias=%s fence=%s by=%s", name, using, fence, by)
        poke(using)
        signals.send(signals.claim_force_released, name=name, alias=using, fence=fence, by=by)
    return done


async def alist_claims(
    *, using: str = conf.DEFAULT_ALIAS, match: str = "", page: int = 1, per_page: int = 100
) -> LeasePage:
    """See list_claims()."""
    return await offload(lambda: list_claims(using=using, match=match, page=page, per_page=per_page), kind="ask")


async def aforce_release(name: str, *, fence: int, by: str = "", using: str = conf.DEFAULT_ALIAS) -> bool:
    """See force_release()."""
    return await offload(lambda: force_release(name, fence=fence, by=by, using=using))
