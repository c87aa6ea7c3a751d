"""How somebody waits for a name."""

from __future__ import annotations

import random

from django_claims.backends.messages import Grant, Refusal

GRANT_SECONDS = 1.9
"""How long a pushed grant that nobody confirms is safe from the next in line; see line.lua."""
LEAVE = "-"
"""The place of a last try: in no line any more."""


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

    def granted(self) -> tuple[Grant, float] | None:
        """
        Return what the store has granted and pushed, since the last refusal, and when: by clock(), not too late.

        Lives for GRANT_SECONDS from then, unless it is renewed or acquired with its token.
        """
        return None

    def close(self) -> None:
        """Wait no more."""
