"""What other processes do on memcached. Imports nothing that needs the apps: it is imported before they are loaded."""

import contextlib
import os
import time


def backend_on(entry):
    """Return a backend on a cache, in a process of its own."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.test import override_settings

    from django_claims.backends.cache import CacheBackend
    from django_claims.conf import AliasSettings

    path = "django_claims.backends.cache.CacheBackend"
    override_settings(CACHES={"default": entry}, CLAIMS={"default": {"BACKEND": path}}).enable()
    return CacheBackend(AliasSettings(alias="default", backend=path))


def race(entry, token, names, barrier, granted):
    """Try to take each name at the same moment as the others, and report each answer."""
    backend = backend_on(entry)
    from django_claims.backends.base import AcquireRequest
    from django_claims.holders import this_holder

    for name in names:
        request = AcquireRequest(name, token, 60_000, 20_000, this_holder())
        barrier.wait(60)
        granted.put((name, isinstance(backend.acquire([request]), list)))
        barrier.wait(60)


def hold(entry, name, fences):
    """Hold a claim until killed."""
    backend_on(entry)
    from django_claims import claim

    held = claim(name, ttl=60).acquire()
    fences.put(held.fence)
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(120)
