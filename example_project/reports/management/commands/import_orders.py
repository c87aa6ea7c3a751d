"""manage.py import_orders: a long import that staff can stop."""

import csv
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import Hold, StopRequested, single_instance
from reports.models import Customer, Order

ORDERS_CSV = Path(__file__).resolve().parents[2] / "data" / "orders.csv"


@single_instance(name="import-orders")
class Command(BaseCommand):
    help = "Imports orders from a CSV file. A stopped import keeps the rows it has; run again, it makes no twins."
    hold: Hold  # of this run, set by @single_instance

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", nargs="?", type=Path, default=ORDERS_CSV, help=f"Default: {ORDERS_CSV.name}.")
        parser.add_argument("--pause", type=float, default=0.0, help="Seconds to rest after each row.")

    def handle(self, *, file: Path, pause: float, **options: Any) -> None:
        rows = self.read(file)
        done = 0
        try:
            for row in self.hold.track(rows):
                self.import_row(row)
                done += 1
                self.hold.sleep(pause)
        except StopRequested:
            self.stdout.write(f"Stopped after {done} of {len(rows)} rows.")
            raise  # to @single_instance, which says who asked, and exits 0
        self.stdout.write(f"Imported {done} rows.")

    def read(self, file: Path) -> list[dict[str, str]]:
        """Return the rows of the file by column."""
        try:
            with file.open(newline="", encoding="utf-8") as lines:
                return list(csv.DictReader(lines))
        except OSError as error:
            raise CommandError(f"Cannot read {file}: {error.strerror}.") from error

    def import_row(self, row: dict[str, str]) -> None:
        """Make the order of this row, or bring it up to date."""
        customer, _ = Customer.objects.get_or_create(name=row["customer"])
        Order.objects.update_or_create(
            number=row["number"],
            defaults={"customer": customer, "day": row["day"], "amount": row["amount"]},
        )
