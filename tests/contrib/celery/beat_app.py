"""A Celery app for real beats: everything from the environment, since each beat is a process of its own."""

import json
import os

import django
from celery import Celery
from celery.schedules import crontab
from django.conf import settings

env = os.environ
STORES = {
    "redis": "django_claims.backends.redis.RedisBackend",
    "sqlite": "django_claims.backends.database.DatabaseBackend",
}

settings.configure(
    SECRET_KEY="for tests only",
    USE_TZ=True,
    INSTALLED_APPS=["django_claims", "django_claims.database", *json.loads(env.get("BEAT_APPS", "[]"))],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": env["BEAT_DATABASE"],
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        }
    },
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": env["BEAT_STORE_URL"],
            "KEY_PREFIX": env["BEAT_PREFIX"],
        }
    },
    CLAIMS={"default": {"BACKEND": STORES[env["BEAT_STORE"]], "FOLLOW_DEAD": env.get("BEAT_FOLLOW_DEAD") != "no"}},
    DJANGO_CELERY_BEAT_TZ_AWARE=True,
)
django.setup()

from django_claims.contrib.celery import ClaimedPersistentScheduler  # noqa: E402

app = Celery("beats", broker=env["BEAT_BROKER_URL"])
app.conf.task_default_queue = env["BEAT_PREFIX"]  # which nobody reads but the test
app.conf.broker_connection_retry_on_startup = True
app.conf.beat_schedule = {
    **{
        name: {"task": name, "schedule": seconds}
        for name, seconds in json.loads(env.get("BEAT_SCHEDULE", '{"every-second": 1}')).items()
    },
    "never": {"task": "never", "schedule": crontab(minute=0, hour=0, day_of_month=29, month_of_year=2)},
}


class QuickScheduler(ClaimedPersistentScheduler):
    claim_ttl = float(env.get("BEAT_TTL", "4"))


def database_scheduler():
    from django_claims.contrib.celery import ClaimedDatabaseScheduler

    class QuickDatabaseScheduler(ClaimedDatabaseScheduler):
        claim_ttl = QuickScheduler.claim_ttl

    return QuickDatabaseScheduler


def __getattr__(name):
    if name == "QuickDatabaseScheduler":
        return database_scheduler()
    raise AttributeError(name)
