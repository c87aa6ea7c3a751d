from django_claims.commands import SingleInstanceMixin
from jobs import bodies


class Command(SingleInstanceMixin, bodies.BodyCommand):
    claim_name = "mixed"
    claim_key = "region"
    claim_exit_code = 4

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--region", default="north")
