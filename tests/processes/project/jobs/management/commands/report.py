from django.core.management.base import BaseCommand

from django_claims import single_instance
from jobs import bodies


@single_instance
class Command(BaseCommand):
    """Writes what happened in the night."""

    help = "Write the nightly report."

    def add_arguments(self, parser):
        bodies.add_arguments(parser)

    def handle(self, *args, **options):
        return bodies.run(self, options)
