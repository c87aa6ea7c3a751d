"""The app."""

from django.apps import AppConfig
from django.core import checks

from django_claims.checks import TAGS, check_deployment, check_settings


class ClaimsConfig(AppConfig):
    """Cross-process claims; starts nothing by itself."""

    name = "django_claims"
    verbose_name = "django-claims"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        checks.register(check_settings, *TAGS)
        checks.register(check_deployment, *TAGS, deploy=True)
