"""
Any sequence of verbs, against a reference of a few lines: MemoryBackend on a clock that is moved, and Redis.

Also names, texts and numbers that nobody would think of.
"""

import contextlib
import json
import math
import uuid

from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from django_claims.backends import memory
from django_claims.backends.base import (
    AcquireRequest,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
)
from django_claims.backends.memory import MemoryBackend
from django_claims.backends.redis import RedisBackend
from django_claims.clock import milliseconds
from django_claims.conf import AliasSettings
from django_claims.exceptions import InvalidClaim
from django_claims.holders import Holder, this_holder
from django_claims.leases import Progress
from django_claims.names import checked, digest, with_key

NAMES = st.sampled_from(["a", "a", "a", "a", "b", "b", "a b", "ä", "a\u200b", "lease:a", "{a}", "🦆" * 30])
MOST = settings(max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
TTLS = st.integers(20_000, 60_000)  # on Redis no lease ends before its sequence does


class Verbs(RuleBasedStateMachine):
    """The reference: by name, who has it, with which fence, until when; and who was asked to stop."""

    tokens = Bundle("tokens")

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.prefix = uuid.uuid4().hex
        self.leases = {}  # name: (token, fence, ends)
        self.last = {}  # name: fence
        self.kept = set()
        self.asked = {}  # name: fence
        self.made = 0
        self.backend = self.make()

    def make(self):
        raise NotImplementedError

    def name(self, name):
        return f"{self.prefix}{name}"

    def live(self, name):
        lease = self.leases.get(name)
        return lease if lease is not None and lease[2] > self.now else None

    @rule(target=tokens, name=NAMES, ttl=TTLS)
    def acquire(self, name, ttl):
        self.made += 1
        token = f"token-{self.made:016d}"
        answer = self.backend.acquire([AcquireRequest(self.name(name), token, ttl, ttl // 3, this_holder())])
        if name in self.kept:
            assert isinstance(answer, Refusal) and answer.flag.keep
            return multiple()
        if lease := self.live(name):
            assert isinstance(answer, Refusal)
            assert answer.lease.fence == lease[1]
            return multiple()
        (grant,) = answer
        assert grant.fence > self.last.get(name, 0)
        self.last[name] = grant.fence
        self.leases[name] = (token, grant.fence, self.now + ttl / 1000)
        return (name, token, grant.fence)

    @rule(run=tokens, ttl=TTLS)
    def acquire_again_by_the_same_token(self, run, ttl):
        name, token, fence = run
        lease = self.live(name)
        if name in self.kept or lease is None or lease[0] != token:
            return  # it would be an acquire as any other
        (grant,) = self.backend.acquire([AcquireRequest(self.name(name), token, ttl, ttl // 3, this_holder())])
        assert grant.fence == fence
        self.leases[name] = (token, fence, self.now + ttl / 1000)

    @rule(run=tokens, ttl=TTLS)
    def renew(self, run, ttl):
        name, token, fence = run
        (answer,) = self.backend.renew([RenewRequest(self.name(name), token, fence, ttl)])
        lease = self.live(name)
        if lease is not None and lease[0] == token:
            assert answer.outcome is Renewal.RENEWED
            self.leases[name] = (token, fence, self.now + ttl / 1000)
            assert (answer.flag is not None) == (name in self.kept or self.asked.get(name) == fence)
        else:
            assert answer.outcome in (Renewal.TAKEN if lease else Renewal.GONE, Renewal.FORCED)

    @rule(run=consumes(tokens))
    def release(self, run):
        name, token, _ = run
        (answer,) = self.backend.release([ReleaseRequest(self.name(name), token)])
        lease = self.live(name)
        if lease is not None and lease[0] == token:
            assert answer is Released.RELEASED
            del self.leases[name]
        else:
            assert answer is (Released.NOT_OWNER if lease else Released.GONE)

    @rule(name=NAMES, off=st.integers(0, 1))
    def force(self, name, off):
        lease = self.live(name)
        fence = (lease[1] if lease else self.last.get(name, 7)) + off
        done = self.backend.force_release(self.name(name), fence)
        assert done == (lease is not None and not off)
        if done:
            del self.leases[name]

    @rule(name=NAMES, off=st.integers(0, 1))
    def ask_to_stop(self, name, off):
        lease = self.live(name)
        fence = (lease[1] if lease else self.last.get(name, 7)) + off
        flag = self.backend.set_flag(self.name(name), keep=False, fence=fence, reason="", by="", ttl_ms=None)
        assert (flag is not None) == (lease is not None and not off)
        if flag is not None and name not in self.kept:
            self.asked[name] = fence

    @rule(name=NAMES)
    def keep_stopped(self, name):
        self.backend.set_flag(self.name(name), keep=True, fence=None, reason="", by="", ttl_ms=None)
        self.kept.add(name)
        self.asked.pop(name, None)

    @rule(name=NAMES)
    def clear(self, name):
        self.backend.clear_flag(self.name(name))
        self.kept.discard(name)
        self.asked.pop(name, None)

    @invariant()
    def the_store_says_what_the_reference_says(self):
        for name in {*self.leases, *self.kept}:
            lease, known = self.backend.lease(self.name(name)), self.live(name)
            assert (lease.fence if lease else None) == (known[1] if known else None)
        listed = [lease.name for lease in self.backend.leases(match=self.prefix + "*", page=1, per_page=100)]
        assert listed == sorted(self.name(name) for name in self.leases if self.live(name))


class OnMemory(Verbs):
    def make(self):
        options = {"clock": lambda: self.now}
        return MemoryBackend(AliasSettings(alias="properties", backend="", options=options))

    @rule(seconds=st.sampled_from([0.001, 1, 20, 30, 61]))
    def time_goes_on(self, seconds):
        self.now += seconds

    def teardown(self):
        memory.forget("properties")


OnMemory.TestCase.settings = MOST
TestVerbsOnMemory = OnMemory.TestCase


def test_verbs_on_redis(redis_server):
    """The same, but for the time, which goes on by itself."""
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis_server.url, "KEY_PREFIX": uuid.uuid4().hex}
    with override_settings(CACHES={"default": cache}), contextlib.ExitStack() as stack:

        class OnRedis(Verbs):
            def make(self):
                backend = RedisBackend(AliasSettings(alias="default", backend=""))
                stack.callback(backend.close)
                return backend

        run_state_machine_as_test(OnRedis, settings=settings(MOST, max_examples=40))


@given(st.text())
@settings(deadline=None)
def test_a_name_is_taken_as_it_is_or_refused(text):
    try:
        assert checked(text) == text
    except InvalidClaim as error:
        assert isinstance(error, ValueError)
        assert not 1 <= len(text) <= 500 or text != text.strip() or not text.isprintable() or max(text) >= "\ud800"


KEYS = st.recursive(
    st.one_of(st.integers(), st.text(max_size=20), st.booleans(), st.uuids(), st.dates(), st.decimals(allow_nan=False)),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)


@given(KEYS, KEYS)
@settings(deadline=None)
def test_different_keys_are_different_names(one, other):
    same = repr(one) == repr(other)
    assert (with_key("job", one) == with_key("job", other)) == same or one == other


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_names_have_different_digests(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@given(st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none()))
def test_a_duration_is_whole_milliseconds_or_refused(value):
    try:
        whole = milliseconds(value, "ttl")
    except InvalidClaim:
        good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        assert not (good and 0.001 <= value <= 10**10)
    else:
        assert isinstance(whole, int) and whole >= 1
        assert abs(whole - value * 1000) <= 0.5 + abs(value) * 1e-9


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@given(st.one_of(st.text(), JSON.map(lambda value: json.dumps(value))))
@settings(deadline=None, suppress_health_check=list(HealthCheck))
def test_what_a_store_holds_is_read_or_refused_and_nothing_else(text):
    for read in (Progress.unpack, Holder.unpack):
        with contextlib.suppress(ValueError):
            read(text)


@given(
    st.builds(
        Holder, host=st.text(), pid=st.integers(0, 2**31), label=st.text(), node=st.text(), task_id=st.text(),
    )
)  # fmt: skip
def test_a_holder_survives_its_packing(holder):
    assert "\n" not in holder.packed
    assert Holder.unpack(holder.packed) == holder
