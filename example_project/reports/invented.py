"""
Invented orders, the same ones each time.

`seed` puts them into the database, and `data/orders.csv` was written by
`python -m reports.invented > reports/data/orders.csv` in this project's directory.
"""

import csv
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import NamedTuple

CUSTOMERS = 60
DAYS = 30
FIRST_DAY = date(2025, 1, 1)


class InventedOrder(NamedTuple):
    """One row, named as the columns of the CSV file are."""

    number: str
    customer: str
    day: date
    amount: Decimal


def invented_orders(prefix: str, count: int) -> Iterator[InventedOrder]:
    """Yield so many orders, numbered from 1 after the prefix."""
    for i in range(1, count + 1):
        yield InventedOrder(
            number=f"{prefix}-{i:05}",
            customer=f"customer-{i * 17 % CUSTOMERS + 1:03}",
            day=FIRST_DAY + timedelta(days=i // 7 % DAYS),
            amount=Decimal(i * i * 37 % 99_900 + 100).scaleb(-2),
        )


def main() -> None:
    """Write the CSV file that ships with the project."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(InventedOrder._fields)
    writer.writerows(invented_orders("C", 300))


if __name__ == "__main__":
    main()
