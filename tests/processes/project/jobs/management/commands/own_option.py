from django_claims import single_instance
from jobs import bodies


@single_instance
class Command(bodies.BodyCommand):
    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--claim-timeout", choices=["mine"])
