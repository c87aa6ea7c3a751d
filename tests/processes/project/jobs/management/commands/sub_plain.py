from jobs.management.commands import report


class Command(report.Command):
    """Has nothing of its own."""
