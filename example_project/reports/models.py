"""Orders, and the reports on them."""

from django.db import models
from django.utils import timezone


class Customer(models.Model):
    """Who orders."""

    name = models.CharField(max_length=100, unique=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Order(models.Model):
    """One order. The number is the other system's, so that importing it twice makes one."""

    number = models.CharField(max_length=20, unique=True)
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    day = models.DateField(db_index=True)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        ordering = ("number",)

    def __str__(self) -> str:
        return self.number


class Report(models.Model):
    """
    One run of `nightly_report`.

    `fence` is the number of the hold that it ran under: each later run has a larger one.
    """

    made_at = models.DateTimeField(default=timezone.now)
    fence = models.BigIntegerField()
    orders = models.PositiveIntegerField()
    total = models.DecimalField(max_digits=12, decimal_places=2)

    class Meta:
        ordering = ("-made_at",)

    def __str__(self) -> str:
        return f"{self.made_at:%Y-%m-%d %H:%M}: {self.orders} orders"


class ReportLine(models.Model):
    """What one customer ordered on one day."""

    report = models.ForeignKey(Report, on_delete=models.CASCADE, related_name="lines")
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    orders = models.PositiveIntegerField()
    total = models.DecimalField(max_digits=12, decimal_places=2)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("report", "customer", "day"), name="one_line_a_day"),)
        ordering = ("day", "customer")

    def __str__(self) -> str:
        return f"{self.customer} on {self.day}: {self.total}"
