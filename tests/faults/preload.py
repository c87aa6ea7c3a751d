"""What every worker needs, imported once before they are forked. Asks no store and opens no connection."""

import contextlib
from importlib import import_module

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def preload() -> None:
    settings.configure(
        SECRET_KEY="for tests only",
        USE_TZ=True,
        INSTALLED_APPS=["django_claims", "django_claims.database"],
    )
    django.setup()
    for name in (
        "asyncio",
        "django.core.cache.backends.memcached",
        "django.core.cache.backends.redis",
        "django.db.backends.mysql.base",
        "django.db.backends.postgresql.base",
        "django.db.backends.sqlite3.base",
        "django_claims.backends.cache",
        "django_claims.backends.database",
        "django_claims.backends.file",
        "django_claims.backends.memory",
        "django_claims.backends.redis",
        "django_claims.fencing",
        "django_claims.shutdown",
        "django_redis.cache",
        "django_redis.client",
        "hiredis",
        "pymemcache.client.hash",
        "redis.asyncio",
        "tests.faults.mutants",
        "tests.faults.workers",
        "tests.fencing_app.models",
    ):
        with contextlib.suppress(
            ImportError, ImproperlyConfigured
        ):  # a client that is not installed: its store is not tested
            import_module(name)
