from django_claims import single_instance
from jobs import bodies


@single_instance(name="twins")
class Command(bodies.BodyCommand):
    help = "Shares a name."
