"""The backends that are shipped, and which of them suits a site that has not chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

MEMORY = "django_claims.backends.memory.MemoryBackend"
REDIS = "django_claims.backends.redis.RedisBackend"
DATABASE = "django_claims.backends.database.DatabaseBackend"
CACHE = "django_claims.backends.cache.CacheBackend"
FILE = "django_claims.backends.file.FileBackend"

REDIS_CACHES = {"django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"}
MEMCACHED_CACHES = {"django.core.cache.backends.memcached.BaseMemcachedCache"}

HOW_TO_SET = (
    "CLAIMS = {\n"
    '    "default": {\n'
    '        "BACKEND": "django_claims.backends.redis.RedisBackend",\n'
    '        "OPTIONS": {"cache": "default"},  # a CACHES alias of django-redis or Django\'s RedisCache\n'
    "    }\n"
    "}\n"
    "or, with no server, add 'django_claims.database' to INSTALLED_APPS and use\n"
    '    "BACKEND": "django_claims.backends.database.DatabaseBackend"'
)


def guess() -> str:
    """Return the backend that suits the default cache."""
    caches = getattr(django_settings, "CACHES", {})
    if cache_is(caches.get("default", {}), REDIS_CACHES):
        return REDIS
    if cache_is(caches.get("default", {}), MEMCACHED_CACHES):
        return CACHE
    if any(app.startswith("django_claims.database") for app in django_settings.INSTALLED_APPS):
        return DATABASE
    return MEMORY


def cache_is(params: Mapping[str, Any], family: set[str]) -> bool:
    """Say whether a CACHES entry is of a family, by its class or one of the bases."""
    path = params.get("BACKEND", "")
    if path in family:
        return True
    try:
        cls = import_string(path)
    except ImportError:
        return False
    return any(f"{base.__module__}.{base.__qualname__}" in family for base in getattr(cls, "__mro__", ()))
