"""
Tokens that may have a lease which nobody holds.

    we       acquire ——(no answer)          delete: nothing there
    network           ~~~~~~~~~~~~~~~~~~~~~~~~~~ the late copy arrives: granted, to nobody

So each is deleted again and again, until no copy of its acquire can still be on its way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from django_claims.backends.base import ReleaseRequest
from django_claims.clock import clock
from django_claims.handler import claim_backends
from django_claims.heartbeat import Schedule
from django_claims.logs import get_logger

logger = get_logger(__name__)


@dataclass(slots=True)
class Orphan:
    """One token, to be deleted every `retry` seconds until `until`."""

    names: tuple[str, ...]
    token: str = field(repr=False)
    until: float
    retry: float
    dropped: bool = False  # its hold was forgotten: say so, and one clean delete is enough


class Orphans:
    """The orphans of one alias. The caller locks."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._orphans: dict[str, Orphan] = {}
        self._due: Schedule[str] = Schedule()

    def add(self, orphan: Orphan) -> None:
        """Delete it now, and again."""
        self._orphans[orphan.token] = orphan
        self._due.set(orphan.token, 0.0)

    def all(self) -> list[Orphan]:
        return list(self._orphans.values())

    def next(self) -> float | None:
        """Return when the next one is due, or None."""
        return self._due.next()

    def delete(self, lock: AbstractContextManager[bool]) -> None:
        """Delete those that are due; lock only what is ours, not the store."""
        with lock:
            tokens = self._due.pop_due(clock())
            due = [orphan for token in tokens if (orphan := self._orphans.get(token)) is not None]
        if not due:
            return
        try:
            claim_backends[self.alias].release(
                [ReleaseRequest(name, orphan.token) for orphan in due for name in orphan.names]
            )
            answered = True
        except Exception as error:
            answered = False
            logger.warning("A lease that may be left could not be deleted yet alias=%s error=%s", self.alias, error)
        now = clock()
        with lock:
            for orphan in due:
                if now >= orphan.until or (answered and orphan.dropped):
                    self._orphans.pop(orphan.token, None)
                else:
                    self._due.set(orphan.token, now + orphan.retry)
