"""What processes of the tests on SQL servers do. Imports nothing that needs the apps: they are not loaded yet."""

import contextlib
import os
import random
import sys
import time
from pathlib import Path


def set_up(entry, claims=None):
    """Make this process one of the site's."""
    from django.conf import settings

    settings.configure(
        USE_TZ=True,
        SECRET_KEY="for tests only",
        INSTALLED_APPS=["django_claims", "django_claims.database"],
        DATABASES={"default": entry},
        CLAIMS={"default": {"BACKEND": "django_claims.backends.database.DatabaseBackend", **(claims or {})}},
    )
    import django

    django.setup()


def race(entry, token, rounds, barrier, granted):
    """Try to take race-0, race-1, … at the same moments as the others, and report each answer."""
    set_up(entry)
    from django_claims.backends.base import AcquireRequest
    from django_claims.handler import claim_backends
    from django_claims.holders import this_holder

    backend = claim_backends["default"]
    for number in range(rounds):
        request = AcquireRequest(f"race-{number}", token, 60_000, 20_000, this_holder())
        barrier.wait(30)
        granted.put((number, token, isinstance(backend.acquire([request]), list)))
        barrier.wait(30)


def hammer(entry, seconds, folder, seed, use_tz, reports):
    """Take and release three names, alone and together, in and out of atomic(); mark each hold outside."""
    set_up(entry)
    from django.conf import settings
    from django.db import transaction

    from django_claims import claim, claim_all
    from django_claims.clock import clock

    settings.USE_TZ = use_tz
    luck = random.Random(seed)
    errors, held = [], 0
    ends = clock() + seconds
    while clock() < ends:
        names = luck.sample(["a", "b", "c"], luck.choice([1, 1, 1, 2, 3]))
        recipe = claim(names[0], ttl=5) if len(names) == 1 else claim_all(*names, ttl=5)
        try:
            with transaction.atomic() if luck.random() < 0.3 else contextlib.nullcontext():
                hold = recipe.acquire(timeout=luck.choice([0, 0.2]))
                if hold is None:
                    continue
                for name in names:
                    os.close(os.open(Path(folder) / name, os.O_CREAT | os.O_EXCL))
                held += 1
                time.sleep(luck.random() * 0.002)
                for name in names:
                    (Path(folder) / name).unlink()
                hold.release()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
            break
    reports.put((held, errors))


def hold_for_ever(entry, name, taken):
    """Hold with the TTL that holds have by default, until killed."""
    set_up(entry)
    from django_claims import claim

    hold = claim(name).acquire()
    taken.put(hold.fence)
    time.sleep(60)


def fork_and_go_on(entry, answers):
    """Fork with a warm connection: the child claims and ends as a program does; then use that connection."""
    set_up(entry)
    from django.db import connections

    from django_claims import claim
    from django_claims.backends.sql_connections import database_of

    own = database_of("default")
    ask = "SELECT pg_backend_pid()" if own.alias and "postgresql" in entry["ENGINE"] else "SELECT connection_id()"

    def session(connection):
        with connection.cursor() as cursor:
            cursor.execute(ask)
            return cursor.fetchone()[0]

    hold = claim("of-the-parent").acquire()
    before = own.talk(session, 5)
    connections.close_all()
    child = os.fork()
    if not child:
        other = claim("of-the-child").acquire()
        refused = claim("of-the-parent").acquire()
        # The end of a program: what is left is finalised, and no driver may say good-bye on the parent's line.
        own._idle.clear()
        from django_claims.backends import sql_pools

        sql_pools._inherited.clear()
        answers.put((other is not None and other.held, refused is None, own.talk(session, 5) != before))
        answers.close()
        answers.join_thread()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    answers.put((hold.renew(), own.talk(session, 5) == before, len(own._idle)))
