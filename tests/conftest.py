"""Fixtures for all tests."""

import gc
import importlib
import os
import signal

import pytest

from tests.servers import GivenServer, RedisServer, find_redis

# Children inherit what is ignored, and our commands respect it: under nohup, or in the background of a
# script, no test of these signals could pass.
for _name, _usual in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL), ("SIGQUIT", signal.SIG_DFL)):
    _number = getattr(signal, _name, None)
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

REQUIRED = os.environ.get("CI") == "true"


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long, but for CI or when asked for by -m."""
    if REQUIRED or config.option.markexpr:
        return
    skip = pytest.mark.skip(reason="long: set CI=true or pass -m long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)


def pytest_collection_finish(session):
    """Many tests collect garbage at their end, and need not look through the tests themselves."""
    gc.collect()
    gc.freeze()


def missing(what):
    """Leave a test out for want of something, but fail where CI is set."""
    if REQUIRED:
        pytest.fail(f"{what}, and CI=true wants it")
    pytest.skip(what)


def import_or_missing(*modules):
    """Import what some tests need and few sites have; leave the test out for want of it, but fail where CI is set."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            missing(f"{module} is not installed")


@pytest.fixture(scope="session")
def redis_program():
    return find_redis() or missing("no redis-server or valkey-server on PATH, and neither wheel that brings one")


@pytest.fixture(scope="session")
def redis_server(request, tmp_path_factory):
    """
    A Redis or Valkey that the tests share: keep to key prefixes of your own, and flush nothing.

    Started for the session, or the one that CLAIMS_TEST_REDIS_URL names.
    """
    if url := os.environ.get("CLAIMS_TEST_REDIS_URL"):
        yield GivenServer(url)
        return
    program = request.getfixturevalue("redis_program")
    server = RedisServer(tmp_path_factory.mktemp("redis"), program=program)
    yield server
    server.stop()


@pytest.fixture
def new_redis(redis_program, tmp_path):
    """Start servers for one test: `new_redis(*options, persistent=False)`; see RedisServer."""
    servers = []

    def start(*options, **how):
        servers.append(RedisServer(tmp_path / f"redis-{len(servers)}", *options, program=redis_program, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def memcached():
    """A memcached that the tests share: keep to key prefixes of your own, and flush nothing."""
    from tests.backends.memcached_server import GivenMemcached, MemcachedServer, find_memcached

    if address := os.environ.get("CLAIMS_TEST_MEMCACHED"):
        yield GivenMemcached(address)
        return
    server = MemcachedServer(program=find_memcached() or missing("no memcached on PATH"))
    yield server
    server.stop()
