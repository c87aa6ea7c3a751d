"""Beat with hot standby, and a schedule in the database: for django-celery-beat."""

from __future__ import annotations

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from django_claims.contrib.celery.beat import ClaimedSchedulerMixin
from django_claims.contrib.celery.last_runs import Run


class ClaimedDatabaseScheduler(ClaimedSchedulerMixin, DatabaseScheduler):
    """django-celery-beat's scheduler, with hot standby. A beat that stands by asks the database nothing."""

    def forget_schedule(self) -> None:
        super().forget_schedule()
        self._dirty.clear()
        self._schedule, self._initial_read = None, True

    def adopt(self, entry: Any, run: Run) -> None:
        if not run.times:
            return  # when it was enabled stands in the database, and that it never ran
        super().adopt(entry, run)
        if (entry.model.last_run_at, entry.model.total_run_count) != (entry.last_run_at, entry.total_run_count):
            entry.model.last_run_at, entry.model.total_run_count = entry.last_run_at, entry.total_run_count
            entry.model.no_changes = True
            self._dirty.add(entry.name)
