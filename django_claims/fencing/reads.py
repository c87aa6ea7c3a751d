"""Reads that bar older holders from writing what was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import models, transaction

from django_claims.fencing.fences import Rows, fenced
from django_claims.holds import Hold

M = TypeVar("M", bound=models.Model)
T = TypeVar("T")


def fenced_read(queryset: Rows[M], hold: Hold | None = None) -> list[M]:
    """
    Return the rows of a queryset, and bar every older holder from writing them.

    For a read that a write will rest on: else an older holder could write in between. Raises
    what fenced_update() raises.
    """
    return _barred(queryset, hold, list)


def fenced_get(queryset: Rows[M], hold: Hold | None = None) -> M:
    """Return the one row of a queryset, as get() does, and bar older holders as fenced_read() does."""
    found: M = _barred(queryset, hold, lambda rows: rows.get())
    return found


def _barred(queryset: Rows[M], hold: Hold | None, read: Callable[[models.QuerySet[M, Any]], T]) -> T:
    rows, fence = fenced(queryset, hold)
    if fence.is_off:
        return read(rows)
    with transaction.atomic(using=rows.db):
        fence.write(rows)
        return read(rows.filter(**fence.value))


async def afenced_read(queryset: Rows[M], hold: Hold | None = None) -> list[M]:
    """See fenced_read()."""
    return await sync_to_async(fenced_read)(queryset, hold)


async def afenced_get(queryset: Rows[M], hold: Hold | None = None) -> M:
    """See fenced_get()."""
    return await sync_to_async(fenced_get)(queryset, hold)
