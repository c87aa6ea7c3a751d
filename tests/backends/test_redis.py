"""The Redis backend: the contract over both Redis caches, and what is special to it."""

import contextlib
import json
import os
import pickle
import re
import signal
import threading
import uuid
from pathlib import Path
from traceback import TracebackException

import pytest
from django.core.cache import caches
from django.test import override_settings
from django.views.debug import ExceptionReporter

from django_claims import claim
from django_claims.backends import wire
from django_claims.backends.base import (
    AcquireRequest,
    AdoptRequest,
    HandOverRequest,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
    new_token,
    within,
)
from django_claims.backends.redis import RedisBackend
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.holders import Holder, this_holder
from django_claims.leases import Progress
from django_claims.test import BackendContract, wait_until
from tests.servers import CommandLog, GivenServer

DJANGO_REDIS = "django_redis.cache.RedisCache"
DJANGO = "django.core.cache.backends.redis.RedisCache"
BACKEND = "django_claims.backends.redis.RedisBackend"
LONG = 60_000
HOLDER = Holder(host="web-1", pid=4242, label="manage.py import")
PATIENCE = 1.0  # what a busy machine may add to a bound


@pytest.fixture(params=[DJANGO_REDIS, DJANGO], ids=["django-redis", "django"])
def cache_class(request):
    return request.param


@pytest.fixture
def backend_on():
    """Make backends: `backend_on(server or url, cache_class, **CACHES params)`. Closes them at the end."""
    made, overrides, given = [], [], []

    def make(server, cache_class=DJANGO_REDIS, *, claims=None, store_timeout=5.0, alias="default", **cache):
        location = server if isinstance(server, str | list) else server.url
        override = override_settings(
            CACHES={"default": {"BACKEND": cache_class, "LOCATION": location, **cache}},
            CLAIMS={"default": {"BACKEND": BACKEND, "OPTIONS": claims or {}}},
        )
        override.enable()
        overrides.append(override)
        settings = AliasSettings(alias=alias, backend=BACKEND, store_timeout=store_timeout, options=claims or {})
        made.append(RedisBackend(settings))
        if isinstance(server, GivenServer):
            given.append((server, made[-1]))
        return made[-1]

    yield make
    for server, backend in given:
        remove_all(server, backend)
    for backend in made:
        backend.close()
    for override in reversed(overrides):
        override.disable()


def remove_all(server, backend):
    """Leave no key of a backend's on a server that others use too."""
    with contextlib.closing(server.client()) as client:
        for key in client.scan_iter(match=backend._key("*"), count=5000):
            client.unlink(key)


def request_of(name, token=None, ttl_ms=LONG, over_fence=None, holder=HOLDER):
    return AcquireRequest(name, token or new_token(), ttl_ms, ttl_ms // 3, holder, over_fence)


def take(backend, name, ttl_ms=LONG, token=None):
    """Acquire a name that has to be granted; return what renews it."""
    token = token or new_token()
    grants = backend.acquire([request_of(name, token, ttl_ms)])
    assert isinstance(grants, list), grants
    return RenewRequest(name, token, grants[0].fence, ttl_ms)


def let_go(backend, run, rest_ms=0):
    (answer,) = backend.release([ReleaseRequest(run.name, run.token, run.fence, rest_ms)])
    return answer


def renewed(backend, run):
    (answer,) = backend.renew([run])
    return answer.outcome


def set_flag(backend, name, *, keep=False, ttl_ms=None):
    return backend.set_flag(name, keep=keep, fence=None, reason="r", by="b", ttl_ms=ttl_ms)


def verbs(backend, run):
    """Return each verb as a call without arguments, in an order in which all have something to do."""
    return {
        "acquire": lambda: backend.acquire([request_of("other")]),
        "renew": lambda: backend.renew([run]),
        "held": lambda: backend.held(run.name, run.token),
        "lease": lambda: backend.lease(run.name),
        "leases": lambda: backend.leases(match="", page=1, per_page=100),
        "set_flag": lambda: set_flag(backend, run.name),
        "flag": lambda: backend.flag(run.name),
        "flags": lambda: backend.flags(),
        "poll": lambda: backend.poll(),
        "clear_flag": lambda: backend.clear_flag(run.name),
        "release": lambda: backend.release([ReleaseRequest(run.name, run.token)]),
        "force_release": lambda: backend.force_release(run.name, run.fence),
    }


def assert_unavailable(backend, run, *, within_seconds, fresh=False):
    """Have every verb say that the store did not answer, in time."""
    for verb, call in verbs(backend, run).items():
        if fresh:
            backend.close()
        started = clock()
        with pytest.raises(BackendUnavailable) as caught:
            call()
        took = clock() - started
        assert took <= within_seconds, f"{verb} took {took:.2f} s"
        assert caught.value.alias == "default"
        assert caught.value.__cause__ is not None


# -- the contract -------------------------------------------------------------------------------


class RedisContract(BackendContract):
    cache_class = DJANGO_REDIS

    @pytest.fixture(autouse=True)
    def fresh_backend(self, redis_server, backend_on):
        self.backend = backend_on(redis_server, self.cache_class, KEY_PREFIX=f"test-{uuid.uuid4().hex}")
        yield
        remove_all(redis_server, self.backend)


class TestOverDjangoRedis(RedisContract):
    cache_class = DJANGO_REDIS


class TestOverDjangosOwnRedisCache(RedisContract):
    cache_class = DJANGO


# -- the key rule -------------------------------------------------------------------------------


def shouting(key, key_prefix, version):
    """A key function of a project's own."""
    return f"{key_prefix.upper()}!{version}!{key}"


def all_keys(server):
    with contextlib.closing(server.client()) as client:
        return sorted(key.decode() for key in client.keys("*"))


def fill(backend):
    """Leave a lease, a flag, word of a forced run, and with them all keys that there are."""
    run = take(backend, "job")
    set_flag(backend, "job")
    forced = take(backend, "forced")
    backend.force_release("forced", forced.fence)
    return run


def test_all_keys_follow_the_caches_own_rule(new_redis, backend_on, cache_class):
    server = new_redis()

    fill(backend_on(server, cache_class, KEY_PREFIX="shop", VERSION=3))

    keys = all_keys(server)
    assert len(keys) >= 4
    assert [key for key in keys if not key.startswith("shop:3:")] == []


def test_a_key_function_of_the_projects_own_is_followed(new_redis, backend_on, cache_class):
    server = new_redis()
    params = {"KEY_PREFIX": "shop", "VERSION": 3, "KEY_FUNCTION": "tests.backends.test_redis.shouting"}

    run = fill(backend_on(server, cache_class, **params))

    assert [key for key in all_keys(server) if not key.startswith("SHOP!3!")] == []
    assert renewed(backend_on(server, cache_class, **params), run) is Renewal.RENEWED


def test_all_keys_of_an_alias_share_one_cluster_slot(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class, KEY_PREFIX="shop")
    for name in ("{other}", "}{", "a{b}c"):
        take(backend, name)

    fill(backend)

    tags = {re.search(r"\{([^}]+)\}", key).group(1) for key in all_keys(server)}
    assert len(tags) == 1


def test_two_prefixes_do_not_see_each_other(redis_server, backend_on, cache_class):
    mark = uuid.uuid4().hex
    shop, stage = (backend_on(redis_server, cache_class, KEY_PREFIX=f"{name}-{mark}") for name in ("shop", "stage"))
    run = fill(shop)

    assert stage.lease("job") is None
    assert stage.leases(match="", page=1, per_page=100).total == 0
    assert (stage.flags(), stage.poll()) == ([], [])
    assert stage.held("job", run.token) is False
    assert renewed(stage, run) is Renewal.GONE
    take(stage, "job")
    assert renewed(shop, run) is Renewal.RENEWED


def test_two_versions_do_not_see_each_other(redis_server, backend_on, cache_class):
    mark = uuid.uuid4().hex
    one, two = (backend_on(redis_server, cache_class, KEY_PREFIX=mark, VERSION=version) for version in (1, 2))
    take(one, "job")

    take(two, "job")


def test_equal_prefix_and_version_are_the_same_claim_over_both_caches(redis_server, backend_on):
    params = {"KEY_PREFIX": uuid.uuid4().hex, "VERSION": 7}
    theirs = backend_on(redis_server, DJANGO_REDIS, **params)
    djangos = backend_on(redis_server, DJANGO, **params)
    run = take(theirs, "job")
    set_flag(djangos, "job")

    refusal = djangos.acquire([request_of("job")])

    assert isinstance(refusal, Refusal) and refusal.lease.fence == run.fence
    assert theirs.flag("job") == djangos.flag("job") is not None
    assert let_go(djangos, run) is Released.RELEASED
    assert theirs.lease("job") is None


def test_prefix_and_version_can_be_pinned(new_redis, backend_on, cache_class):
    server = new_redis()
    pinned = {"key_prefix": "claims", "version": 9}
    one = backend_on(server, cache_class, claims=pinned, KEY_PREFIX="a", VERSION=1)
    two = backend_on(server, cache_class, claims=pinned, KEY_PREFIX="b", VERSION=2)

    run = fill(one)

    assert [key for key in all_keys(server) if not key.startswith("claims:9:")] == []
    assert renewed(two, run) is Renewal.RENEWED
    half = backend_on(server, cache_class, claims={"version": 9}, KEY_PREFIX="claims", VERSION=2)
    assert renewed(half, run) is Renewal.RENEWED


def test_cached_data_of_the_same_name_is_another_thing(redis_server, backend_on, cache_class):
    backend = backend_on(redis_server, cache_class, KEY_PREFIX=uuid.uuid4().hex)
    cache = caches["default"]
    cache.set("report", "a big value", 60)
    run = take(backend, "report")
    flag = set_flag(backend, "report")

    assert cache.get("report") == "a big value"
    cache.touch("report", 30)
    cache.delete("report")
    assert renewed(backend, run) is Renewal.RENEWED
    assert backend.flag("report") == flag
    cache.set("report", "again", 60)
    assert let_go(backend, run) is Released.RELEASED
    assert cache.get("report") == "again"


# -- round trips and scripts --------------------------------------------------------------------


def test_each_verb_is_one_command(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class)
    for call in verbs(backend, take(backend, "warm up")).values():
        call()  # connects, and has the server learn each script
    run = take(backend, "job")

    for verb, call in verbs(backend, run).items():
        with CommandLog(server) as log:
            call()
        assert log.asked == (["EVALSHA"] if verb != "leases" else ["EVALSHA", "ZRANGE", "EVALSHA"]), verb


def test_many_renewals_travel_together(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    runs = [take(backend, f"job-{number}") for number in range(50)]
    backend.renew(runs[:1])

    with CommandLog(server) as log:
        backend.renew(runs)

    assert log.asked == ["EVALSHA"]


def test_a_refused_acquire_is_one_command_too(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    take(backend, "job")

    with CommandLog(server) as log:
        refusal = backend.acquire([request_of("job")])

    assert refusal.lease.holder == HOLDER
    assert log.asked == ["EVALSHA"]


def test_a_server_that_has_forgotten_the_scripts_costs_one_more_command(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class)
    run = take(backend, "job")

    with contextlib.closing(server.client()) as client:
        for verb, call in verbs(backend, run).items():
            if verb == "force_release":
                run = take(backend, "job")
                call = verbs(backend, run)[verb]
            client.script_flush()
            with CommandLog(server) as log:
                call()
            asked = [word for word in log.asked if word != "ZRANGE"]
            assert asked[:2] == ["EVALSHA", "EVAL"], verb
            assert len(asked) <= 4, verb


def test_scripts_forgotten_in_mid_hold_change_no_answer(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class)

    def forget():
        with contextlib.closing(server.client()) as client:
            client.script_flush()

    forget()
    run = take(backend, "job")
    forget()
    assert renewed(backend, run) is Renewal.RENEWED
    forget()
    assert isinstance(backend.acquire([request_of("job")]), Refusal)
    forget()
    assert backend.held("job", run.token) is True
    forget()
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["job"]
    forget()
    assert let_go(backend, run) is Released.RELEASED
    forget()
    assert let_go(backend, run) is Released.GONE


def test_a_page_of_100_among_10_000_is_three_commands_at_most_and_walks_no_key_space(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    for start in range(0, 10_000, 500):
        grants = backend.acquire([request_of(f"job-{number:05}", "t" * 22) for number in range(start, start + 500)])
        assert isinstance(grants, list)
    with contextlib.closing(server.client()) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(10_000):
            pipeline.set(f"foreign-{number}", "x")
        pipeline.execute()
    backend.leases(match="", page=1, per_page=100)

    for match, total in (("", 10_000), ("job-0[0-4]*", 5_000)):
        with CommandLog(server) as log:
            page = backend.leases(match=match, page=2, per_page=100)
        assert [lease.name for lease in page] == [f"job-{number:05}" for number in range(100, 200)]
        assert page.total == total
        assert len(log.asked) <= 3
        assert not {"KEYS", "SCAN"} & set(log.done)


# -- foreign values under our keys --------------------------------------------------------------


class Booby:
    """Whoever unpickles it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path(self.path).touch, ())


FOREIGN = {
    "garbage": lambda client, key, trap: client.set(key, "garbage", px=LONG),
    "empty": lambda client, key, trap: client.set(key, "", px=LONG),
    "number": lambda client, key, trap: client.set(key, 17, px=LONG),
    "pickle": lambda client, key, trap: client.set(key, trap, px=LONG),
    "bytes": lambda client, key, trap: client.set(key, bytes(range(256)), px=LONG),
    "list": lambda client, key, trap: client.rpush(key, "x"),
    "hash": lambda client, key, trap: client.hset(key, "a", "b"),
    "newer format": lambda client, key, trap: client.set(key, "2 tok 5 6 7 8 h\n[]\n\n", px=LONG),
    "broken holder": lambda client, key, trap: client.set(key, "1 tok 5 6 7000 8000 h\n{oops\n", px=LONG),
    "cut short": lambda client, key, trap: client.set(key, "1 tok 5 6", px=LONG),
    "old pickled fence": lambda client, key, trap: client.set(key, "1 tok x 6 7 8 h\n[]\n", px=LONG),
    "without an end": lambda client, key, trap: client.set(key, "garbage"),
    "ours, without an end": lambda client, key, trap: client.set(key, f"1 tok 5 6 7000 8000 h\n{HOLDER.packed}\n"),
    "numbers without measure": lambda client, key, trap: client.set(
        key, f"1 tok {'9' * 30} {'9' * 30} {'9' * 30} {'9' * 30} h\n{HOLDER.packed}\n", px=LONG
    ),
    "numbers beyond all measure": lambda client, key, trap: client.set(
        key, f"1 tok {'9' * 5000} {'9' * 5000} {'9' * 5000} {'9' * 5000} h\n{HOLDER.packed}\n", px=LONG
    ),
}


@pytest.fixture
def trap(tmp_path):
    """Pickled bytes that leave a file behind when they are unpickled; checked at the end."""
    path = tmp_path / "unpickled"
    yield pickle.dumps(Booby(str(path)))
    assert not path.exists()


def test_the_trap_works(tmp_path):
    pickle.loads(pickle.dumps(Booby(str(tmp_path / "x"))))

    assert (tmp_path / "x").exists()


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_value_is_unreadable_refuses_and_can_be_force_released(redis_server, backend_on, trap, kind):
    backend = backend_on(redis_server, KEY_PREFIX=uuid.uuid4().hex)
    run = take(backend, "job")  # so that it is listed
    beside = take(backend, "beside")
    with contextlib.closing(redis_server.client()) as client:
        client.delete(backend._lease_key("job"))
        FOREIGN[kind](client, backend._lease_key("job"), trap)

        for over_fence in (None, 0, run.fence):
            refusal = backend.acquire([request_of("job", over_fence=over_fence)])
            assert isinstance(refusal, Refusal)
            assert (refusal.lease.state, refusal.lease.fence, refusal.lease.holder) == ("unreadable", 0, None)
        assert isinstance(backend.acquire([request_of("beside 2"), request_of("job")]), Refusal)
        assert backend.lease("job").state == "unreadable"
        page = backend.leases(match="", page=1, per_page=100)
        assert {lease.name: lease.state for lease in page} == {"beside": "held", "job": "unreadable"}
        assert json.dumps(backend.lease("job").as_dict())
        assert backend.held("job", run.token) is False
        assert renewed(backend, run) is Renewal.TAKEN
        assert let_go(backend, run) is Released.NOT_OWNER
        assert let_go(backend, run, rest_ms=1000) is Released.NOT_OWNER
        assert backend.force_release("job", run.fence) is False
        assert backend.lease("job").state == "unreadable"

        assert backend.force_release("job", 0) is True
        assert backend.lease("job") is None
        take(backend, "job")
    assert renewed(backend, beside) is Renewal.RENEWED


def test_fence_0_ends_no_lease_that_can_be_read(redis_server, backend_on):
    backend = backend_on(redis_server, KEY_PREFIX=uuid.uuid4().hex)
    run = take(backend, "job")

    assert backend.force_release("job", 0) is False
    assert renewed(backend, run) is Renewal.RENEWED


def test_foreign_values_among_flags_and_names_are_left_out(redis_server, backend_on, trap):
    backend = backend_on(redis_server, KEY_PREFIX=uuid.uuid4().hex)
    run = take(backend, "job")
    good = set_flag(backend, "job")
    far = 10**18
    with contextlib.closing(redis_server.client()) as client:
        flags = {
            "pickle": trap,
            trap: trap,
            b"\xff\xfe": b"garbage",
            "number": "17",
            "no words": "k 0 0 0 0 5",
            "null": "k 0 0 0 0 null",
            "short list": 'k 0 0 0 0 ["r"]',
            "not json": "k 0 0 0 0 oops",
            "far": f'k 0 {"9" * 30} 0 0 ["r","b"]',
            "farther": f'k 0 0 {"9" * 5000} 0 ["r","b"]',
            "deep": f"k 0 0 0 0 {'[' * 100_000}",
            b"\xff\xfd\n": f"f 5 {far} 0 0 []",
            "odd word\n": f"f x {far} 0 0 []",
            b"\xff\xfc": f'r 5 {far} 1 0 ["r","b"]',
        }
        client.hset(backend._flags_key, mapping=flags)
        client.zadd(backend._index_key, {trap: far, b"\xff\xfe": far, "no lease": far})

        assert [lease.name for lease in backend.leases(match="", page=1, per_page=100)] == ["job"]
        assert good in backend.flags()
        assert good in [notice.flag for notice in backend.poll()]
        for name in ("pickle", "number", "no words", "null", "short list", "not json", "far", "farther", "deep"):
            backend.flag(name)
            backend.clear_flag(name)
            take(backend, name)
    assert renewed(backend, run) is Renewal.RENEWED


@pytest.mark.parametrize("which", ["_flags_key", "_index_key", "_fence_key"])
def test_a_foreign_value_in_place_of_a_key_of_ours_grants_nothing_and_is_named(redis_server, backend_on, trap, which):
    backend = backend_on(redis_server, KEY_PREFIX=uuid.uuid4().hex)
    take(backend, "job")
    with contextlib.closing(redis_server.client()) as client:
        client.delete(getattr(backend, which))
        client.rpush(getattr(backend, which), trap)

        with pytest.raises(BackendUnavailable, match=r"WRONGTYPE|wrong kind of value"):
            backend.acquire([request_of("other")])


# -- what stays on the server -------------------------------------------------------------------


def test_no_lease_is_ever_without_an_end(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class)

    def assert_all_end():
        with contextlib.closing(server.client()) as client:
            keys = client.keys("*lease:*")
            assert keys
            assert all(0 < client.pttl(key) <= LONG for key in keys)
            assert 0 < client.pttl(backend._index_key) <= LONG + 1000

    run = take(backend, "job")
    with CommandLog(server) as log:
        backend.acquire([request_of("job 2")])
        assert_all_end()
        backend.renew([run._replace(progress=Progress(done=1).pack())])
        assert_all_end()
        take(backend, "job", token=run.token)
        assert_all_end()
        let_go(backend, run, rest_ms=5000)
        assert_all_end()
    writes = [line for line in log.lines if line.startswith("SET ") and "lease:" in line]
    assert len(writes) == 3
    assert all(" PX " in line for line in writes)


def test_the_index_is_bounded_by_the_living_and_ends_with_the_last(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    with contextlib.closing(server.client()) as client:

        def names():
            return client.zcard(backend._index_key)

        for start in range(0, 5000, 500):  # killed: nobody releases them
            backend.acquire([request_of(f"dead-{start + number}", "t" * 22, 300) for number in range(500)])
        wait_until(lambda: backend.lease("dead-4999") is None)
        for number in range(3000):  # and each of these ends cleanly
            let_go(backend, take(backend, f"clean-{number}", 300))
        assert names() < 200

        take(backend, "last", 300)
        wait_until(lambda: not client.exists(backend._index_key), 5)
        # A number, and what operators said, may stay; nothing else does.
        assert {key.decode() for key in client.keys("*")} <= {backend._fence_key, backend._flags_key}


def test_nothing_stays_of_stops_whose_runs_are_over(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    for number in range(20):
        take(backend, f"job-{number}", 300)
        set_flag(backend, f"job-{number}")
        forced = take(backend, f"forced-{number}", 300)
        backend.force_release(forced.name, forced.fence)
    wait_until(lambda: backend.poll() == [])

    with contextlib.closing(server.client()) as client:
        assert client.hlen(backend._flags_key) == 0


def test_a_lease_costs_the_server_700_bytes_at_most(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    holder, count = this_holder("x" * 60), 20_000
    let_go(backend, take(backend, "warm up"))
    with contextlib.closing(server.client()) as client:
        before = client.info("memory")["used_memory"]

        for start in range(0, count, 500):
            requests = [request_of(f"{number:040}", "t" * 22, holder=holder) for number in range(start, start + 500)]
            assert isinstance(backend.acquire(requests), list)

        assert client.zcard(backend._index_key) == count
        assert (client.info("memory")["used_memory"] - before) / count <= 700


# -- a server that loses its data ---------------------------------------------------------------


def test_a_holder_is_told_that_the_store_has_forgotten(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class)
    run = take(backend, "job")
    with contextlib.closing(server.client()) as client:
        client.flushdb()

    assert renewed(backend, run) is Renewal.GONE
    assert backend.held("job", run.token) is False
    assert let_go(backend, run) is Released.GONE
    assert backend.leases(match="", page=1, per_page=10).total == 0


def test_clearing_the_cache_is_told_too(new_redis, backend_on, cache_class):
    backend = backend_on(new_redis(), cache_class)
    run = take(backend, "job")

    caches["default"].clear()

    assert renewed(backend, run) is Renewal.GONE


def test_the_fence_grows_though_the_store_lost_everything(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    fences = [take(backend, "job").fence]

    with contextlib.closing(server.client()) as client:
        for lose in (
            client.flushall,
            client.flushdb,
            lambda: client.delete(backend._fence_key, backend._lease_key("job")),
        ):
            lose()
            fences.append(take(backend, "job").fence)
    server.restart()
    fences.append(take(backend, "job").fence)

    assert fences == sorted(set(fences))


def test_the_fence_grows_though_the_clock_was_set_back(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    ahead = take(backend, "job").fence + 3600 * 10**6
    with contextlib.closing(server.client()) as client:
        client.set(backend._fence_key, ahead)  # as a server whose clock was an hour ahead left it

    fences = [take(backend, f"job-{number}").fence for number in range(3)]

    assert fences == [ahead + 1, ahead + 2, ahead + 3]


def test_a_garbled_fence_counter_is_replaced_by_the_clock(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    before = take(backend, "job").fence
    with contextlib.closing(server.client()) as client:
        client.set(backend._fence_key, "garbage")

    assert take(backend, "other").fence > before


def test_a_restart_with_its_data_keeps_leases_and_one_without_is_told(new_redis, backend_on, cache_class):
    server = new_redis(persistent=True)
    backend = backend_on(server, cache_class)
    run, flag = take(backend, "job"), set_flag(backend, "kept", keep=True)

    server.restart(by=signal.SIGKILL)
    assert renewed(backend, run) is Renewal.RENEWED
    assert backend.flag("kept") == flag

    server.persistent = False
    server.restart()
    assert renewed(backend, run) is Renewal.GONE
    assert backend.flag("kept") is None


# -- a server that is full ----------------------------------------------------------------------


@pytest.fixture
def full(new_redis, backend_on, cache_class):
    """A backend on a server that fills up when asked to, with some holds taken before."""
    server = new_redis("--maxmemory-policy", "noeviction")
    backend = backend_on(server, cache_class)
    runs = {name: take(backend, name) for name in ("a", "b", "c", "d")}
    with contextlib.closing(server.client()) as client:
        client.config_set("maxmemory", 1)
        yield backend, runs, client


def test_on_a_full_server_holders_go_on(full):
    backend, runs, client = full
    client.pexpire(backend._lease_key("a"), 5000)

    assert renewed(backend, runs["a"]) is Renewal.RENEWED
    assert backend.lease("a").remaining > 10
    progress = Progress(done=1, total=2, note="x" * 200)
    assert renewed(backend, runs["a"]._replace(progress=progress.pack())) is Renewal.RENEWED
    assert backend.lease("a").progress.note == "x" * 200
    assert let_go(backend, runs["b"]) is Released.RELEASED
    assert let_go(backend, runs["c"], rest_ms=5000) is Released.RELEASED
    assert backend.lease("c").state == "resting"
    assert backend.force_release("d", runs["d"].fence) is True
    assert renewed(backend, runs["d"]) is Renewal.FORCED
    assert backend.held("a", runs["a"].token) is True
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["a", "c"]


def test_on_a_full_server_holders_go_on_with_scripts_that_it_has_forgotten(full):
    backend, runs, client = full
    client.script_flush()

    answers = backend.renew([runs["a"], RenewRequest("nobody's", "t", 1, LONG), runs["b"]])
    assert [answer.outcome for answer in answers] == [Renewal.RENEWED, Renewal.GONE, Renewal.RENEWED]
    client.script_flush()
    assert let_go(backend, runs["a"]) is Released.RELEASED


def test_on_a_full_server_holds_are_handed_over_and_adopted(full):
    backend, runs, client = full
    client.pexpire(backend._lease_key("a"), 5000)

    assert backend.hand_over([HandOverRequest("a", runs["a"].token, "digest", LONG)]) is True
    assert backend.lease("a").state == "handed_over"
    client.pexpire(backend._lease_key("a"), 5000)
    (adopted,) = backend.adopt([AdoptRequest("a", "digest", "token", LONG, LONG // 3, HOLDER)])
    assert adopted.fence == runs["a"].fence
    assert backend.lease("a").remaining > 10
    assert backend.held("a", "token") is True


def test_on_a_full_server_an_acquire_says_that_the_store_cannot_and_leaves_nothing(full):
    backend, runs, _ = full

    with pytest.raises(BackendUnavailable, match="maxmemory"):
        backend.acquire([request_of("new"), request_of("new 2")])
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        backend.acquire([request_of("a", over_fence=runs["a"].fence)])

    assert backend.lease("new") is None
    assert backend.held("a", runs["a"].token) is True
    assert isinstance(backend.acquire([request_of("b")]), Refusal)  # what needs no room is answered


def test_on_a_full_server_a_holder_still_sees_its_stop_flag(new_redis, backend_on):
    server = new_redis("--maxmemory-policy", "noeviction")
    backend = backend_on(server)
    run = take(backend, "job")
    flag = set_flag(backend, "job")
    with contextlib.closing(server.client()) as client:
        client.config_set("maxmemory", 1)

        assert backend.renew([run])[0].flag == flag
        assert backend.renew([run._replace(seen=True)])[0].flag.seen_at is not None
        with pytest.raises(BackendUnavailable, match="maxmemory"):
            set_flag(backend, "other", keep=True)
        assert backend.clear_flag("job") is not None
        assert backend.poll() == []


# -- a server that does not answer --------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True], ids=["idle connection", "fresh connection"])
def test_a_server_that_is_down_is_unavailable_at_once(new_redis, backend_on, cache_class, fresh):
    server = new_redis()
    backend = backend_on(server, cache_class, store_timeout=1.0)
    run = take(backend, "job")
    server.stop()

    assert_unavailable(backend, run, within_seconds=PATIENCE, fresh=fresh)


@pytest.mark.parametrize("packer", ["hiredis", "redis-py"])
def test_an_error_page_shows_no_token(new_redis, backend_on, monkeypatch, packer):
    if packer == "redis-py":
        monkeypatch.setattr(wire, "_pack", None)
    server = new_redis()
    backend_on(server)
    hold = claim("job").acquire()

    with server.frozen():
        for act in (hold.renew, hold.verify, hold.hand_over):
            with pytest.raises(BackendUnavailable) as caught, within(0.2):
                act()
            page = ExceptionReporter(None, caught.type, caught.value, caught.tb).get_traceback_html()
            seen = "".join(TracebackException.from_exception(caught.value, capture_locals=True).format())

            assert "_exchange" in seen
            assert hold.token not in page + seen


@pytest.mark.parametrize("fresh", [False, True], ids=["idle connection", "fresh connection"])
def test_a_server_that_is_frozen_is_unavailable_within_the_store_timeout(new_redis, backend_on, cache_class, fresh):
    server = new_redis()
    backend = backend_on(server, cache_class, store_timeout=0.1)
    run = take(backend, "job")

    with server.frozen():
        assert_unavailable(backend, run, within_seconds=0.1 + PATIENCE, fresh=fresh)

    assert renewed(backend, run) in (Renewal.RENEWED, Renewal.GONE, Renewal.FORCED)  # what was sent was done late


def test_a_late_answer_is_never_taken_for_that_of_the_next_question(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server, cache_class, store_timeout=0.3)
    run = take(backend, "job")
    with server.frozen(), pytest.raises(BackendUnavailable):
        backend.lease("job")

    assert backend.held("job", run.token) is True
    assert backend.flag("job") is None
    assert renewed(backend, run) is Renewal.RENEWED


def test_the_clients_own_timeouts_and_retries_do_not_stretch_ours(new_redis, backend_on):
    server = new_redis()
    patient = {"socket_timeout": 60, "socket_connect_timeout": 60, "retry_on_timeout": True}
    for cache_class, options in ((DJANGO, patient), (DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": patient})):
        backend = backend_on(server, cache_class, store_timeout=0.15, OPTIONS=options)
        run = take(backend, f"job-{cache_class}")
        with server.frozen():
            for fresh in (False, True):
                if fresh:
                    backend.close()
                started = clock()
                with pytest.raises(BackendUnavailable):
                    backend.renew([run])
                assert clock() - started <= 0.15 + PATIENCE


def test_verbs_can_be_bounded_together(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server, store_timeout=30)
    run = take(backend, "job")

    with server.frozen():
        started = clock()
        with within(0.2):
            for _ in range(5):
                with pytest.raises(BackendUnavailable):
                    backend.renew([run])
        assert clock() - started <= 0.2 + PATIENCE


def test_a_server_that_comes_back_is_used_again(new_redis, backend_on, cache_class):
    server = new_redis(persistent=True)
    backend = backend_on(server, cache_class, store_timeout=1.0)
    run = take(backend, "job")
    server.stop()
    with pytest.raises(BackendUnavailable):
        backend.renew([run])
    server.start()

    assert renewed(backend, run) is Renewal.RENEWED


def test_connections_that_were_closed_while_idle_are_replaced_without_an_error(new_redis, backend_on, cache_class):
    server = new_redis(persistent=True)
    backend = backend_on(server, cache_class)
    run = take(backend, "job")
    together = threading.Barrier(6)

    def use():
        # All at once, so that there are many idle connections afterwards.
        together.wait(10)
        for _ in range(20):
            backend.held("job", run.token)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    with contextlib.closing(server.client()) as client:
        for verb in ("renew", "held", "lease", "flag", "poll"):
            client.client_kill_filter(_type="normal", skipme=True)
            verbs(backend, run)[verb]()
    server.restart()
    assert renewed(backend, run) is Renewal.RENEWED
    server.restart()
    assert backend.held("job", run.token) is True
    server.restart()
    assert let_go(backend, run) is Released.RELEASED


def test_an_acquire_that_was_cut_off_and_sent_again_is_granted_once(new_redis, backend_on):
    """The connection dies after the server has done its work: the second request finds the first one's."""
    server = new_redis()
    backend = backend_on(server)
    take(backend, "warm up")
    connection = backend._connections._idle[-1]
    send, sent = connection.send_packed_command, []

    def send_and_cut(*args, **kwargs):
        send(*args, **kwargs)
        with contextlib.closing(server.client()) as client:
            wait_until(lambda: client.exists(backend._lease_key("job")))
            sent.append(backend.lease("job").fence)
        connection._sock.shutdown(2)

    connection.send_packed_command = send_and_cut

    run = take(backend, "job")

    assert sent == [run.fence]
    assert renewed(backend, run) is Renewal.RENEWED


# -- rights, settings and servers of all kinds --------------------------------------------------


def test_a_user_who_may_run_no_scripts_is_told_what_the_server_said(new_redis, backend_on, cache_class):
    server = new_redis()
    with contextlib.closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", "limited", "on", ">s3cret", "~*", "&*", "+@all", "-@scripting")
    backend = backend_on(f"redis://limited:s3cret@127.0.0.1:{server.port}/0", cache_class)

    for verb, call in verbs(backend, RenewRequest("job", "t" * 22, 1, LONG)).items():
        with pytest.raises(BackendUnavailable, match=r"(?i)evalsha") as caught:
            call()
        assert "s3cret" not in str(caught.value), verb


def test_a_user_who_lacks_the_dangerous_commands_can_do_everything(new_redis, backend_on, cache_class):
    server = new_redis()
    with contextlib.closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "+@all", "-@dangerous", "-@admin")
    backend = backend_on(f"redis://app:s3cret@127.0.0.1:{server.port}/0", cache_class)
    run = take(backend, "job")

    for call in verbs(backend, run).values():
        call()


def test_a_wrong_password_is_unavailable_and_never_shown(new_redis, backend_on, cache_class):
    server = new_redis("--requirepass", "right")
    backend = backend_on(f"redis://:wr0ng@127.0.0.1:{server.port}/0", cache_class)

    with pytest.raises(BackendUnavailable) as caught:
        backend.acquire([request_of("job")])
    assert "wr0ng" not in str(caught.value) + backend.describe()
    good = backend_on(f"redis://:right@127.0.0.1:{server.port}/0", cache_class)
    take(good, "job")
    assert "right" not in good.describe()


def test_a_cache_that_ignores_errors_hides_none_here(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server, DJANGO_REDIS, store_timeout=1.0, OPTIONS={"IGNORE_EXCEPTIONS": True})
    run = take(backend, "job")
    server.stop()

    assert_unavailable(backend, run, within_seconds=PATIENCE)


def test_nothing_is_read_from_copies(new_redis, backend_on, cache_class):
    primary, copy = new_redis(), new_redis()  # a copy that lags for ever
    backend = backend_on([primary.url, copy.url], cache_class)

    for number in range(20):
        run = take(backend, f"job-{number}")
        assert backend.held(run.name, run.token) is True
        assert renewed(backend, run) is Renewal.RENEWED
        assert backend.lease(run.name).fence == run.fence
        assert backend.leases(match=run.name, page=1, per_page=10).total == 1
        flag = set_flag(backend, run.name)
        assert backend.flag(run.name) == flag
        assert backend.flags() == [flag]
        assert let_go(backend, run) is Released.RELEASED
        backend.close()
    assert all_keys(copy) == []


def test_a_unix_socket_will_do(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(f"unix://{server.socket_path}?db=0", cache_class)

    run = take(backend, "job")

    assert renewed(backend, run) is Renewal.RENEWED
    assert server.socket_path in backend.describe()


def test_a_database_number_is_kept_to(new_redis, backend_on, cache_class):
    server = new_redis()
    backend = backend_on(server.url.replace("/0", "/3"), cache_class)

    run = take(backend, "job")

    assert renewed(backend, run) is Renewal.RENEWED
    assert all_keys(server) == []


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [False, True])
def test_the_clients_protocol_and_decoding_change_nothing(redis_server, backend_on, protocol, decode):
    pool = {"protocol": protocol, "decode_responses": decode}
    for cache_class, options in ((DJANGO, pool), (DJANGO_REDIS, {"CONNECTION_POOL_KWARGS": pool})):
        backend = backend_on(redis_server, cache_class, KEY_PREFIX=uuid.uuid4().hex, OPTIONS=options)
        run = take(backend, "jób")
        set_flag(backend, "jób")
        for call in verbs(backend, run).values():
            call()
        assert backend.lease("jób") is None
        assert backend.set_flag("nobody", keep=False, fence=None, reason="", by="", ttl_ms=None) is None


LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
REFUSED = {
    "locmem": LOCMEM,
    "dummy": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"},
    "file": {"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "/nowhere"},
    "database": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "table"},
    "shards": {
        "BACKEND": DJANGO_REDIS,
        "LOCATION": ["redis://127.0.0.1:1/0", "redis://127.0.0.1:2/0"],
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"},
    },
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_cache_with_no_single_redis_is_refused_with_what_to_use(kind):
    claims = {"nightly": {"BACKEND": BACKEND, "OPTIONS": {"cache": "odd"}}}
    caches_and_claims = override_settings(CACHES={"default": LOCMEM, "odd": REFUSED[kind]}, CLAIMS=claims)
    with caches_and_claims, pytest.raises(InvalidClaimsSetting) as caught:
        claim_backends["nightly"]

    text = str(caught.value)
    assert "'nightly'" in text and "'odd'" in text
    assert DJANGO_REDIS in text
    assert "DatabaseBackend" in text


def test_an_alias_of_no_cache_is_refused_with_those_there_are():
    claims = {"default": {"BACKEND": BACKEND, "OPTIONS": {"cache": "lokcs"}}}
    caches_and_claims = override_settings(CACHES={"default": LOCMEM, "locks": LOCMEM}, CLAIMS=claims)
    with caches_and_claims, pytest.raises(InvalidClaimsSetting, match=r"'lokcs'.*'default', 'locks'"):
        claim_backends["default"]


def test_an_unknown_option_is_refused_with_the_one_that_was_meant(redis_server, backend_on):
    with pytest.raises(InvalidClaimsSetting, match=r"'key_prefx'.*'key_prefix'"):
        backend_on(redis_server, claims={"key_prefx": "x"})


def test_the_cache_of_another_alias_can_be_used_and_an_override_is_gone_afterwards(redis_server, cache_class):
    mark = uuid.uuid4().hex
    params = {"BACKEND": cache_class, "LOCATION": redis_server.url}
    claims = {"default": {"BACKEND": BACKEND, "OPTIONS": {"cache": "locks"}}}
    with override_settings(CLAIMS=claims, CACHES={"default": LOCMEM, "locks": {**params, "KEY_PREFIX": mark}}):
        first = claim_backends["default"]
        run = take(first, "job")
        with override_settings(CACHES={"default": LOCMEM, "locks": {**params, "KEY_PREFIX": f"{mark}-2"}}):
            second = claim_backends["default"]
            let_go(second, take(second, "job"))
            second.close()
        assert renewed(claim_backends["default"], run) is Renewal.RENEWED
        assert let_go(first, run) is Released.RELEASED
        first.close()
    assert not isinstance(claim_backends["default"], RedisBackend)


def test_nothing_is_asked_of_the_server_before_the_first_verb(backend_on, cache_class):
    backend = backend_on("redis://127.0.0.1:1/0", cache_class)

    assert backend.check() == []
    assert "127.0.0.1:1/0" in backend.describe()
    backend.close()


def test_connections_are_kept_and_shared_by_threads_and_closed_when_asked(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    other = RedisBackend(backend.settings)
    run = take(backend, "job")
    with contextlib.closing(server.client()) as client:
        before = client.info("stats")["total_connections_received"]

        for _ in range(20):
            backend.held("job", run.token)
            other.held("job", run.token)
            thread = threading.Thread(target=backend.renew, args=([run],))
            thread.start()
            thread.join(10)

        assert client.info("stats")["total_connections_received"] == before
        assert len(client.client_list()) == 2
        backend.close()
        wait_until(lambda: len(client.client_list()) == 1)


def test_a_forked_child_has_connections_of_its_own(new_redis, backend_on):
    server = new_redis()
    backend = backend_on(server)
    run = take(backend, "job")
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if all(backend.held("job", run.token) for _ in range(200)) else 2
        os._exit(status)

    answers = [renewed(backend, run) for _ in range(200)]

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert set(answers) == {Renewal.RENEWED}
