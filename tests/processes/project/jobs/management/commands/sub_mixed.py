from jobs import bodies
from jobs.management.commands import report


class Mixin:
    def handle(self, *args, **options):
        return bodies.run(self, options)


class Command(Mixin, report.Command):
    """Its handle comes from a class that knows nothing of claims."""
