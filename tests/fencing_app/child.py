"""
A holder that is stopped by the system between its last look and its write.

    python -m tests.fencing_app.child FILE TTL fenced|plain
"""

import os
import signal
import sys

import django


def main(file: str, ttl: str, how: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.db import connections
    from django.test import override_settings

    from django_claims import ClaimError, claim
    from django_claims.fencing import fenced_get, fenced_update, fences
    from tests.fencing_app.models import Stock

    connections.settings["shop"] = {**connections.settings["default"], "NAME": file}
    backend = "django_claims.backends.database.DatabaseBackend"
    settings = {"BACKEND": backend, "OPTIONS": {"database": "shop"}, "TTL": float(ttl)}
    with override_settings(CLAIMS={"default": settings}, DATABASE_ROUTERS=["tests.fencing_app.models.Router"]):
        with claim("stock") as hold:
            count = fenced_get(Stock.objects.filter(code="tea"), hold).count
            not_above = fences.Fence.not_above

            def stop(self, rows):
                os.kill(os.getpid(), signal.SIGSTOP)
                return not_above(self, rows)

            fences.Fence.not_above = stop
            try:
                if how == "plain":
                    assert hold.held
                    os.kill(os.getpid(), signal.SIGSTOP)
                    Stock.objects.filter(code="tea").update(count=count + 1)
                else:
                    fenced_update(Stock.objects.filter(code="tea"), hold, count=count + 1)
            except ClaimError as error:
                print(type(error).__name__)
            else:
                print("written")
        connections["shop"].close()


if __name__ == "__main__":
    main(*sys.argv[1:])
