from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Its label is not its module: claims go by the label."""

    name = "jobs"
    label = "night"
