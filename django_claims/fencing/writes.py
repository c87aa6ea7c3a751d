"""Writes that a later holder's write turns away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import IntegrityError, models, router, transaction

from django_claims.exceptions import InvalidClaim
from django_claims.fencing.fences import Rows, fenced, is_one_row
from django_claims.fencing.fields import fence_field
from django_claims.holds import Hold

M = TypeVar("M", bound=models.Model)


def fenced_update(queryset: Rows[M], hold: Hold | None = None, **values: Any) -> int:
    """
    Update rows as `queryset.update(**values)` does, unless a later holder has written; return how many.

    All or nothing: if a later holder has written any of the rows, StaleFence is raised and none
    is changed. Zero means that the queryset matches no row. ClaimLost, before anything is
    written, if the hold is lost or released. Without a hold, the innermost of this thread or
    task. Writes unfenced when claims are off.

    One statement where a primary key or another unique value names the row, and a look if that
    found none. Else three in one transaction: write the fence, which keeps others off the rows;
    look for a larger one; write the values.

    Limit: a row that no longer fits the queryset, since a later holder changed what it filters
    by, counts as no match: filter by the primary key to be told.
    """
    rows, fence = fenced(queryset, hold)
    if fence.name in values:
        raise InvalidClaim(f"{fence.name!r} is written by fenced_update() itself; leave it out.")
    if fence.is_off:
        return rows.update(**values)
    if is_one_row(rows, {fence.name, *values}):
        changed = fence.not_above(rows).update(**values, **fence.value)
        if not changed:
            fence.look(rows)
        return changed
    with transaction.atomic(using=rows.db):
        changed = fence.write(rows)
        return rows.filter(**fence.value).update(**values) if values else changed


def fenced_save(instance: models.Model, hold: Hold | None = None, update_fields: Iterable[str] | None = None) -> None:
    """
    Save an instance as `instance.save()` does, unless a later holder has written its row.

    The fence is written first, in the same transaction, and keeps others off the row. Raises
    what fenced_update() raises; the instance's fence is then as it was. A row that is not there
    is inserted, never written over: if another one comes in at the same moment, that is an
    IntegrityError, as with force_insert.
    """
    model = type(instance)
    db = router.db_for_write(model, instance=instance)
    owner = fence_field(model).model
    key = _key(instance, owner)
    rows, fence = fenced(owner._base_manager.using(db).filter(pk=key), hold)
    if fence.is_off:
        instance.save(using=db, update_fields=update_fields)
        return
    has_pk = None not in (key if isinstance(key, tuple) else (key,))
    before = instance.__dict__.get(fence.name, models.DEFERRED)
    try:
        with transaction.atomic(using=db):
            is_there = has_pk and fence.write(rows) > 0
            setattr(instance, fence.name, fence.number)
            if is_there:
                instance.save(using=db, update_fields=update_fields)
            elif update_fields is None:
                instance.save(using=db, force_insert=True)
            else:
                instance.save(using=db, update_fields=update_fields)  # an error, unless it has just come in
                fence.look(rows)
    except BaseException as error:
        vars(instance).pop(fence.name, None)
        if before is not models.DEFERRED:
            setattr(instance, fence.name, before)
        if has_pk and isinstance(error, IntegrityError):
            fence.look(rows)  # a later holder may have inserted it meanwhile
        raise


def _key(instance: models.Model, owner: type[models.Model]) -> Any:
    """Return the primary key of an instance's row in the table of the model that has the fence."""
    model = type(instance)
    if owner is model._meta.concrete_model:
        return instance.pk
    key = getattr(instance, owner._meta.pk.attname)
    link = model._meta.get_ancestor_link(owner)
    if key is None and link is not None:
        return getattr(instance, link.attname)  # given by hand; Django copies it over when it saves
    return key


async def afenced_update(queryset: Rows[M], hold: Hold | None = None, **values: Any) -> int:
    """See fenced_update()."""
    return await sync_to_async(fenced_update)(queryset, hold, **values)


async def afenced_save(
    instance: models.Model, hold: Hold | None = None, update_fields: Iterable[str] | None = None
) -> None:
    """See fenced_save()."""
    await sync_to_async(fenced_save)(instance, hold, update_fields)
