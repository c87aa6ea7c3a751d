from django_claims import single_instance
from jobs import bodies


@single_instance(exit_code=9)
class Command(bodies.BodyCommand):
    help = "Refused with a code of its own."
