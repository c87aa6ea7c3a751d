"""Clocks for tests: one that stands still until it is told to go, one that follows the wall clock."""

from __future__ import annotations

import time

from django_claims import heartbeat
from django_claims.clock import Duration, milliseconds, real_clock
from django_claims.deadlines import deadlines


class FakeClock:
    """
    A clock that stands still, for `override_claims(clock=FakeClock())`.

    The holds and the memory backend go by it. It moves when it is told to, and by as much as
    claims wait for: `acquire(timeout=60)` and `hold.sleep(60)` take a moment, and a minute of it.
    """

    def __init__(self) -> None:
        self._now = float(int(real_clock()))  # whole: times in tests add up

    def __call__(self) -> float:
        return self._now

    def tick(self, seconds: Duration = 1.0) -> None:
        """
        Let time go by while this process does nothing, as one that was stopped.

        Nothing is renewed: what is over its time by then is lost, and expired.
        """
        self._move(milliseconds(seconds, "seconds", at_least=0) / 1000)
        if heartbeat.manual:
            deadlines.heartbeat.beat()

    def run(self, seconds: Duration = 1.0) -> None:
        """Let time go by as in a healthy process: holds are renewed on the way, whenever that is due."""
        ends = self() + milliseconds(seconds, "seconds", at_least=0) / 1000
        while heartbeat.manual:
            due = min((each.due for each in heartbeat.all_heartbeats() if not each.is_resting), default=ends)
            if due >= ends:
                break
            self._move(max(due - self(), 0.0))
            _do_due(self())
        self._move(max(ends - self(), 0.0))
        if heartbeat.manual:
            _do_due(self())

    def to_wait(self, seconds: float, at_most: float) -> float:
        """Somebody waits: let time go by, by the second, and give other threads a moment in earnest."""
        self.run(max(min(max(seconds, 1.0), at_most), 0.001))
        return 0.001

    def _move(self, seconds: float) -> None:
        self._now += seconds


class WallClock(FakeClock):
    """The wall clock, which freezegun and time-machine move, for `override_claims(clock="wall")`."""

    def __init__(self) -> None:
        self._now = 0.0  # how much was waited for

    def __call__(self) -> float:
        return time.time() + self._now


def _do_due(now: float) -> None:
    """Do what is due: renewals first, then the deadlines that they moved."""
    for each in sorted(heartbeat.all_heartbeats(), key=lambda each: each is deadlines.heartbeat):
        if each.due <= now:
            each.beat()
