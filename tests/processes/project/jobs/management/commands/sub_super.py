from jobs import bodies
from jobs.management.commands import report


class Command(report.Command):
    """Goes on to the handle that it overrides."""

    def handle(self, *args, **options):
        bodies.say(f"{self.hold.name} {self.hold.fence}")
        super().handle(*args, **options)
        bodies.say(f"still held {self.hold.held}")
