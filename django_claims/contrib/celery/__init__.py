"""Celery: tasks and beat that run once at a time, stop when asked, and lose no work."""

from typing import Any

# Beat.
from django_claims.contrib.celery.beat import ClaimedSchedulerMixin
from django_claims.contrib.celery.persistent_beat import ClaimedPersistentScheduler

# Tasks.
from django_claims.contrib.celery.tasks import single_instance

__all__ = [
    "ClaimedDatabaseScheduler",
    "ClaimedPersistentScheduler",
    "ClaimedSchedulerMixin",
    "single_instance",
]


def __getattr__(name: str) -> Any:
    if name == "ClaimedDatabaseScheduler":  # django-celery-beat is a package and an app of its own
        from django_claims.contrib.celery.database_beat import ClaimedDatabaseScheduler

        return ClaimedDatabaseScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
