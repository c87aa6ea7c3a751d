"""The app."""

from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    """Cross-process claims; starts nothing by itself."""

    name = "django_claims"
    verbose_name = "django-claims"
    default_auto_field = "django.db.models.BigAutoField"
