"""Removing files of names that nobody uses: a few at a time, by whoever comes along."""

from __future__ import annotations

import random
from itertools import islice

from django_claims.backends.file_directory import remove
from django_claims.backends.file_visit import Visit
from django_claims.clock import clock

CLEAN_SECONDS = 60.0
SAMPLE = 200
FREED = 1000
"""
Files of its last released names that a process leaves there for its next run of them.

To make a file and to remove it costs several times what it costs to write into one that is there.
"""
TIDIED = 100
"""Files that are removed in one go, so that others are not kept waiting."""


def _remove_if_over(visit: Visit, file: str) -> bool:
    entry = visit.look_into(file)
    if entry is None or visit.is_live(entry):
        return False  # in use, or nobody can tell
    remove(file, visit.handles.leases)
    return True


def remove_freed(visit: Visit, *, all: bool = False) -> bool:
    """Remove the oldest files that this process has left, if there are many. Return whether that is to go on."""
    freed = visit.directory.freed
    too_many = len(freed) - (0 if all else FREED)
    if too_many > 0:
        for file in list(islice(freed, min(too_many, TIDIED))):
            del freed[file]
            _remove_if_over(visit, file)
    return too_many > TIDIED


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
