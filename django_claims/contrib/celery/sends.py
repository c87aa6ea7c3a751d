"""What the active beat notes of its sends, and when it writes that."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from django_claims.backends.base import within
from django_claims.clock import clock
from django_claims.contrib.celery.last_runs import LastRuns, Run
from django_claims.exceptions import BackendUnavailable
from django_claims.holds import Hold
from django_claims.logs import get_logger

logger = get_logger(__name__)

WRITE_SECONDS = 1.0  # that it may take, lest a store that is down holds up the next send
RETRY_SECONDS = 2.0
REFRESH_SECONDS = 6 * 3600.0  # a schedule that sends nothing for weeks is not forgotten for that


class Sends:
    """
    The last run of each entry, as this beat knows it: written after each send, by the hold under which it sends.

    A store that does not answer is asked again later: whether to send is the claim's to say, not ours.
    """

    def __init__(self, hold: Hold, last_runs: LastRuns | None, schedule: Mapping[str, Any]) -> None:
        self._hold, self._last_runs = hold, last_runs
        self.runs = {name: run_of(entry) for name, entry in schedule.items()}
        self._has_news = last_runs is not None  # there is nowhere to write while claims are off
        self._from, self._refresh_at = 0.0, float("inf")

    def note(self, entry: Any) -> None:
        """Note that it was sent; to be written."""
        self.runs[entry.name] = run_of(entry)
        self._has_news = self._last_runs is not None

    def keep_to(self, schedule: Mapping[str, Any]) -> None:
        """Leave out what has left the schedule, and add what is new there: both may be enabled anew some day."""
        for name, entry in schedule.items():
            self.runs.setdefault(name, run_of(entry))
        for name in self.runs.keys() - schedule.keys():
            del self.runs[name]

    def is_due(self) -> bool:
        """Say whether it should be written now."""
        return clock() >= (self._from if self._has_news else self._refresh_at)

    def finish(self) -> None:
        """Write what is not written yet, if it is still ours to write."""
        if self._has_news and self._hold.held:
            self.write()

    def write(self) -> None:
        """Write it. The hold is found lost if somebody else is the one who writes."""
        if self._last_runs is None:
            return
        self._from = clock() + RETRY_SECONDS
        try:
            with within(WRITE_SECONDS):
                kept = self._last_runs.keep(self.runs)
                if not kept and self._hold.verify():  # the store has forgotten them, or somebody force-released them
                    self._last_runs.take()
                    kept = self._last_runs.keep(self.runs)
        except BackendUnavailable as error:
            logger.warning(
                "What was sent could not be noted; trying again name=%s alias=%s error=%s",
                self._hold.name, self._hold.alias, error,
            )  # fmt: skip
            return
        if kept:
            self._has_news = False
            self._from, self._refresh_at = 0.0, clock() + REFRESH_SECONDS


def run_of(entry: Any) -> Run:
    """Return when an entry was last sent, and how often."""
    at = entry.last_run_at
    return Run(round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6), entry.total_run_count or 0)
