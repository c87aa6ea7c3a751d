"""The field that keeps the fence of the last holder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import models

from django_claims.exceptions import InvalidClaim

if TYPE_CHECKING:
    IntegerField = models.BigIntegerField[int, int]
else:
    IntegerField = models.BigIntegerField


class FenceField(IntegerField):
    """
    The fence of the last holder that wrote the row, or read it by fenced_get() or fenced_read().

    One a model, and one claim behind it: fences of different claims do not compare.
    """

    description = "The fence of the last holder that wrote the row"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        if kwargs.get("default") == 0:
            del kwargs["default"]
        kwargs.pop("editable", None)
        if self.editable:
            kwargs["editable"] = True
        return name, "django_claims.fencing.FenceField", args, kwargs

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        # Else a plain save() would put back the fence that it had read, and let an old holder in again.
        return super().pre_save(model_instance, add) if add else models.F(self.attname)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        return [*super().check(**kwargs), *self._check_alone(), *self._check_null()]

    def _check_alone(self) -> Iterable[checks.CheckMessage]:
        if self is not fence_fields(self.model)[0]:
            yield checks.Error(
                f"{self.model._meta.label} has more than one FenceField.",
                hint="Keep one: rows of a model are guarded by one claim. What needs another, needs another model.",
                obj=self,
                id="django_claims.E030",
            )

    def _check_null(self) -> Iterable[checks.CheckMessage]:
        if self.null:
            yield checks.Error(
                "A FenceField should not be null: no fence compares with that, so no fenced write would find the row.",
                hint="Leave out null=True; rows that nobody has written yet have 0.",
                obj=self,
                id="django_claims.E031",
            )


def fence_fields(model: type[models.Model]) -> list[FenceField]:
    """Return the fence fields of a model, inherited ones too."""
    return [field for field in model._meta.concrete_fields if isinstance(field, FenceField)]


def fence_field(model: type[models.Model]) -> FenceField:
    """Return the one fence field of a model, or say what to add."""
    fields = fence_fields(model)
    if len(fields) != 1:
        raise InvalidClaim(
            f"{model._meta.label} has {len(fields) or 'no'} FenceField{'s' * (len(fields) > 1)}; it should have "
            f"one: fence = FenceField(), from django_claims.fencing."
        )
    return fields[0]
