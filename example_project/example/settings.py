"""
Settings of the example: SQLite and nothing else, or Redis where REDIS_URL says so.

From the environment:

- EXAMPLE_VAR         the directory of all data; `var/` beside manage.py if left out
- REDIS_URL           keep the claims in this Redis, instead of beside the database
- EXAMPLE_KEY_PREFIX  what the keys in Redis start with
"""

import os
from datetime import timedelta
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("EXAMPLE_VAR") or BASE_DIR / "var").resolve()
VAR_DIR.mkdir(parents=True, exist_ok=True)  # ignored by git, so not in a fresh clone

SECRET_KEY = "an example, not a secret"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_claims",
    "django_claims.database",
    "reports",
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",  # the admin in the language of the browser
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "example.urls"
WSGI_APPLICATION = "example.wsgi.application"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR_DIR / "example.sqlite3",
        # Several processes write here: let them wait for each other.
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    },
}

REDIS_URL = os.environ.get("REDIS_URL", "")
KEY_PREFIX = os.environ.get("EXAMPLE_KEY_PREFIX", "example")

if REDIS_URL:
    CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": KEY_PREFIX,
        },
    }
    CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}
else:
    CLAIMS = {"default": {"BACKEND": "django_claims.backends.database.DatabaseBackend"}}

# Celery, which needs Redis: see celery.py.
CELERY_BROKER_URL = REDIS_URL or "redis://localhost:6379/0"
CELERY_BROKER_TRANSPORT_OPTIONS = {"global_keyprefix": f"{KEY_PREFIX}:"}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SEND_SENT_EVENT = True  # by whom it was sent, for the demo
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_BEAT_SCHEDULER = "django_claims.contrib.celery.ClaimedPersistentScheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULE = {
    "add-up": {"task": "reports.tasks.add_up", "schedule": timedelta(seconds=2)},
    "tidy-reports": {"task": "reports.tasks.tidy_reports", "schedule": timedelta(seconds=2)},
}
EXAMPLE_TASK_SECONDS = 3  # longer than from one to the next
