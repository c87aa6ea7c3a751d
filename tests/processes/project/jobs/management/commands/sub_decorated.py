from django_claims import single_instance
from jobs.management.commands import report


@single_instance(name="again")
class Command(report.Command):
    """Decorated though its base is."""
