from django_claims import single_instance
from jobs import bodies


@single_instance(key=("region", "day"))
class Command(bodies.BodyCommand):
    help = "One run a region and day."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("region")
        parser.add_argument("--day", type=int, default=1)
