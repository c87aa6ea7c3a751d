"""
Fixtures for pytest, there wherever this package is installed; `-p no:django_claims` leaves them out.

Imports nothing when it is loaded: pytest does that before it knows which settings are wanted,
and in the test runs of projects that have nothing to do with Django.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from django_claims.test import ClaimsInTest, FakeClock
    from django_claims.test.redis_server import PrivateRedis

CACHE = "django_claims_test"


@pytest.fixture
def claims(request: pytest.FixtureRequest) -> Iterator[ClaimsInTest]:
    """Claims in the memory of this test alone, without threads; gives the helpers. See override_claims()."""
    _need_settings()
    from django_claims.test import FakeClock, override_claims

    clock = FakeClock() if "claims_clock" in request.fixturenames else None
    with override_claims(clock=clock) as given:
        yield given


@pytest.fixture
def claims_clock(claims: ClaimsInTest) -> FakeClock:
    """A clock that stands still until it is told to `tick()` or `run()`; the claims of the test go by it."""
    if claims.clock is None:
        pytest.fail("The fixture claims_clock comes too late: ask for it in the signature of the test or of a fixture.")
    return claims.clock


@pytest.fixture
def claims_redis(_claims_redis_server: PrivateRedis) -> Iterator[ClaimsInTest]:
    """
    Claims on a Redis server that is started for this test run alone, and is empty; with threads.

    Skips the test if there is no server program or no client, but fails where CI=true.
    """
    _need_settings()
    from django.conf import settings
    from django.test.utils import override_settings

    from django_claims.conf import REDIS
    from django_claims.test import override_claims

    _claims_redis_server.flush()
    cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": _claims_redis_server.url}
    with (
        override_settings(CACHES={**settings.CACHES, CACHE: cache}),
        override_claims(threads=True, BACKEND=REDIS, OPTIONS=_options) as given,
    ):
        yield given


@pytest.fixture(scope="session")
def _claims_redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    import importlib.util

    from django_claims.test.redis_server import REDIS_PROGRAMS, PrivateRedis, find_redis

    program = find_redis()
    if importlib.util.find_spec("redis") is None:
        _missing("claims_redis needs the package redis: pip install 'django-claims[redis]'")
    if program is None:
        _missing(f"claims_redis needs a server program on PATH: {' or '.join(REDIS_PROGRAMS)}")
    server = PrivateRedis(program, tmp_path_factory.mktemp("claims-redis"))
    yield server
    server.stop()


def _options(alias: str) -> dict[str, str]:
    """Keep the aliases apart, which share the one server."""
    return {"cache": CACHE, "key_prefix": alias}


def _missing(what: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}. CI=true: this is no reason to skip.")
    pytest.skip(what)


def _need_settings() -> None:
    from django.conf import settings

    if not settings.configured and not os.environ.get("DJANGO_SETTINGS_MODULE"):
        pytest.fail(
            "Claims need Django's settings: install pytest-django and set DJANGO_SETTINGS_MODULE, or call "
            "settings.configure() in conftest.py."
        )
