"""The backend over several Redis servers: the contract, and what happens while one of them is away."""

import collections
import contextlib
import re
import uuid

import pytest
from django.test import override_settings

from django_claims import claim, list_claims, request_stop
from django_claims.backends.base import AcquireRequest, ReleaseRequest, Renewal, RenewRequest, new_token
from django_claims.backends.sharded import ShardedBackend
from django_claims.checks import check_settings
from django_claims.cli import doctor
from django_claims.cli.findings import Level
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting, UnsupportedFeature
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from django_claims.test import BackendContract, wait_until
from tests.servers import RedisServer

BACKEND = "django_claims.backends.sharded.ShardedBackend"
LONG = 60_000


@pytest.fixture(scope="module")
def servers(redis_program, tmp_path_factory):
    started = [RedisServer(tmp_path_factory.mktemp("shard"), program=redis_program) for _ in range(2)]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def site(servers):
    """Have an alias over both servers, with keys of its own: `site(TTL=6)`. Gives the backend of this thread."""
    overrides = []
    prefix = f"test-{uuid.uuid4().hex}"

    def make(**claims):
        redis = "django_redis.cache.RedisCache"
        caches = {
            f"shard-{at}": {"BACKEND": redis, "LOCATION": server.url, "KEY_PREFIX": prefix}
            for at, server in enumerate(servers)
        }
        override = override_settings(
            CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}, **caches},
            CLAIMS={"default": {"BACKEND": BACKEND, "OPTIONS": {"caches": list(caches)}, **claims}},
        )
        override.enable()
        overrides.append(override)
        return claim_backends["default"]

    yield make
    for override in overrides:
        with contextlib.suppress(InvalidClaimsSetting):
            claim_backends["default"].close()
        override.disable()


class SetsOnOneServer(ShardedBackend):
    """The contract's sets of names have no common part, and are to be on one server; others are where they are."""

    def _place(self, name):
        return super()._place("set" if re.fullmatch(r"[a-z]|\w+-\d+", name) else name)


class TestContract(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, site):
        self.backend = SetsOnOneServer(site().settings)
        yield
        self.backend.close()


def name_on(backend, cache, start="job"):
    return next(name for at in range(1000) if backend._place(name := f"{start}-{at}") == cache)


def request_of(name, token=None):
    return AcquireRequest(name, token or new_token(), LONG, LONG // 3, Holder(host="web-1", pid=2))


def test_names_are_spread_evenly_and_one_server_more_takes_only_its_share(site):
    settings = site().settings
    two = ShardedBackend(settings)
    names = [f"tenant:{at}" for at in range(2000)]
    places = {name: two._place(name) for name in names}

    assert 850 < collections.Counter(places.values())["shard-0"] < 1150
    two._shards["shard-2"] = two._shards["shard-0"]
    moved = [name for name in names if two._place(name) != places[name]]
    assert 500 < len(moved) < 840
    assert {two._place(name) for name in moved} == {"shard-2"}


def test_several_names_need_a_common_part_to_be_claimed_together(site):
    backend = site()
    first, second = name_on(backend, "shard-0"), name_on(backend, "shard-1")

    with pytest.raises(UnsupportedFeature, match="common part"):
        backend.acquire([request_of(first), request_of(second)])

    assert backend.overview()[0] == []
    token = new_token()
    grants = backend.acquire([request_of(f"{{x}}:{name}", token) for name in (first, second)])
    assert isinstance(grants, list) and len({grant.fence for grant in grants}) == 1


def test_pages_and_stops_go_over_all_servers(site):
    backend = site()
    names = sorted(f"tenant:{at:02}" for at in range(20))
    assert {backend._place(name) for name in names} == {"shard-0", "shard-1"}
    with contextlib.ExitStack() as stack:
        holds = [stack.enter_context(claim(name)) for name in names]

        page = list_claims(page=2, per_page=8)
        for hold in holds:
            assert request_stop(hold.name, reason="enough") is not None

        assert [lease.name for lease in page.leases] == names[8:16]
        assert page.total == 20
        wait_until(lambda: all(hold.stop_requested for hold in holds), 10)


@pytest.mark.parametrize("how", ["frozen", "stopped"])
def test_while_one_server_is_away_those_on_the_other_hold_on(site, servers, how):
    backend = site(TTL=6)
    here, away = name_on(backend, "shard-0"), name_on(backend, "shard-1")
    kept, lost = claim(here).acquire(), claim(away).acquire()
    assert kept and lost
    if how == "frozen":
        servers[1].freeze()
    else:
        servers[1].stop()
    try:
        assert lost.lost_event.wait(15)
        began = clock()
        with pytest.raises(BackendUnavailable):
            claim(name_on(backend, "shard-1", "other")).acquire()

        wait_until(lambda: clock() - began > 4 or kept.lost, 10)
        assert kept.held
        with claim(name_on(backend, "shard-0", "other")) as other:
            assert other.held
    finally:
        if how == "frozen":
            servers[1].thaw()
        else:
            servers[1].start()
    assert kept.release()
    lost.release()


def test_a_renewal_answers_unknown_for_the_names_of_a_server_that_is_away(site, servers):
    backend = site(STORE_TIMEOUT=0.3)
    names = [name_on(backend, "shard-0"), name_on(backend, "shard-1")]
    runs = []
    for name in names:
        token = new_token()
        runs.append(RenewRequest(name, token, backend.acquire([request_of(name, token)])[0].fence, LONG))

    with servers[0].frozen():
        answers = backend.renew(runs)
        with pytest.raises(BackendUnavailable):
            backend.renew(runs[:1])
        with pytest.raises(BackendUnavailable):
            backend.release([ReleaseRequest(run.name, run.token) for run in runs])
        with pytest.raises(BackendUnavailable):
            backend.overview()
        backend.poll()

    assert [answer.outcome for answer in answers] == [Renewal.UNKNOWN, Renewal.RENEWED]
    assert backend.lease(names[1]) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "should be a list of aliases of CACHES, not None"),
        ({"caches": "shard-0"}, "should be a list"),
        ({"caches": []}, "should be a list"),
        ({"caches": ["shard-0", 1]}, "should be a list"),
        ({"caches": ["shard-0", "nowhere"]}, "names no usable alias of CACHES: 'nowhere'"),
        ({"caches": ["shard-0", "shard-0"]}, "names one Redis database twice"),
        ({"cache": "shard-0"}, "unknown key 'cache'"),
    ],
)
def test_options_that_cannot_be_are_refused_and_reported_by_the_checks(site, options, says):
    site()
    settings = AliasSettings(alias="default", backend=BACKEND, options=options)

    with pytest.raises(InvalidClaimsSetting) as caught:
        ShardedBackend(settings)
    with override_settings(CLAIMS={"default": {"BACKEND": BACKEND, "OPTIONS": options}}):
        found = check_settings(None)

    assert says in str(caught.value)
    assert [message.id for message in found] == ["django_claims.E020"]


def test_the_doctor_looks_at_each_server(site, servers):
    backend = site()

    found = list(doctor.examine(backend))

    where = [shard.describe() for shard in backend.parts]
    assert len(set(where)) == 2
    for each in where:
        mine = [finding for finding in found if finding.fact.startswith(f"{each}: ")]
        assert {"reach", "eviction", "persistence", "round", "latency"} <= {finding.id for finding in mine}
        assert "reach" not in [finding.id for finding in mine if finding.level is Level.FAIL]
    assert {finding.alias for finding in found} == {"default"}


def test_the_doctor_tells_of_the_server_that_is_away_and_looks_at_the_other(site, servers):
    backend = site(STORE_TIMEOUT=0.5)

    with servers[0].frozen():
        found = list(doctor.examine(backend))

    away = [finding.fact for finding in found if finding.id == "reach" and finding.level is Level.FAIL]
    assert len(away) == 1
    assert str(servers[0].port) in away[0]
    assert any(finding.id == "round" and str(servers[1].port) in finding.fact for finding in found)
