"""A release that was done and whose reply was lost: asked again, its lease is gone, and that is not another's doing."""

import pytest
from django.test import override_settings

from django_claims import ReleaseResult, claim
from django_claims.backends.scripts import SCRIPTS
from tests.backends.memcached_server import MemcachedServer, find_memcached
from tests.conftest import import_or_missing, missing
from tests.helpers import tidy
from tests.servers import Proxy

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture(params=["redis", "memcached"])
def wire(request, tmp_path):
    """A store behind a proxy: (proxy, a word that only a release says)."""
    if request.param == "redis":
        server = request.getfixturevalue("new_redis")()
        cache, location, word = "django_redis.cache.RedisCache", "redis://{}/0", SCRIPTS["release"].sha.encode()
        backend = "django_claims.backends.redis.RedisBackend"
    else:
        import_or_missing("pymemcache")
        server = MemcachedServer(program=find_memcached() or missing("no memcached on PATH"))
        request.addfinalizer(server.stop)
        cache, location, word = "django.core.cache.backends.memcached.PyMemcacheCache", "{}", b"cas "
        backend = "django_claims.backends.cache.CacheBackend"
    proxy = Proxy(server.port)
    request.addfinalizer(proxy.close)
    caches = {"default": {"BACKEND": cache, "LOCATION": location.format(proxy.address)}}
    with override_settings(CACHES=caches, CLAIMS={"default": {"BACKEND": backend}}):
        yield proxy, word


def test_a_release_that_was_done_unheard_is_unknown_and_not_somebody_elses(wire):
    proxy, word = wire
    assert claim("before").acquire().release()  # the server knows the scripts
    hold = claim("job", ttl=20).acquire()
    proxy.loses, proxy.loses_once = word, True

    result = hold.release()

    assert proxy.lost == 1
    assert result is ReleaseResult.UNKNOWN
    assert claim("job").lease() is None


def test_a_release_over_a_connection_that_had_ended_before_is_a_release(wire):
    proxy, _ = wire
    hold = claim("job", ttl=20).acquire()
    proxy.cut()

    assert hold.release() is ReleaseResult.RELEASED


@pytest.mark.parametrize("names", [["job"], ["job", "another"]], ids=["one", "several"])
def test_the_same_in_a_table(tmp_path, monkeypatch, names):
    from django.db import connections

    from django_claims import claim_all
    from django_claims.backends import sql_connections

    entry = {**connections.settings["default"], "NAME": str(tmp_path / "site.sqlite3")}
    monkeypatch.setitem(connections.settings, "faults", entry)
    backend = "django_claims.backends.database.DatabaseBackend"
    with override_settings(CLAIMS={"default": {"BACKEND": backend, "OPTIONS": {"database": "faults"}}}):
        hold = claim_all(*names, ttl=20).acquire()
        database = sql_connections.database_of("faults")
        talk = database.talk

        def twice(verb, seconds):
            return talk(lambda connection: (verb(connection), verb(connection))[1], seconds)

        monkeypatch.setattr(database, "talk", twice)
        assert hold.release() is ReleaseResult.UNKNOWN
        assert claim(names[0]).lease() is None
        database.close()
