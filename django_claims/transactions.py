"""
Leaving a claim inside an open transaction.

    holder                         next holder
    begin; write; release
                                   acquire; read    <- the row as it was before
    commit

With release_on_commit=True the hold stays renewed until the outermost transaction has ended.
"""

from __future__ import annotations

from typing import Any, Protocol

from django.db import connections, transaction

from django_claims.logs import get_logger

logger = get_logger(__name__)

_warned: set[str] = set()


class _Releasable(Protocol):
    def release(self) -> object: ...


def open_connections() -> list[Any]:
    """Return the connections of this thread that are inside atomic(), blocks of TestCase apart."""
    return [
        connection
        for connection in connections.all(initialized_only=True)
        if connection.in_atomic_block
        and any(not getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
    ]


def warn_once(name: str) -> None:
    """Log that a claim was left inside an open transaction, once for each name."""
    if open_connections() and name not in _warned:
        _warned.add(name)
        logger.warning(
            "Claim left inside an open transaction: the next holder may read rows as they were before it. Claim "
            "outside, atomic inside; or pass release_on_commit=True name=%s", name,
        )  # fmt: skip


class _Ending:
    """
    Kept by a connection until its transaction ends, and called if that is a commit.

    After a rollback Django forgets it, which is how it learns of one.
    """

    def __init__(self, hold: _Releasable, left: list[int]) -> None:
        self._hold: _Releasable | None = hold
        self._left = left  # how many transactions, shared between them: the last one releases

    def __call__(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            self._left[0] -= 1
            if not self._left[0]:
                hold.release()

    __del__ = __call__


def release_at_the_end(hold: _Releasable) -> bool:
    """Release a hold when the open transactions of this thread have ended. Return False if there are none."""
    # Under TestCase nothing is ever committed, and code that is called twice must not refuse itself.
    pending = [c for c in open_connections() if not any(getattr(b, "_from_testcase", False) for b in c.atomic_blocks)]
    left = [len(pending)]
    for connection in pending:
        transaction.on_commit(_Ending(hold, left), using=connection.alias)
    return bool(pending)
