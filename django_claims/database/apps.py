"""The app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ClaimsDatabaseConfig(AppConfig):
    """Holds the table of leases."""

    name = "django_claims.database"
    label = "django_claims_database"
    verbose_name = _("claims table")
    default_auto_field = "django.db.models.BigAutoField"
