from django.core.management.base import LabelCommand

from django_claims import single_instance


@single_instance(key="args")
class Command(LabelCommand):
    def handle_label(self, label, **options):
        return f"{self.hold.name} {label}"
