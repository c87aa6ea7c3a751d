"""How somebody waits for a name."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

from django_claims.backends.messages import Grant, Refusal

GRANT_SECONDS = 1.9
"""How long a pushed grant that nobody confirms is safe from the next in line; see line.lua."""
LEAVE = "-"
"""The place of a last try: in no line any more."""


class Bell:
    """Wakes one sleeper. A bare lock: an exception of a signal handler leaves nothing of it half done."""

    wake: Callable[[], object] | None = None
    """Of one who sleeps on something else as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the sleeper, or the next one to come. From any thread."""
        with suppress(RuntimeError):  # rung already
            self._lock.release()
        if (wake := self.wake) is not None:
            wake()

    def wait(self, seconds: float) -> None:
        self._lock.acquire(timeout=min(max(seconds, 0.0), 3600.0))

    def was_rung(self) -> bool:
        """Say whether it was rung since the last look."""
        return self._lock.acquire(False)


class Waiter:
    """
    How somebody waits: here by looking again and again, sooner at first.

    Before each try, prepare(); `place` goes along with it; after a refusal, sleep for pause()
    seconds or until the bell rings. At the end close().
    """

    place = ""

    def __init__(self, interval: tuple[float, float]) -> None:
        self._interval, self._longest = interval

    def prepare(self, seconds: float) -> None:
        """Get ready for the next try, within some seconds."""

    def pause(self, refusal: Refusal) -> float:
        """Return the seconds after which to try again, if no bell has rung before."""
        pause = self._interval * random.uniform(0.8, 1.2)
        self._interval = min(self._interval * 1.5, self._longest)
        return pause

    def sleep(self, bell: Bell, seconds: float) -> None:
        """Sleep until the bell rings, or what it would ring for has come."""
        bell.wait(seconds)

    def granted(self) -> tuple[Grant, float] | None:
        """
        Return what the store has granted and pushed, since the last refusal, and when: by clock(), not too late.

        Lives for GRANT_SECONDS from then, unless it is renewed or acquired with its token.
        """
        return None

    def close(self) -> None:
        """Wait no more."""
