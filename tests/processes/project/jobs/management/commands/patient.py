from django_claims import single_instance
from jobs import bodies


@single_instance(timeout=1)
class Command(bodies.BodyCommand):
    help = "Waits a second."
