"""manage.py nightly_report: for cron on every server, to be done by one of them."""

from decimal import Decimal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction
from django.db.models import Count, Sum

from django_claims import Hold, single_instance
from reports.models import Customer, Report, ReportLine


@single_instance
class Command(BaseCommand):
    help = "Adds up the orders of each customer and day, and stores the report."
    hold: Hold  # of this run, set by @single_instance

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pause", type=float, default=0.0, help="Seconds to rest after each customer.")

    def handle(self, *, pause: float, **options: Any) -> None:
        lines: list[ReportLine] = []
        # track() keeps the progress for others to see, and ends the run here if an operator asks for it.
        for customer in self.hold.track(Customer.objects.all()):
            lines.extend(self.lines_of(customer))
            self.hold.sleep(pause)
        report = self.store(lines)
        self.stdout.write(f"Stored report {report.pk}: {report.orders} orders, {report.total:.2f} in all.")

    def lines_of(self, customer: Customer) -> list[ReportLine]:
        """Return one line, not yet saved, for each day on which the customer ordered."""
        days = customer.orders.order_by("day").values("day").annotate(orders=Count("pk"), total=Sum("amount"))
        return [ReportLine(customer=customer, **day) for day in days]

    @transaction.atomic
    def store(self, lines: list[ReportLine]) -> Report:
        """Save the report and its lines, all or nothing."""
        self.hold.ensure(10)  # enough time left to write, or ClaimLost
        report = Report.objects.create(
            fence=self.hold.fence,
            orders=sum(line.orders for line in lines),
            total=sum((line.total for line in lines), Decimal()),
        )
        for line in lines:
            line.report = report
        ReportLine.objects.bulk_create(lines, batch_size=500)
        return report
