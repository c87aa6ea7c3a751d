from django_claims import single_instance
from jobs import bodies


@single_instance(key=lambda options: options["region"].lower())
class Command(bodies.BodyCommand):
    help = "One run a region, however it is spelled."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--region")
