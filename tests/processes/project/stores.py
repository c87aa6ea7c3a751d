"""Backends that say what they are at, so that a test need not guess when; and one on files in a test's directory."""

import time

from django_claims.backends import file_places
from django_claims.backends.database import DatabaseBackend
from django_claims.backends.file import FileBackend
from django_claims.backends.redis import RedisBackend


class Telling:
    """Says that it waits."""

    _told = False

    def wait(self, names, bell):
        if not Telling._told:
            Telling._told = True
            print("waiting", flush=True)
        return super().wait(names, bell)


class TellingRedisBackend(Telling, RedisBackend):
    pass


class TellingSqliteBackend(Telling, DatabaseBackend):
    pass


class SlowToRelease:
    """Says that it releases, and takes its time."""

    def release(self, requests):
        print("releasing", flush=True)
        time.sleep(0.5)  # so that a signal comes in the middle of it
        return super().release(requests)


class SlowToReleaseRedisBackend(SlowToRelease, RedisBackend):
    pass


class SlowToReleaseSqliteBackend(SlowToRelease, DatabaseBackend):
    pass


class NearFileBackend(FileBackend):
    pass


file_places.temporary_places = list  # where tests have to be
