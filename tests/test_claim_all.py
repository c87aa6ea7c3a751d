"""Several claims together: all or none."""

import asyncio
import copy
import threading

import pytest
from django.db import connections
from django.test import override_settings

from django_claims import (
    ClaimHeld,
    ClaimStopped,
    InvalidClaim,
    LossReason,
    claim,
    claim_all,
    clear_stop,
    force_release,
    list_claims,
    request_stop,
)
from django_claims.backends import sql_connections
from tests.helpers import listening, run_in_thread, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)

MEMORY = {"BACKEND": "django_claims.backends.memory.MemoryBackend", "TTL": 60}
DATABASE = {
    "BACKEND": "django_claims.backends.database.DatabaseBackend",
    "TTL": 60,
    "OPTIONS": {"database": "file"},
}
REDIS = {"BACKEND": "django_claims.backends.redis.RedisBackend", "TTL": 60}


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request, tmp_path):
    """Each store in turn, as the alias 'default'."""
    if request.param == "memory":
        with override_settings(CLAIMS={"default": MEMORY}):
            yield
    elif request.param == "sqlite":
        entry = copy.deepcopy(connections.settings["default"])
        entry["NAME"] = str(tmp_path / "site.sqlite3")
        connections.settings["file"] = entry
        with override_settings(CLAIMS={"default": DATABASE}):
            yield
        sql_connections.database_of("file").close()
        del connections.settings["file"]
    else:
        cache = {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": request.getfixturevalue("redis_server").url,
            "KEY_PREFIX": "claim-all",
        }
        with override_settings(CLAIMS={"default": REDIS}, CACHES={"default": cache}):
            yield


def names():
    return [lease.name for lease in list_claims()]


def test_all_are_taken_and_freed_together_under_one_fence(store):
    before = claim("b").acquire()
    before.release()

    with claim_all("b", "a", "c") as hold:
        assert hold.names == ("a", "b", "c")
        assert hold.fence > before.fence
        assert {claim(name).lease().fence for name in hold.names} == {hold.fence}

    assert names() == []


def test_none_is_taken_if_one_is_held_and_the_refusal_names_it(store):
    with claim("b"):

        def others():
            with claim_all("a", "b", "c"):
                pass

        with pytest.raises(ClaimHeld, match="'b'") as refused:
            run_in_thread(others)

        assert refused.value.name == "b"
        assert names() == ["b"]


def test_none_is_taken_if_one_is_kept_stopped(store):
    request_stop("c", keep=True)

    with pytest.raises(ClaimStopped) as refused, claim_all("a", "c"):
        pass

    assert refused.value.name == "c"
    assert names() == []
    assert clear_stop("c")


def test_they_are_renewed_together(store):
    with claim_all("a", "b", ttl=30) as hold:
        before = {name: claim(name).lease().expires_at for name in hold.names}

        wait_until(lambda: hold.renew() and all(claim(n).lease().expires_at > t for n, t in before.items()), 2)


def test_one_that_is_force_released_loses_all_and_leaving_frees_the_rest(store):
    hold = claim_all("a", "b").acquire()

    assert force_release("b", fence=hold.fence)

    wait_until(lambda: hold.lost, 3)
    assert hold.loss_reason is LossReason.FORCED
    hold.release()
    assert names() == []


def test_a_stop_of_one_reaches_the_hold(store):
    with claim_all("a", "b") as hold:
        request_stop("b", reason="enough")

        wait_until(lambda: hold.stop_requested, 3)

        assert hold.stop_flag.name == "b"


def test_sets_that_overlap_do_not_wait_for_each_other_in_a_ring(store):
    done = []

    def work(*wanted):
        for _ in range(5):
            with claim_all(*wanted, timeout=20):
                done.append(wanted)

    threads = [
        threading.Thread(target=work, args=wanted) for wanted in (("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(done) == 20
    assert names() == []


def test_a_second_one_that_overlaps_in_the_same_thread_is_refused_at_once(store):
    with claim_all("b", "c"), pytest.raises(ClaimHeld, match="'b' is already held") as refused:
        claim_all("a", "b", timeout=30).__enter__()

    assert refused.value.reentrant
    assert refused.value.name == "b"


def test_a_refusal_tells_by_signal_which_one_was_not_free(store, heard):
    with claim("b"):
        run_in_thread(lambda: claim_all("a", "b").acquire())

    assert heard.one("claim_refused")["name"] == "b"
    assert heard.one("claim_refused")["lease"].name == "b"


def test_min_hold_leaves_each_of_them_resting(store):
    claim_all("a", "b", min_hold=30).acquire().release()

    assert [lease.state for lease in list_claims()] == ["resting", "resting"]
    for lease in list_claims():
        force_release(lease.name, fence=lease.fence)


def test_a_name_given_twice_is_one(store):
    with claim_all("a", "a") as hold:
        assert hold.names == ("a",)


def test_a_key_is_written_after_each_name(store):
    with claim_all("a", "b", key=7) as hold:
        assert hold.names == ("a:7", "b:7")


@pytest.mark.parametrize("wrong", [(), ("a", ""), ("a", 3), ("a", " b")])
def test_names_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidClaim):
        claim_all(*wrong)


def test_coroutines_take_them_too(store):
    async def main():
        async with claim_all("a", "b") as hold:
            assert hold.held
            assert await claim("b").alease() is not None
        assert await claim("b").alease() is None

    asyncio.run(main())
