"""
The Celery app: its tasks are in reports/tasks.py, and two of them are sent by beat.

    celery -A example worker
    celery -A example beat        any number of these, on any number of machines: one is active

The broker is the Redis of REDIS_URL.
"""

import os

from celery import Celery

os.environ["DJANGO_SETTINGS_MODULE"] = "example.settings"

app = Celery("example")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
