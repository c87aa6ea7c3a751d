"""Removing files of names that nobody uses: a few at a time, by whoever comes along."""

from __future__ import annotations

import random

from django_claims.backends.file_directory import remove
from django_claims.backends.file_visit import Visit
from django_claims.clock import clock

CLEAN_SECONDS = 60.0
SAMPLE = 200
FREED = 64
"""Files of its last released names that a process leaves there for its next run of them."""


def _remove_if_over(visit: Visit, file: str) -> bool:
    entry = visit.look_into(file)
    if entry is None or visit.is_live(entry):
        return False  # in use, or nobody can tell
    remove(file, visit.handles.leases)
    return True


def remove_freed(visit: Visit) -> None:
    """Remove what this process has left, if that is much."""
    freed = visit.directory.freed
    if len(freed) > FREED:
        for file in list(freed)[: -FREED // 2]:
            del freed[file]
            _remove_if_over(visit, file)


def tidy(visit: Visit) -> None:
    """Remove all that this process has left."""
    freed = visit.directory.freed
    for file in list(freed):
        del freed[file]
        _remove_if_over(visit, file)


def clean_sometimes(visit: Visit) -> None:
    """Remove, now and then, what processes have left that died."""
    directory, now = visit.directory, clock()
    if now < directory.clean_at:
        return
    directory.clean_at = now + CLEAN_SECONDS
    files = visit.handles.names(visit.handles.leases)
    sample = random.sample(files, min(len(files), SAMPLE))
    removed = sum(_remove_if_over(visit, file) for file in sample)
    if removed > SAMPLE // 2:
        directory.clean_at = now + 1.0  # there is more of it
