"""Settings of the test suite. Servers are started by fixtures; nothing here needs one."""

SECRET_KEY = "for tests only"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["django_claims", "django_claims.database"]
CLAIMS = {"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}}
