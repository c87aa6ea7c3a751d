"""
The end of this process: draining, and releasing what it still holds.

A drain releases nothing: a long holder asks `draining()`, or looks at its hold if it was
taken with stop_on_shutdown, and lets go itself when its work is whole.
"""

from __future__ import annotations

import atexit
import logging
from typing import Any

from django_claims import registry, signals
from django_claims.backends.base import Released, ReleaseRequest, within
from django_claims.clock import clock
from django_claims.handler import claim_backends
from django_claims.holds import result_of
from django_claims.keeper import all_keepers
from django_claims.leases import ReleaseResult

logger = logging.getLogger(__name__)

RELEASE_SECONDS = 5.0
"""For all holds together, also with a dead store: nobody waits longer for a process to end."""

_draining = ""


def draining() -> bool:
    """Say whether this process was asked to shut down. It then still holds what it holds."""
    return bool(_draining)


def start_draining(reason: str) -> None:
    """
    Tell this process that it is to shut down. Releases nothing; safe to call twice.

    Holds with stop_on_shutdown see a stop request. May be called from a signal handler.
    """
    global _draining
    if _draining:
        return
    _draining = reason or "shutting down"
    logger.info("Draining reason=%s", _draining)
    for hold in registry.all_holds():
        if hold.stop_on_shutdown:
            hold.shutting_down(_draining)
    signals.shutdown_started.send_robust(sender=None, reason=_draining)


def stop_draining() -> None:
    """Take it back: the process goes on, as a test's does."""
    global _draining
    _draining = ""


def release_all(reason: str) -> int:
    """
    Release every hold of this process and return how many there were.

    Called at exit, so a store that gives no answer is logged, not raised: what it kept ends
    with its TTL. Takes 5 s at most, for all together. Safe to call twice.
    """
    ends = clock() + RELEASE_SECONDS
    retired: dict[str, list[tuple[Any, list[ReleaseRequest]]]] = {}
    count = 0
    for hold in registry.all_holds():
        requests = hold.retire()  # lost to this process first, then deleted
        if requests is not None:
            count += 1
            if hold.alias:
                retired.setdefault(hold.alias, []).append((hold, requests))
    keepers = [keeper for keeper in all_keepers() if keeper.alias in retired or keeper.orphans()]
    for number, keeper in enumerate(keepers):
        mine = retired.get(keeper.alias, [])
        for hold, _ in mine:
            keeper.drop(hold)
        left = [ReleaseRequest(name, orphan.token) for orphan in keeper.orphans() for name in orphan.names]
        answers: list[Released] | None = None
        try:
            # A dead store leaves the others their share.
            with within(max((ends - clock()) / (len(keepers) - number), 0.05)):
                answers = claim_backends[keeper.alias].release([r for _, rs in mine for r in rs] + left)
        except Exception as error:
            logger.warning(
                "Holds could not be released; they end with their TTL alias=%s count=%s reason=%s error=%s",
                keeper.alias, len(mine), reason, error,
            )  # fmt: skip
        said = iter(answers or ())
        for hold, requests in mine:
            hold.end(result_of([next(said) for _ in requests]) if answers else ReleaseResult.UNKNOWN)
    if count:
        logger.info("Released all holds count=%s reason=%s", count, reason)
    return count


def _at_exit() -> None:
    release_all("exit")


atexit.register(_at_exit)
