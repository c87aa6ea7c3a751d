"""
A Redis copy is promoted after the primary has died, without the last writes: what that costs, honestly.

Exclusion is lost, since the only copy of the lease is. The order of fences is not, and the holder is told.
"""

import pytest
from django.test import override_settings

from django_claims import LossReason, claim
from django_claims.test import wait_until
from tests.helpers import run_in_thread, tidy
from tests.servers import Proxy

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture
def primary_and_copy(new_redis):
    """Two servers, the link between them, and the address at which the one that leads is found."""
    primary = new_redis()
    link, proxy = Proxy(primary.port), Proxy(primary.port)
    copy = new_redis("--replicaof", "127.0.0.1", str(link.port))
    backend = {"BACKEND": "django_claims.backends.redis.RedisBackend", "TTL": 6}
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": proxy.url}}
    with override_settings(CACHES=caches, CLAIMS={"default": backend}):
        yield primary, copy, link, proxy
    proxy.close()
    link.close()


def is_in_step(copy):
    with copy.client(socket_timeout=5) as client:
        return client.info("replication").get("master_link_status") == "up"


def promote(primary, copy, proxy):
    with copy.client(socket_timeout=5) as client:
        client.replicaof("NO", "ONE")
    primary.stop(9)
    proxy.target_port = copy.port
    proxy.cut()


def test_the_last_writes_were_not_copied(primary_and_copy):
    primary, copy, link, proxy = primary_and_copy
    wait_until(lambda: is_in_step(copy), 20)
    link.swallows = "replies"
    hold = claim("job").acquire()
    promote(primary, copy, proxy)

    other = run_in_thread(lambda: claim("job").acquire())

    assert other is not None, "the only copy of the lease is gone, and with it the exclusion"
    assert other.fence > hold.fence, "a resource that looks at the fence knows who is the later one"
    wait_until(lambda: hold.lost, 4)
    assert hold.loss_reason in (LossReason.TAKEN, LossReason.FORGOTTEN)
    assert other.verify()
    hold.release()
    assert other.verify(), "the release of the first one did not touch it"
    other.release()


def test_all_writes_were_copied(primary_and_copy):
    primary, copy, _, proxy = primary_and_copy
    wait_until(lambda: is_in_step(copy), 20)
    hold = claim("job").acquire()
    with primary.client(socket_timeout=5) as client:
        assert client.wait(1, 5000) == 1

    promote(primary, copy, proxy)

    assert run_in_thread(lambda: claim("job").acquire()) is None
    assert hold.renew()
    assert hold.release()
