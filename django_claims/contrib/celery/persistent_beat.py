"""Beat with hot standby, and Celery's usual schedule: in a file of its own."""

from __future__ import annotations

from typing import Any

from celery.beat import PersistentScheduler, Scheduler

from django_claims.contrib.celery.beat import ClaimedSchedulerMixin


class _NoFile:
    """What stands in for the schedule's file while it is not open: Celery 5.5 closes it without asking for it."""

    cache: dict[str, Any]

    def __getitem__(self, key: str) -> dict[str, Any]:
        return {}

    def sync(self) -> None:
        pass

    close = sync


class ClaimedPersistentScheduler(ClaimedSchedulerMixin, PersistentScheduler):
    """
    Celery's usual scheduler, with hot standby.

    The schedule's file is opened by the active beat alone, so that beats in one directory may share it.
    """

    _store: Any = _NoFile()

    def close_schedule(self) -> None:
        if self._store is None:  # which Celery before 5.7 would close all the same
            Scheduler.close(self)
        else:
            super().close_schedule()

    def forget_schedule(self) -> None:
        super().forget_schedule()
        store, self._store = self._store, _NoFile()
        store.cache = {}  # or closing would write it
        store.close()
