from django_typer.management import TyperCommand

from django_claims import single_instance
from jobs import bodies


@single_instance(key="region")
class Command(TyperCommand):
    help = "Of django-typer."

    def handle(self, region: str, verbosity: int = 1):
        bodies.region(self.hold, region)
