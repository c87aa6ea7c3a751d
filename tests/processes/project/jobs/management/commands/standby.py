from django_claims import single_instance
from jobs import bodies


@single_instance(timeout=None)
class Command(bodies.BodyCommand):
    help = "Waits without limit, and takes over."
