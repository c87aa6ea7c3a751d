"""Tasks that beat sends more often than they are done: they would overlap, but for @single_instance."""

import time
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from django_claims.contrib.celery import single_instance
from reports.models import Order, Report


@shared_task
@single_instance
def add_up() -> str:
    """Add up all orders, for a page that shows the total."""
    total = Order.objects.aggregate(total=Sum("amount"))["total"] or 0
    time.sleep(settings.EXAMPLE_TASK_SECONDS)  # as if there were millions
    return f"{total:.2f}"


@shared_task
@single_instance
def tidy_reports() -> int:
    """Delete the reports of a year ago."""
    deleted, _ = Report.objects.filter(made_at__lt=timezone.now() - timedelta(days=365)).delete()
    time.sleep(settings.EXAMPLE_TASK_SECONDS)
    return deleted
