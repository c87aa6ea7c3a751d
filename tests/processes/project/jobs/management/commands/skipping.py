from django_claims import single_instance
from jobs import bodies


@single_instance(on_refused="skip")
class Command(bodies.BodyCommand):
    help = "Says nothing when refused."
