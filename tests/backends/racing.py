"""What each process of a race does. Imports nothing that needs the apps: it is imported before they are loaded."""

import os


def race_on_sqlite(token, rounds, barrier, granted, path):
    """Try to take race-0, race-1, … at the same moments as the others, and report each answer."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.db import connections

    from django_claims.backends.base import AcquireRequest
    from django_claims.backends.database import DatabaseBackend
    from django_claims.conf import AliasSettings
    from django_claims.holders import this_holder

    connections.settings["file"] = {**connections.settings["default"], "NAME": path}
    backend = DatabaseBackend(AliasSettings(alias="default", backend="", options={"database": "file"}))
    for number in range(rounds):
        request = AcquireRequest(f"race-{number}", token, 60_000, 20_000, this_holder())
        barrier.wait(30)
        granted.put((number, token, isinstance(backend.acquire([request]), list)))
        barrier.wait(30)
