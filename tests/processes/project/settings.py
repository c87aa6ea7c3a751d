"""Settings of the test project: which store it has, it learns from the environment."""

import json
import os
from pathlib import Path

STORE = os.environ["JOBS_STORE"]
DIRECTORY = Path(os.environ.get("JOBS_DIR", "."))

SECRET_KEY = "for tests only"
USE_TZ = True
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
STATIC_ROOT = DIRECTORY / "static"
INSTALLED_APPS = ["django.contrib.staticfiles", "django_claims", "django_claims.database", "jobs"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(DIRECTORY / "jobs.sqlite3")}}
BACKEND = "django_claims.backends.database.DatabaseBackend"
OPTIONS = {}

if STORE in ("postgresql", "mariadb"):
    DATABASES = {"default": json.loads(os.environ["JOBS_DATABASE"])}
elif STORE == "file":
    BACKEND = "stores.NearFileBackend"
    OPTIONS = {"directory": str(DIRECTORY / "leases")}
elif STORE == "memcached":
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
            "LOCATION": os.environ["JOBS_MEMCACHED"],
            "KEY_PREFIX": os.environ["JOBS_PREFIX"],
        }
    }
    BACKEND = "django_claims.backends.cache.CacheBackend"
elif STORE == "redis":
    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["JOBS_REDIS_URL"],
            "KEY_PREFIX": os.environ["JOBS_PREFIX"],
        }
    }
    BACKEND = "django_claims.backends.redis.RedisBackend"

if STORE == "off":
    CLAIMS = None
elif STORE == "implicit":
    INSTALLED_APPS.remove("django_claims.database")
else:
    CLAIMS = {
        "default": {
            "BACKEND": os.environ.get("JOBS_BACKEND", BACKEND),
            "OPTIONS": OPTIONS,
            **json.loads(os.environ.get("JOBS_CLAIMS", "{}")),
        }
    }

globals().update(json.loads(os.environ.get("JOBS_SETTINGS", "{}")))
