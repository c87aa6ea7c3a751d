"""The cache backend: the contract on memcached over both clients and on a trusted cache, and what is special to it."""

import contextlib
import importlib.util
import inspect
import multiprocessing
import os
import pickle
import re
import tempfile
import threading
import types
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.test import override_settings

from django_claims import LossReason, claim, force_release, list_claims, request_stop
from django_claims.backends import cache_granting, cache_index, cache_leases, cache_records
from django_claims.backends.base import (
    AcquireRequest,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
    within,
)
from django_claims.backends.cache import CacheBackend
from django_claims.backends.cache_keys import digest
from django_claims.backends.cache_memcached import PylibmcLink, PymemcacheLink
from django_claims.backends.cache_records import Row
from django_claims.checks import check_settings
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.holders import Holder
from django_claims.test import BackendContract
from django_claims.test.waiting import wait_until
from tests.backends import cache_racing
from tests.backends.memcached_server import LosesReplies, MemcachedServer, find_memcached
from tests.conftest import missing

BACKEND = "django_claims.backends.cache.CacheBackend"
PYMEMCACHE = "django.core.cache.backends.memcached.PyMemcacheCache"
PYLIBMC = "django.core.cache.backends.memcached.PyLibMCCache"
CLIENTS = {PYMEMCACHE: "pymemcache", PYLIBMC: "pylibmc"}
PATIENCE = 1.0  # what a busy machine may add to a bound
HOLDER = Holder(host="web-1", pid=4242, label="manage.py import")


def settings_of(store_timeout=5.0, alias="default", **options):
    return AliasSettings(alias=alias, backend=BACKEND, store_timeout=store_timeout, options=options)


def need(client):
    if importlib.util.find_spec(CLIENTS[client]) is None:
        missing(f"no {CLIENTS[client]}")


@pytest.fixture
def new_memcached():
    """Start servers for one test."""
    program, servers = find_memcached() or missing("no memcached on PATH"), []

    def start(*options, **how):
        servers.append(MemcachedServer(*options, program=program, **how))
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


class TestCacheBackendOverPymemcache(BackendContract):
    may_end_late = 2.0

    @pytest.fixture(autouse=True)
    def fresh_backend(self, memcached, backend_on):
        need(PYMEMCACHE)
        self.backend = backend_on(memcached)


def long_where_it_waits(cls):
    """Mark the tests of a contract that wait for an expiry, which takes whole seconds: one class has them always."""
    for name, test in inspect.getmembers(BackendContract, inspect.isfunction):
        if name.startswith("test_") and re.search(r"SHORT|expire\(|until\(|1\.9", inspect.getsource(test)):
            copied = types.FunctionType(test.__code__, test.__globals__, name, test.__defaults__, test.__closure__)
            setattr(cls, name, pytest.mark.long(copied))
    return cls


@long_where_it_waits
class TestCacheBackendOverPylibmc(BackendContract):
    may_end_late = 2.0

    @pytest.fixture(autouse=True)
    def fresh_backend(self, memcached, backend_on):
        need(PYLIBMC)
        self.backend = backend_on(memcached, client=PYLIBMC)


@long_where_it_waits
class TestCacheBackendOnATrustedCache(BackendContract):
    may_end_late = 2.0

    @pytest.fixture(autouse=True)
    def fresh_backend(self):
        with trusted_cache() as self.backend:
            yield


class TrustedCache(BaseCache):
    """A third party's cache: of one process, with an add() that only one can win."""

    stores = {}
    fails = None

    def __init__(self, location, params):
        super().__init__(params)
        self.data, self.lock = self.stores.setdefault(location, ({}, threading.Lock()))

    def _live(self, key):
        if self.fails:
            raise self.fails
        value, ends = self.data.get(key, (None, 0))
        return value if ends is None or ends > clock() else None

    def add(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        with self.lock:
            key = self.make_key(key, version)
            if self._live(key) is not None:
                return False
            self.data[key] = (value, self._ends(timeout))
            return True

    def _ends(self, timeout):
        return None if timeout is None else clock() + timeout

    def get(self, key, default=None, version=None):
        with self.lock:
            found = self._live(self.make_key(key, version))
        return default if found is None else found

    def set(self, key, value, timeout=DEFAULT_TIMEOUT, version=None):
        with self.lock:
            self.data[self.make_key(key, version)] = (value, self._ends(timeout))

    def delete(self, key, version=None):
        with self.lock:
            return self.data.pop(self.make_key(key, version), None) is not None


TRUSTED = f"{__name__}.TrustedCache"


@contextlib.contextmanager
def trusted_cache(trust_add=True, **options):
    entry = {"BACKEND": TRUSTED, "LOCATION": uuid.uuid4().hex}
    with override_settings(CACHES={"default": entry}):
        yield CacheBackend(settings_of(trust_add=trust_add, **options))


def take(backend, name="job", token="t1", **how):
    (grant,) = backend.acquire([request(name, token, **how)])
    return grant


def renew(backend, token="t1", fence=1, name="job"):
    return backend.renew([RenewRequest(name, token, fence, 60_000)])[0].outcome


def let_go(backend, token="t1", name="job"):
    return backend.release([ReleaseRequest(name, token)])[0]


def verbs(backend):
    """Return every verb, to be called on a store that does not answer."""
    return {
        "acquire": lambda: backend.acquire([request("other", "t2")]),
        "acquire a held one": lambda: backend.acquire([request("job", "t2")]),
        "renew": lambda: renew(backend),
        "release": lambda: let_go(backend),
        "held": lambda: backend.held("job", "t1"),
        "lease": lambda: backend.lease("job"),
        "leases": lambda: backend.leases(match="", page=1, per_page=10),
        "flag": lambda: backend.flag("job"),
        "flags": lambda: backend.flags(),
        "poll": lambda: backend.poll(),
        "set_flag": lambda: backend.set_flag("job", keep=False, fence=None, reason="", by="", ttl_ms=None),
        "keep": lambda: backend.set_flag("job", keep=True, fence=None, reason="", by="", ttl_ms=None),
        "clear_flag": lambda: backend.clear_flag("job"),
        "force_release": lambda: backend.force_release("job", 1),
    }


@pytest.fixture
def plain(memcached):
    """A plain client for the test itself."""
    client = import_module("pymemcache.client.base").Client(memcached.address, default_noreply=False)
    yield client
    client.close()


# -- faults ----------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_unavailable_for_every_verb_and_nothing_else(new_memcached, backend_on, client):
    server = new_memcached()
    backend = backend_on(server, client=client, store_timeout=1.0)
    take(backend)
    server.stop()

    for fresh in (False, True):
        for verb, call in verbs(backend).items():
            started = clock()
            with pytest.raises(BackendUnavailable):
                pytest.fail(f"{verb} gave {call()!r}")
            assert clock() - started < 1.0 + PATIENCE, (verb, fresh)


def test_a_frozen_server_is_unavailable_within_the_time(new_memcached, backend_on, client):
    server = new_memcached()
    backend = backend_on(server, client=client, store_timeout=0.2)
    take(backend)
    with server.frozen():
        wait_until(lambda: server.ask("version", 0.05) == "")
        for verb, call in verbs(backend).items():
            started = clock()
            with pytest.raises(BackendUnavailable):
                pytest.fail(f"{verb} gave {call()!r}")
            assert 0.1 < clock() - started < 0.2 + PATIENCE, verb

    assert take(backend, "after").fence > 0


def test_a_verb_may_be_told_to_hurry(new_memcached, backend_on, client):
    server = new_memcached()
    backend = backend_on(server, client=client)
    take(backend)
    with server.frozen(), within(0.2):
        wait_until(lambda: server.ask("version", 0.05) == "")
        started = clock()
        with pytest.raises(BackendUnavailable):
            backend.lease("job")

    assert clock() - started < 0.2 + PATIENCE


def test_after_a_restart_the_holder_is_told_and_the_fence_grows(new_memcached, backend_on, client):
    server = new_memcached()
    backend = backend_on(server, client=client)
    old = take(backend)
    server.restart()

    assert renew(backend, fence=old.fence) is Renewal.GONE
    assert let_go(backend) is Released.GONE
    assert take(backend, token="t2").fence > old.fence


def test_after_a_flush_the_holder_is_told_and_the_fence_grows(new_memcached, backend_on, client):
    server = new_memcached()
    backend = backend_on(server, client=client)
    old = take(backend)
    caches["default"].clear()

    assert renew(backend, fence=old.fence) is Renewal.GONE
    assert take(backend, token="t2").fence > old.fence
    assert renew(backend, fence=old.fence) is Renewal.TAKEN
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["job"]


def test_a_server_of_several_that_is_down_is_not_replaced_by_another(new_memcached, backend_on, client):
    servers = [new_memcached(), new_memcached()]
    backend = backend_on(*servers, client=client, store_timeout=1.0)
    names = [f"job-{number}" for number in range(20)]
    for name in names:
        take(backend, name)
    servers[1].stop()

    def answer(name):
        try:
            return backend.acquire([request(name, "t2")])
        except BackendUnavailable:
            return None

    answers = [answer(name) for _ in range(3) for name in names]

    assert None in answers
    assert [answer for answer in answers if isinstance(answer, list)] == []


@pytest.mark.parametrize("word", [b"add ", b"cas "])
def test_a_grant_whose_reply_was_lost_is_unavailable_and_found_again_by_its_token(new_memcached, backend_on, word):
    server = new_memcached()
    proxy = LosesReplies(server.port)
    backend = backend_on(proxy, store_timeout=2.0)
    before = take(backend, token="t0")
    let_go(backend, "t0")
    proxy.word = word

    with pytest.raises(BackendUnavailable):
        take(backend)
    proxy.word = None

    assert proxy.lost == 1
    assert take(backend).fence > before.fence
    assert isinstance(backend.acquire([request(token="t2")]), Refusal)
    assert let_go(backend) is Released.RELEASED
    proxy.close()


def test_a_release_whose_reply_was_lost_was_done(new_memcached, backend_on, client):
    server = new_memcached()
    proxy = LosesReplies(server.port)
    backend = backend_on(proxy, client=client, store_timeout=2.0)
    take(backend)
    proxy.word = b"cas "

    with contextlib.suppress(BackendUnavailable):
        assert let_go(backend) is Released.GONE
    proxy.word = None

    assert backend.lease("job") is None
    proxy.close()


def test_a_full_server_is_unavailable_not_refused(new_memcached, backend_on):
    server = new_memcached("-M", "-m", "4")
    backend = backend_on(server)
    names = (f"job-{number}" for number in range(100_000))

    with pytest.raises(BackendUnavailable, match="memory"):
        for name in names:
            take(backend, name, token=name)


# -- other processes -------------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["new", pytest.param("ended", marks=pytest.mark.long)])
def test_of_six_processes_one_wins_each_round(memcached, backend_on, client, over):
    entry = {"BACKEND": client, "LOCATION": memcached.address, "KEY_PREFIX": uuid.uuid4().hex}
    backend = backend_on(memcached, client=client, KEY_PREFIX=entry["KEY_PREFIX"])
    names = [f"race-{number}" for number in range(60)]
    if over == "ended":
        for name in names:
            take(backend, name, ttl_ms=1)
        wait_until(lambda: all(backend.lease(name) is None for name in names))
    context = multiprocessing.get_context("spawn")
    barrier, granted = context.Barrier(6), context.Queue()
    racers = [
        context.Process(target=cache_racing.race, args=(entry, f"p{number}", names, barrier, granted))
        for number in range(6)
    ]
    for racer in racers:
        racer.start()
    answers = [granted.get(timeout=60) for _ in range(6 * len(names))]
    for racer in racers:
        racer.join(30)

    assert sorted(name for name, won in answers if won) == sorted(names)


def test_a_killed_holder_is_followed_at_once(memcached, backend_on, client):
    entry = {"BACKEND": client, "LOCATION": memcached.address, "KEY_PREFIX": uuid.uuid4().hex}
    backend_on(memcached, client=client, KEY_PREFIX=entry["KEY_PREFIX"])
    context = multiprocessing.get_context("spawn")
    fences = context.Queue()
    holder = context.Process(target=cache_racing.hold, args=(entry, "job", fences))
    holder.start()
    fence = fences.get(timeout=60)
    with override_settings(CLAIMS={"default": {"BACKEND": BACKEND}}):
        refused = claim("job").acquire()
        holder.kill()
        holder.join(30)

        with claim("job") as taken:
            assert refused is None
            assert taken.fence > fence


def test_a_forked_child_has_connections_of_its_own_and_leaves_the_parents(memcached, backend_on, client):
    backend = backend_on(memcached, client=client)
    take(backend)
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            status = 0 if all(backend.held("job", "t1") for _ in range(200)) else 2
        os._exit(status)

    answers = [renew(backend) for _ in range(200)]

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert set(answers) == {Renewal.RENEWED}


def test_threads_never_read_each_others_keys(memcached, backend_on, client):
    # pylibmc lets go of a key that it was given as text before it is done with it.
    backend = backend_on(memcached, client=client)

    def work(number):
        mine = CacheBackend(backend.settings)
        for turn in range(150):
            token = f"t{number}-{turn}"
            if isinstance(mine.acquire([request(token=token)]), list):
                assert mine.held("job", token)
                assert let_go(mine, token) is Released.RELEASED
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_writers_of_the_index_and_of_the_flags_tear_nothing(memcached, backend_on, client):
    backend = backend_on(memcached, client=client)
    names = [f"job-{number:03}" for number in range(120)]

    def work(number):
        mine = CacheBackend(backend.settings)
        for name in names[number::6]:
            take(mine, name)
            mine.set_flag(name, keep=bool(number % 2), fence=None, reason="", by="", ttl_ms=None)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))

    assert [lease.name for lease in backend.leases(match="", page=1, per_page=200)] == names
    assert [flag.name for flag in backend.flags()] == names


# -- keys and values -------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["p" * 300, "two words", "\N{PARTY POPPER}" * 60, "pre"])
def test_any_prefix_and_any_name_will_do(memcached, backend_on, client, prefix):
    mark = uuid.uuid4().hex
    backend = backend_on(memcached, client=client, KEY_PREFIX=f"{mark} {prefix}")
    names = ["x" * 300, "x" * 299 + "y", "\N{PARTY POPPER}" * 130, "a b"]

    for name in names:
        take(backend, name)

    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == sorted(names)
    other = backend_on(memcached, client=client, KEY_PREFIX=f"{mark} {prefix}2")
    assert other.lease("a b") is None
    assert [let_go(backend, name=name) for name in names] == [Released.RELEASED] * 4


def test_keys_follow_the_caches_own_rule_and_can_be_pinned(memcached, backend_on):
    mark = uuid.uuid4().hex
    backend = backend_on(memcached, KEY_PREFIX=mark, VERSION=3, KEY_FUNCTION=f"{__name__}.key_function")
    take(backend)

    assert caches["default"].get(f"claims:lease:{digest('job')}").startswith(b"1 t1 ")
    assert backend._keys.lease("job") == f"{mark}/3/claims:lease:{digest('job')}"
    moved = backend_on(
        memcached,
        KEY_PREFIX="release-2",
        VERSION=4,
        KEY_FUNCTION=f"{__name__}.key_function",
        claims={"key_prefix": mark, "version": 3},
    )
    assert moved.held("job", "t1") is True


def key_function(key, prefix, version):
    return f"{prefix}/{version}/{key}"


def test_both_clients_have_the_same_claims_in_plain_text(memcached, backend_on):
    need(PYLIBMC)
    mark = uuid.uuid4().hex
    first = backend_on(memcached, client=PYMEMCACHE, KEY_PREFIX=mark)
    take(first, "jób")
    second = backend_on(memcached, client=PYLIBMC, KEY_PREFIX=mark)

    assert second.lease("jób").holder == HOLDER
    assert let_go(second, name="jób") is Released.RELEASED
    assert first.lease("jób") is None


def garbage():
    good = Row("job", "t9", 7, "h", HOLDER.packed, 1, 1, 1, 60_000, 20_000)
    return {
        "text": b"hello",
        "nothing": b"",
        "bytes": b"\xff\x00\r\n",
        "newer": b"2" + good.pack()[1:],
        "another name": good._replace(name="other").pack(),
        "broken holder": good._replace(holder="{").pack(),
        "broken progress": good._replace(progress="{").pack(),
        "no date": good._replace(acquired_us=10**17 - 1, kind="x").pack(),
        "pickle": pickle.dumps({"a": 1}),
    }


@pytest.mark.parametrize("kind", garbage())
def test_what_is_not_ours_is_unreadable_and_can_be_force_released(memcached, backend_on, client, kind, plain):
    backend = backend_on(memcached, client=client)
    plain.set(backend._keys.lease("job"), garbage()[kind])

    refusal = backend.acquire([request(over_fence=0)])

    assert (refusal.lease.state, refusal.lease.fence) == ("unreadable", 0)
    assert backend.lease("job").state == "unreadable"
    assert renew(backend) is Renewal.TAKEN
    assert let_go(backend) is Released.NOT_OWNER
    assert backend.force_release("job", 8) is False
    assert backend.force_release("job", 0) is True
    assert take(backend).fence > 0


def test_a_value_of_the_sites_own_cache_under_our_key_is_not_unpickled(memcached, backend_on, client):
    backend = backend_on(memcached, client=client)
    caches["default"].set(f"claims:lease:{digest('job')}", Bomb())

    assert backend.lease("job").state == "unreadable"
    assert backend.force_release("job", 0) is True


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("a value was unpickled",))


def test_broken_counters_and_index_are_mended_and_broken_flags_are_not_no_flags(memcached, backend_on, plain):
    backend = backend_on(memcached)
    plain.set(backend._keys.fence("job"), b"many")
    plain.set(backend._keys.part("job"), b"\xff")
    take(backend)
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["job"]

    plain.set(backend._keys.news, b"2\nwho knows")

    for call in (lambda: take(backend, "b"), lambda: renew(backend), backend.poll, lambda: backend.flag("job")):
        with pytest.raises(BackendUnavailable, match="format"):
            call()


def test_a_fence_grows_though_the_counter_is_ahead_of_the_clock(memcached, backend_on, client, plain):
    backend = backend_on(memcached, client=client)
    plain.set(backend._keys.fence("job"), b"9000000000000000000")

    assert take(backend).fence == 9000000000000000001


def test_a_grant_that_was_overtaken_gets_another_fence(memcached, backend_on, client, monkeypatch):
    # The name was granted and released again between our reading and our add.
    backend, other = backend_on(memcached, client=client), CacheBackend(settings_of())
    real, between = type(backend)._claim, []

    def claim_late(self, want, fence, now):
        if not between:
            between.append(None)
            between.append(take(other, token="t2").fence)
            let_go(other, "t2")
        return real(self, want, fence, now)

    monkeypatch.setattr(type(backend), "_claim", claim_late)
    fence = take(backend).fence

    assert fence > between[1]
    assert backend.lease("job").fence == fence
    assert let_go(backend) is Released.RELEASED


@pytest.fixture
def before_the_write(monkeypatch):
    """Have something happen between a verb's reading of the lease of 'job' and its write, once."""

    def arrange(backend, action):
        done, key = [], backend._keys.lease("job")

        def put(self, writes, **how):
            if not done and writes[0].key == key:
                done.append(True)
                action()
            return real(self, writes, **how)

        kind = PylibmcLink if caches.settings["default"]["BACKEND"] == PYLIBMC else PymemcacheLink
        real = kind.put
        monkeypatch.setattr(kind, "put", put)

    return arrange


def test_a_renewal_that_meets_another_of_the_same_holder_is_renewed(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    grant = take(backend)
    before_the_write(backend, lambda: renew(backend, fence=grant.fence))

    assert renew(backend, fence=grant.fence) is Renewal.RENEWED


def test_a_release_that_meets_a_renewal_is_released(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    grant = take(backend)
    before_the_write(backend, lambda: renew(backend, fence=grant.fence))

    assert let_go(backend) is Released.RELEASED
    assert backend.lease("job") is None


def test_a_force_release_that_meets_a_renewal_ends_the_lease(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    grant = take(backend)
    before_the_write(backend, lambda: renew(backend, fence=grant.fence))

    assert backend.force_release("job", grant.fence) is True
    assert renew(backend, fence=grant.fence) is Renewal.FORCED


def test_a_force_release_that_meets_the_release_leaves_no_word_and_not_the_next_run(
    memcached, backend_on, client, before_the_write
):
    backend = backend_on(memcached, client=client)
    grant = take(backend)

    def hand_on():
        let_go(backend)
        take(backend, token="t2")

    before_the_write(backend, hand_on)

    assert backend.force_release("job", grant.fence) is False
    assert backend.held("job", "t2") is True
    assert backend.poll() == []


def test_a_renewal_or_release_that_meets_a_takeover_does_not_touch_it(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    for act, answer in ((lambda: renew(backend), Renewal.TAKEN), (lambda: let_go(backend), Released.NOT_OWNER)):
        grant = take(backend)
        before_the_write(backend, lambda fence=grant.fence: take(backend, token="t2", over_fence=fence))
        assert act() is answer
        assert backend.held("job", "t2") is True
        let_go(backend, "t2")


def test_a_takeover_that_meets_the_release_gets_the_free_name(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    grant = take(backend)
    before_the_write(backend, lambda: let_go(backend))

    assert take(backend, token="t2", over_fence=grant.fence).fence > grant.fence


def test_of_two_takeovers_of_one_dead_run_one_is_refused(memcached, backend_on, client, before_the_write):
    backend = backend_on(memcached, client=client)
    dead = take(backend)
    before_the_write(backend, lambda: take(backend, token="t2", over_fence=dead.fence))

    refusal = backend.acquire([request(token="t3", over_fence=dead.fence)])

    assert refusal.lease.fence > dead.fence
    assert backend.held("job", "t2") is True


def test_writers_of_one_record_of_a_trusted_cache_wait_for_each_other():
    with trusted_cache() as backend:
        cache = caches["default"]
        names = [f"job-{number}" for number in range(24)]

        def work(number):
            mine = CacheBackend(backend.settings)
            for name in names[number::4]:
                mine.set_flag(name, keep=True, fence=None, reason="", by="", ttl_ms=None)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))

        assert sorted(flag.name for flag in backend.flags()) == sorted(names)
        cache.add("claims:news:lock", "1", 60)
        hurried = CacheBackend(settings_of(0.1, trust_add=True))
        with pytest.raises(BackendUnavailable):
            hurried.clear_flag("job-1")


def test_a_31_day_ttl_reaches_the_server_as_31_days(memcached, backend_on, client):
    backend = backend_on(memcached, client=client)
    take(backend, ttl_ms=31 * 24 * 3600 * 1000)

    left = int(memcached.ask(f"mg {backend._keys.lease('job')} t")[4:])

    assert 0 <= left - 31 * 24 * 3600 <= 2


def test_a_lease_that_would_end_after_the_servers_last_date_is_kept(memcached, backend_on, client):
    """memcached takes dates to 2038; of a later one it makes one that has gone by, and keeps nothing."""
    backend = backend_on(memcached, client=client)
    take(backend, ttl_ms=10**9 * 1000)

    assert isinstance(backend.acquire([request(token="t2")]), Refusal)
    assert backend.release([ReleaseRequest("job", "t1")]) == [Released.RELEASED]


def test_the_store_never_ends_a_lease_before_its_ttl(memcached, backend_on):
    backend = backend_on(memcached)
    ttls = {f"job-{number}": 100 * number for number in range(3, 15)}
    started = {}
    for name, ttl_ms in ttls.items():
        take(backend, name, ttl_ms=ttl_ms)
        started[name] = clock()
    lived = {}

    def all_gone():
        for name in set(ttls) - set(lived):
            seen_at = clock()
            if backend.lease(name) is None:
                lived[name] = clock() - started[name]
            else:
                assert seen_at - started[name] < ttls[name] / 1000 + 2 + PATIENCE
        return len(lived) == len(ttls)

    wait_until(all_gone, 10)

    assert [name for name in ttls if lived[name] < ttls[name] / 1000] == []


def test_the_index_forgets_what_has_not_been_granted_for_an_hour(memcached, backend_on, plain):
    backend = backend_on(memcached)
    part = backend._keys.part("job")
    now = cache_records.now_us() // 1_000_000
    alike = [name for name in (f"n{number}" for number in range(10_000)) if backend._keys.part(name) == part][:3]
    take(backend, alike[0])
    take(backend, alike[1])
    let_go(backend, name=alike[1])
    plain.set(part, cache_records.pack_index({"long-dead": now - 7200, **dict.fromkeys(alike[:2], now - 7200)}))
    take(backend, alike[2])

    assert sorted(cache_records.read_index(plain.get(part))) == sorted(alike)


def test_a_full_part_of_the_index_leaves_names_out_and_says_so(memcached, backend_on, monkeypatch, caplog):
    backend = backend_on(memcached)
    monkeypatch.setattr(cache_index, "MOST_BYTES", 5)

    take(backend)

    page = backend.leases(match="", page=1, per_page=10)
    assert (page.leases, page.complete) == ([], False)
    assert "Index full" in caplog.text
    assert backend.lease("job").state == "held"


def test_the_binary_protocol_will_do(memcached, backend_on):
    need(PYLIBMC)
    backend = backend_on(memcached, client=PYLIBMC, OPTIONS={"binary": True, "behaviors": {"ketama": True}})
    first = take(backend)
    set_flag = backend.set_flag("job", keep=False, fence=None, reason="x", by="", ttl_ms=None)

    assert backend.poll()[0].flag == set_flag
    assert renew(backend, fence=first.fence) is Renewal.RENEWED
    assert let_go(backend) is Released.RELEASED
    assert backend.lease("job") is None
    assert take(backend, token="t2").fence > first.fence
    assert backend.force_release("job", backend.lease("job").fence) is True
    assert backend.lease("job") is None


def test_options_of_the_sites_client_that_hide_errors_hide_none_here(new_memcached, backend_on):
    server = new_memcached()
    options = {"ignore_exc": True, "retry_attempts": 5, "use_pooling": True, "no_delay": True}
    backend = backend_on(server, store_timeout=0.5, OPTIONS=options)
    take(backend)
    server.stop()

    for verb, call in verbs(backend).items():
        with pytest.raises(BackendUnavailable):
            pytest.fail(f"{verb} gave {call()!r}")


def test_a_hold_is_kept_stopped_listed_and_forced(memcached, backend_on, client):
    backend_on(memcached, client=client)
    with override_settings(CLAIMS={"default": {"BACKEND": BACKEND}}):
        with claim("job", ttl=30, heartbeat=0.2, renew_deadline=20) as hold:
            fence = hold.fence
            wait_until(lambda: hold.lease.renewed_at > hold.lease.acquired_at)
            request_stop("job", reason="wrong file")
            wait_until(lambda: hold.stop_requested)
            wait_until(lambda: hold.lease.state == "stopping")
            page = list_claims()
            assert ([lease.name for lease in page], page.complete) == (["job"], False)
            assert force_release("job", fence=fence) is True
            wait_until(lambda: hold.lost)
            assert hold.loss_reason is LossReason.FORCED
            assert claim("job").available()
        with claim("job") as hold:
            assert hold.fence > fence
            assert hold.stop_requested is False


def test_what_machines_with_clocks_ahead_have_written_reads_sanely(memcached, backend_on, monkeypatch):
    backend = backend_on(memcached)
    real = cache_records.now_us
    monkeypatch.setattr(cache_granting, "now_us", lambda: real() + 3_600_000_000)
    take(backend)
    monkeypatch.undo()

    lease = backend.lease("job")

    assert lease.age == 0
    assert 59 < lease.remaining <= 60
    assert lease.state == "held"


def test_a_retried_list_leaves_the_token_what_it_had(memcached, backend_on, monkeypatch):
    backend, other = backend_on(memcached), CacheBackend(settings_of())
    take(backend, "a")
    real, done = type(backend)._claim, []

    def claim_late(self, want, fence, now):
        if not done:
            done.append(True)
            take(other, "c", token="t2")
        return real(self, want, fence, now)

    monkeypatch.setattr(type(backend), "_claim", claim_late)
    refusal = backend.acquire([request(name) for name in "abc"])

    assert refusal.name == "c"
    assert [backend.held(name, "t1") for name in "abc"] == [True, False, False]


# -- settings --------------------------------------------------------------------------------------

UNFIT = {
    "django.core.cache.backends.locmem.LocMemCache": "MemoryBackend",
    "django.core.cache.backends.dummy.DummyCache": "MemoryBackend",
    "django.core.cache.backends.filebased.FileBasedCache": "FileBackend",
    "django.core.cache.backends.db.DatabaseCache": "DatabaseBackend",
}


@pytest.mark.parametrize("trust_add", [False, True])
@pytest.mark.parametrize("cache", UNFIT)
def test_a_cache_that_cannot_hold_a_lease_is_refused_with_what_to_use(cache, trust_add):
    claims = {"default": {"BACKEND": BACKEND, "OPTIONS": {"trust_add": trust_add}}}
    entry = {"default": {"BACKEND": cache, "LOCATION": "/nowhere"}}
    with override_settings(CACHES=entry, CLAIMS=claims):
        with pytest.raises(InvalidClaimsSetting, match=rf"{cache.rpartition('.')[2]}.*{UNFIT[cache]}"):
            claim("job").acquire()
        (problem,) = [problem for problem in check_settings(None) if problem.id == "django_claims.E020"]
        assert UNFIT[cache] in problem.msg


@pytest.mark.parametrize(
    "cache", ["django_redis.cache.RedisCache", "django.core.cache.backends.redis.RedisCache"], ids=["theirs", "django"]
)
def test_a_redis_cache_is_sent_to_its_own_backend(cache):
    entry = {"default": {"BACKEND": cache, "LOCATION": "redis://127.0.0.1:1/0"}}
    with override_settings(CACHES=entry), pytest.raises(InvalidClaimsSetting, match="RedisBackend"):
        CacheBackend(settings_of())


def test_an_unknown_cache_has_to_be_trusted():
    with trusted_cache() as backend:
        assert take(backend).fence > 0
        assert "TrustedCache" in backend.describe()
    with pytest.raises(InvalidClaimsSetting, match="trust_add"), trusted_cache(trust_add=False):
        pass


def test_a_trusted_cache_that_fails_is_unavailable(monkeypatch):
    with trusted_cache() as backend:
        take(backend)
        monkeypatch.setattr(TrustedCache, "fails", OSError("no route to host"))

        for verb, call in verbs(backend).items():
            with pytest.raises(BackendUnavailable, match="no route"):
                pytest.fail(f"{verb} gave {call()!r}")


def test_a_trusted_cache_whose_add_gives_none_is_unavailable(monkeypatch):
    with trusted_cache() as backend:
        monkeypatch.setattr(TrustedCache, "add", lambda *args, **kwargs: None)

        with pytest.raises(BackendUnavailable):
            take(backend)


def test_a_cache_that_says_neither_stored_nor_there_is_unavailable_in_time(monkeypatch):
    with trusted_cache(store_timeout=0.2) as backend:
        monkeypatch.setattr(TrustedCache, "add", lambda *args, **kwargs: False)

        with pytest.raises(BackendUnavailable):
            take(backend)


def test_on_a_trusted_cache_a_lease_past_its_ttl_is_left_alone(monkeypatch):
    with trusted_cache() as backend:
        grant = take(backend)
        real = cache_records.now_us
        for module in (cache_granting, cache_leases):
            monkeypatch.setattr(module, "now_us", lambda: real() + 61_000_000)

        assert renew(backend, fence=grant.fence) is Renewal.GONE
        assert let_go(backend) is Released.GONE
        assert backend.force_release("job", grant.fence) is False
        assert isinstance(backend.acquire([request(token="t2", over_fence=grant.fence)]), Refusal)
        monkeypatch.undo()
        assert backend.held("job", "t1") is True


def test_a_trusted_caches_prefix_and_version_can_be_pinned():
    with trusted_cache(key_prefix="shop", version=3) as backend:
        take(backend)

        assert any(key.startswith("shop:3:claims:lease:") for key in backend._cache.data)
        assert caches["default"].key_prefix == ""


def test_an_alias_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InvalidClaimsSetting, match=r"'nowhere'.*There is: 'default'"):
        CacheBackend(settings_of(cache="nowhere"))


def test_a_site_of_one_cache_is_told_what_clearing_it_does(memcached, backend_on):
    assert [problem.id for problem in backend_on(memcached).check_deployment()] == ["W110"]
    assert memcached.address in backend_on(memcached).describe()


def test_connections_are_shared_by_threads_and_closed_when_asked(new_memcached, backend_on):
    server = new_memcached()
    backend = backend_on(server)
    take(backend)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            assert pool.submit(CacheBackend(backend.settings).held, "job", "t1").result()

    assert server.stat("total_connections") - server.stat("rejected_connections") < 20
    before = server.stat("curr_connections")
    backend.close()
    wait_until(lambda: server.stat("curr_connections") < before)


def test_a_unix_socket_will_do(new_memcached, backend_on, client):
    # Not below pytest's own folder, into which the unprivileged server may not look.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    path = folder / "s"
    server = new_memcached("-s", str(path), "-a", "777", ready=path)
    backend = backend_on(client=client, LOCATION=f"unix:{path}")

    assert take(backend).fence > 0
    assert server.pid
