"""The cache backend: the contract on memcached over both clients and on a trusted cache, and what is special to it."""

import contextlib
import copy
import importlib.util
import os
import uuid

import pytest
from django.core.cache import caches
from django.test import override_settings

from django_claims.backends import cache_records
from django_claims.backends.base import AcquireRequest, Refusal, Released, ReleaseRequest, Renewal, RenewRequest
from django_claims.backends.cache import CacheBackend
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.holders import Holder, this_holder
from django_claims.test import BackendContract
from django_claims.test.waiting import wait_until
from tests.backends.memcached_server import GivenMemcached, MemcachedServer, find_memcached
from tests.conftest import missing

BACKEND = "django_claims.backends.cache.CacheBackend"
PYMEMCACHE = "django.core.cache.backends.memcached.PyMemcacheCache"
PYLIBMC = "django.core.cache.backends.memcached.PyLibMCCache"
CLIENTS = {PYMEMCACHE: "pymemcache", PYLIBMC: "pylibmc"}
HOLDER = Holder(host="web-1", pid=4242, label="manage.py import")


def settings_of(store_timeout=5.0, alias="default", **options):
    return AliasSettings(alias=alias, backend=BACKEND, store_timeout=store_timeout, options=options)


def need(client):
    if importlib.util.find_spec(CLIENTS[client]) is None:
        missing(f"no {CLIENTS[client]}")


@pytest.fixture(scope="session")
def memcached():
    """A memcached that the tests share: keep to key prefixes of your own, and flush nothing."""
    if address := os.environ.get("CLAIMS_TEST_MEMCACHED"):
        yield GivenMemcached(address)
        return
    server = MemcachedServer(program=find_memcached() or missing("no memcached on PATH"))
    yield server
    server.stop()


@pytest.fixture
def new_memcached():
    """Start servers for one test."""
    program, servers = find_memcached() or missing("no memcached on PATH"), []

    def start(*options):
        servers.append(MemcachedServer(*options, program=program))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(params=CLIENTS, ids=CLIENTS.values())
def client(request):
    need(request.param)
    return request.param


@pytest.fixture
def backend_on():
    """Make backends: `backend_on(server, client, **CACHES params)`. Closes them at the end."""
    made = contextlib.ExitStack()

    def make(*servers, client=PYMEMCACHE, claims=None, store_timeout=5.0, **cache):
        location = [server.address for server in servers]
        entry = {"BACKEND": client, "LOCATION": location, "KEY_PREFIX": uuid.uuid4().hex, **cache}
        made.enter_context(override_settings(CACHES={"default": entry}))
        backend = CacheBackend(settings_of(store_timeout, **(claims or {})))
        made.callback(backend.close)
        return backend

    with made:
        yield make


def request(name="job", token="t1", ttl_ms=60_000, over_fence=None):
    return AcquireRequest(name, token, ttl_ms, 20_000, HOLDER, over_fence)


class Contract(BackendContract):
    may_end_late = 2.0
    client = ""

    @pytest.fixture(autouse=True)
    def fresh_backend(self, memcached, backend_on):
        need(self.client)
        self.backend = backend_on(memcached, client=self.client)


class TestCacheBackendOverPymemcache(Contract):
    client = PYMEMCACHE


class TestCacheBackendOverPylibmc(Contract):
    client = PYLIBMC


del Contract
