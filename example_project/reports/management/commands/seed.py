"""manage.py seed: orders to report on."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from reports.invented import invented_orders
from reports.models import Customer, Order


class Command(BaseCommand):
    help = "Makes a few thousand orders, the same ones each time. Run again, it makes those that are missing."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--orders", type=int, default=3000, help="How many there shall be (default: 3000).")

    def handle(self, *, orders: int, **options: Any) -> None:
        rows = list(invented_orders("S", orders))
        Customer.objects.bulk_create(
            [Customer(name=name) for name in sorted({row.customer for row in rows})], ignore_conflicts=True
        )
        customers = {customer.name: customer for customer in Customer.objects.all()}
        before = Order.objects.count()
        Order.objects.bulk_create(
            [
                Order(number=row.number, customer=customers[row.customer], day=row.day, amount=row.amount)
                for row in rows
            ],
            batch_size=500,
            ignore_conflicts=True,
        )
        made = Order.objects.count() - before
        self.stdout.write(f"Made {made} orders; there were {before}.")
