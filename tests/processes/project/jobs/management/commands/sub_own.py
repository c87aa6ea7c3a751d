from jobs import bodies
from jobs.management.commands import report


class Command(report.Command):
    """Has a handle of its own."""

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--more")

    def handle(self, *args, **options):
        return bodies.run(self, options)
