"""What the admin pages and their permissions hang on. There are no tables, and never any rows."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class NoRows(models.Manager[Any]):
    """Asks no database: what it would list is in the stores, and `dumpdata` must not look for a table."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().none()


class LiveClaim(models.Model):
    """One claim on the admin's pages, and in its log. `key` is what a link calls it; see admin/keys.py."""

    key = models.CharField(primary_key=True, max_length=255)
    alias = models.CharField(max_length=255)
    name = models.CharField(max_length=255)

    objects: ClassVar[NoRows] = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        permissions = [
            ("view_claim", "Can view live claims and stop flags"),
            ("stop_claim", "Can ask claims to stop, and keep them stopped"),
            ("clear_stop_claim", "Can clear stop flags"),
            ("force_release_claim", "Can force-release claims"),
        ]
        verbose_name = _("live claim")
        verbose_name_plural = _("live claims")

    def __str__(self) -> str:
        return self.name


class StopRequestRow(models.Model):
    """One stop flag on the admin's pages."""

    key = models.CharField(primary_key=True, max_length=255)

    objects: ClassVar[NoRows] = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ()
        verbose_name = _("stop flag")
        verbose_name_plural = _("stop flags")

    def __str__(self) -> str:
        return self.key
