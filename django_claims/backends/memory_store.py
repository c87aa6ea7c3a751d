"""What MemoryBackend keeps: the data of an alias outlives its backend objects."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from django_claims.holders import Holder
from django_claims.leases import StopFlag


@dataclass(slots=True)
class Row:
    token: str
    fence: int
    kind: str
    holder: Holder
    acquired_us: int
    renewed_us: int
    expires_us: int
    ttl_ms: int
    heartbeat_ms: int
    progress: str = ""


class Store:
    """The leases and flags of one alias, by one clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        # What makes a date of that clock, for people. Fixed once, since test tools move the wall clock.
        self.epoch = time.time() - clock()
        self.lock = threading.RLock()
        self.bells: dict[int, Callable[[], object]] = {}  # of those who wait
        self.rows: dict[str, Row] = {}
        self.flags: dict[str, StopFlag] = {}
        self.forced: dict[tuple[str, int], int] = {}  # name and fence: until when there is word of it
        self.last_fence = 0

    def now(self) -> int:
        """Return the time in microseconds. Under the lock, or it may be past by the time that the lock is had."""
        return int((self.clock() + self.epoch) * 1_000_000)

    def ring(self) -> None:
        """Call all who wait: something has changed."""
        for bell in list(self.bells.values()):
            with suppress(RuntimeError):  # a loop that is closed
                bell()


stores: dict[tuple[str, Callable[[], float]], Store] = {}


def forget(alias: str) -> None:
    """Throw away all leases and flags of an alias."""
    for key in [key for key in list(stores) if key[0] == alias]:
        del stores[key]


if hasattr(os, "register_at_fork"):
    # The child starts with none: what it inherited are the parent's, and so is the lock.
    os.register_at_fork(after_in_child=stores.clear)
