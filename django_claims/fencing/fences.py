"""A hold's fence against the rows of a queryset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connections, models
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.sql.where import AND

from django_claims import conf
from django_claims.exceptions import ClaimLost, InvalidClaim, StaleFence, UnsupportedFeature
from django_claims.fencing.fields import FenceField, fence_field
from django_claims.holds import Hold
from django_claims.recipes import current_hold

M = TypeVar("M", bound=models.Model)

# What can be asked for its rows.
Rows = models.QuerySet[M, Any] | models.Manager[M]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """A hold's number, and the field that it goes into."""

    claim: str
    number: int
    is_off: bool  # claims are off: there is no number
    field: FenceField

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def value(self) -> dict[str, int]:
        return {self.field.name: self.number}

    def not_above(self, rows: models.QuerySet[M, Any]) -> models.QuerySet[M, Any]:
        """Return those of the rows that this holder may write."""
        return rows.filter(**{f"{self.field.name}__lte": self.number})

    def look(self, rows: models.QuerySet[M, Any]) -> None:
        """Raise StaleFence if a later holder has written one of the rows."""
        if rows.filter(**{f"{self.field.name}__gt": self.number}).exists():
            raise StaleFence(self.claim, self.number)

    def write(self, rows: models.QuerySet[M, Any]) -> int:
        """
        Write the fence, and nothing else, into each of the rows, or raise StaleFence.

        In one statement on the fence's own table that compares it there: a row that another
        transaction holds back is compared again, as it then is.
        """
        owner = self.field.model
        if not is_one_table(rows, {self.field.name}):
            key = "pk" if owner is rows.model._meta.concrete_model else owner._meta.pk.name
            keys: Any = rows.order_by().values_list(key)
            if not connections[rows.db].features.update_can_self_select:  # MySQL
                keys = [pk for (pk,) in keys]
            target: models.QuerySet[Any, Any] = owner._base_manager.using(rows.db).filter(pk__in=keys)
        else:
            target = rows
        changed = self.not_above(target).update(**self.value)
        self.look(rows)
        return changed


def fenced(queryset: Rows[M], hold: Hold | None) -> tuple[models.QuerySet[M, Any], Fence]:
    """Return the rows, on the database that writes go to, and the fence to write; or say what is wrong."""
    rows: Any = queryset.all()
    rows._for_write = True  # what decides must not be read from a replica
    rows = rows.using(rows.db)
    if rows.query.is_sliced:
        raise InvalidClaim("A slice of a queryset cannot be fenced: filter by primary keys instead.")
    field = fence_field(rows.model)
    if any(getattr(col, "target", None) is field for col in rows.query._gen_cols([rows.query.where])):
        raise InvalidClaim(f"The queryset filters by {field.name!r}. Leave that out: it is compared all the same.")
    claim, number, is_off = _number(hold)
    # pyright does not see that a field found in the model's meta is one of ours.
    return rows, Fence(claim=claim, number=number, is_off=is_off, field=field)  # pyright: ignore[reportArgumentType]


def _number(hold: Hold | None) -> tuple[str, int, bool]:
    """Return the claim's name, the hold's fence, and whether claims are off. Raise ClaimLost if it may not write."""
    if hold is None:
        hold = current_hold()
    if hold is None and not conf.enabled():
        return "", 0, True  # hold() gives None then
    if not isinstance(hold, Hold):
        what = "it is None, and this thread or task has none" if hold is None else f"not a {type(hold).__qualname__}"
        raise InvalidClaim(f"A fenced read or write needs the hold of a claim: {what}. Pass what acquire() gave.")
    if not hold.held:
        raise ClaimLost(hold.name, hold.loss_reason)
    is_off = hold.fence == 0 and hold.lease is None
    if hold.fence <= 0 and not is_off:
        raise UnsupportedFeature("fences", hold.alias)
    return hold.name, hold.fence, is_off


def is_one_table(rows: models.QuerySet[Any, Any], names: Iterable[str]) -> bool:
    """Say whether the filter and all fields of these names concern one table: else Django reads before it writes."""
    own = rows.model._meta.concrete_model
    return rows.query.count_active_tables() <= 1 and all(rows.model._meta.get_field(n).model is own for n in names)


def is_one_row(rows: models.QuerySet[Any, Any], names: Iterable[str]) -> bool:
    """Say whether the filter asks for one unique value of the table, so that it matches one row at most."""
    where, table = rows.query.where, rows.query.get_initial_alias()
    return (
        is_one_table(rows, names)
        and where.connector == AND
        and not where.negated
        and any(
            isinstance(child, Exact)
            and isinstance(child.lhs, Col)
            and child.lhs.alias == table
            and child.lhs.target.unique
            and child.rhs_is_direct_value()
            for child in where.children
        )
    )
