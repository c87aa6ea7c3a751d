"""`claims doctor`: on stores that are well, and on some that are not."""

import json
from datetime import timedelta

import pytest

from django_claims import BackendUnavailable, claim_backends
from django_claims.backends.scripts import ScriptBackend
from django_claims.cli import doctor_checks, doctor_redis
from tests.helpers import faults
from tests.processes.conftest import Store

REDIS = "django_claims.backends.redis.RedisBackend"
IDS = ["reach", "scope", "version", "role", "eviction", "persistence", "scripts", "shared", "settings", "round"]
IDS += ["clock", "latency"]


@pytest.fixture
def examine(claims, settings):
    """Have the doctor look at a server: gives (exit code, findings by id)."""
    made = []

    def look(url, **cache):
        params = {"TTL": cache.pop("TTL", 180), "STORE_TIMEOUT": cache.pop("STORE_TIMEOUT", 5)}
        settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, **cache}}
        settings.CLAIMS = {"default": {"BACKEND": REDIS, **params}}
        made.append(claim_backends["default"])
        said = claims("doctor", "--json")
        found = [json.loads(line) for line in said.lines]
        assert all(set(finding) == {"alias", "id", "level", "fact", "advice"} for finding in found)
        return said.code, {finding["id"]: finding for finding in found}

    yield look
    for backend in made:
        assert isinstance(backend, ScriptBackend)
        backend.close()


def failures(found):
    return [finding["id"] for finding in found.values() if finding["level"] == "FAIL"]


def url_of_account(server, *rights):
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">secret", *rights)
    return server.url.replace("//", "//app:secret@")


# Redis.


def test_a_good_server_passes_every_check_and_keeps_nothing_but_a_word(examine, new_redis):
    server = new_redis(persistent=True)

    code, found = examine(server.url)

    assert code == 0
    assert list(found) == IDS
    assert {finding["level"] for finding in found.values()} == {"OK"}
    with server.client() as client:
        names = {name.decode() for name in client.scan_iter()}
        assert names <= {":1:{claims}:fence", "{claims}:fingerprints"}
        assert 0 < client.ttl("{claims}:fingerprints") <= 3600


def test_a_server_without_persistence_is_good_enough_but_says_so(examine, new_redis):
    code, found = examine(new_redis().url)

    assert code == 0
    assert found["persistence"]["level"] == "WARN"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_evicts_fails_also_where_config_is_barred(examine, new_redis, policy):
    server = new_redis("--maxmemory", "50mb", "--maxmemory-policy", policy, "--rename-command", "CONFIG", "")

    code, found = examine(server.url)

    assert code == 1
    assert failures(found) == ["eviction"]
    assert policy in found["eviction"]["fact"]
    assert "noeviction" in found["eviction"]["advice"]
    assert found["persistence"]["fact"].startswith("Cannot tell")


def test_a_replica_fails(examine, new_redis):
    primary = new_redis()
    replica = new_redis("--replicaof", "127.0.0.1", str(primary.port))

    code, found = examine(replica.url)

    assert code == 1
    assert failures(found) == ["role", "round"]
    assert str(primary.port) in found["role"]["fact"]


def test_an_account_without_script_rights_fails(examine, new_redis):
    url = url_of_account(new_redis(), "~*", "&*", "+@all", "-@scripting")

    code, found = examine(url)

    assert code == 1
    assert failures(found) == ["scripts", "round"]
    assert not any("secret" in json.dumps(finding) for finding in found.values())


def test_an_account_that_may_only_do_what_claims_need_is_not_blamed(examine, new_redis):
    url = url_of_account(new_redis(), "~:1:{claims}:*", "&*", "+@all", "-@admin", "-@dangerous")

    code, found = examine(url)

    assert (code, failures(found)) == (0, [])
    assert found["eviction"]["fact"].startswith("Cannot tell")


def test_a_frozen_server_is_unreachable(examine, new_redis):
    server = new_redis()

    with server.frozen():
        code, found = examine(server.url, STORE_TIMEOUT=0.3)

    assert code == 69
    assert list(found) == ["reach"]


def test_keys_of_others_in_the_database_are_told(examine, new_redis):
    server = new_redis()
    with server.client() as client:
        client.mset({f"session:{number}": "x" for number in range(20)})

    code, found = examine(server.url)

    assert code == 0
    assert found["shared"]["level"] == "WARN"
    assert "20 keys" in found["shared"]["fact"]


def test_settings_that_differ_from_those_of_an_earlier_look_are_told(examine, new_redis):
    server = new_redis()
    examine(server.url)

    _, same = examine(server.url)
    _, other_ttl = examine(server.url, TTL=60)
    code, other_keys = examine(server.url, KEY_PREFIX="release-2")

    assert same["settings"]["level"] == "OK"
    assert other_ttl["settings"]["level"] == "WARN"
    assert "ttl 180000 there, 60000 here" in other_ttl["settings"]["fact"]
    assert (code, other_keys["settings"]["level"]) == (0, "WARN")
    assert ":1:{claims}:index there, release-2:1:{claims}:index here" in other_keys["settings"]["fact"]


def test_settings_that_agree_with_those_of_another_machine_are_told(examine, new_redis, monkeypatch):
    server = new_redis()
    examine(server.url)
    with server.client() as client:
        client.hset(doctor_redis.FINGERPRINTS, "[broken", 1)
        client.hset(doctor_redis.FINGERPRINTS, json.dumps(["web-3", "other", "default", {"keys": "other"}]), 2**40)

    monkeypatch.setattr(doctor_redis.socket, "gethostname", lambda: "web-2")
    _, found = examine(server.url)

    assert found["settings"]["level"] == "OK"
    assert "Agree with those of all other machines" in found["settings"]["fact"]


def test_a_wrong_password_is_no_answer_and_is_not_shown(examine, new_redis):
    url = url_of_account(new_redis(), "+@all").replace("secret", "hush")

    code, found = examine(url)

    assert code == 69
    assert "hush" not in json.dumps(found)


@pytest.mark.parametrize(
    ("check", "said", "level", "fact"),
    [
        ("version", {"redis_version": "5.0.14"}, "WARN", "Redis 5.0.14 is older"),
        ("version", {"redis_version": "7.2.4", "valkey_version": "8.1.0"}, "OK", "Valkey 8.1.0"),
        ("role", {"role": "master", "connected_slaves": "2"}, "OK", "replicas: 2"),
        ("eviction", {}, "WARN", "Does not say"),
        ("eviction", {"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, "FAIL", "it is not now"),
        ("eviction", {"maxmemory_policy": "noeviction", "maxmemory": "100", "used_memory": "95"}, "WARN", "95% of"),
    ],
)
def test_what_other_servers_say(monkeypatch, check, said, level, fact):
    monkeypatch.setattr(doctor_redis, "info", lambda backend, section: said)

    found = getattr(doctor_redis, check)(None)

    assert found[0] == level
    assert fact in found[1]


# Any store.


def test_a_shared_store_is_put_to_a_whole_round(claims):
    said = claims("doctor")

    assert said.code == 0
    assert [line.split()[:2] for line in said.lines] == [
        ["default:", "memory"], ["OK", "reach"], ["OK", "scope"], ["OK", "round"], ["OK", "clock"], ["OK", "latency"]
    ]  # fmt: skip


def test_a_store_that_lets_two_in_fails(claims, in_memory):
    in_memory("tests.cli.stores.LeakyBackend")

    said = claims("doctor")

    assert said.code == 1
    assert "FAIL  round" in said.out
    assert "a second holder was let in" in said.out


def test_a_round_that_breaks_off_leaves_nothing(claims):
    faults.on("renew", lambda real, requests: [answer._replace(flag=None) for answer in real(requests)])

    said = claims("doctor")

    assert "a stop did not reach its holder" in said.out
    assert claims("list").out == "No claim is held.\n"


def test_a_slow_store_is_told(claims, in_memory, monkeypatch):
    in_memory(STORE_TIMEOUT=0.1)
    monkeypatch.setattr(doctor_checks, "TRIPS", 3)
    faults.delay("flag", 0.03)
    assert "WARN  latency" in claims("doctor").out

    faults.delay("flag", 0.06)
    said = claims("doctor")

    assert said.code == 1
    assert "FAIL  latency" in said.out


def test_a_clock_that_is_off_is_told(claims, monkeypatch):
    real = doctor_checks.wall
    monkeypatch.setattr(doctor_checks, "wall", lambda: real() - timedelta(minutes=5))

    said = claims("doctor")

    assert said.code == 0
    assert "Its clock is 5 min ahead of this machine's." in said.out


def test_a_store_that_goes_in_the_middle_is_unreachable(claims):
    faults.fail("acquire")

    said = claims("doctor", json=True)

    assert said.code == 69
    assert json.loads(said.lines[-1])["id"] == "reach"


def test_each_alias_is_looked_at(claims, settings):
    settings.CLAIMS = {
        "default": {"BACKEND": "tests.helpers.FlakyBackend"},
        "broken": {"BACKEND": "no.such.Backend"},
        "good": {"BACKEND": "tests.cli.stores.SharedBackend"},
    }
    faults.on("flag", _down_once)

    said = claims("doctor", "--json")
    levels = {(found["alias"], found["id"]): found["level"] for found in map(json.loads, said.lines)}

    assert said.code == 69
    assert levels["default", "reach"] == "FAIL"
    assert levels["broken", "config"] == "FAIL"
    assert levels["good", "round"] == "OK"


def _down_once(real, *args):
    faults.off("flag")
    raise BackendUnavailable("default", "refused")


def test_claims_in_the_memory_of_one_process_are_told(claims, in_memory, settings):
    in_memory("django_claims.backends.memory.MemoryBackend")
    assert "WARN  scope" in claims("doctor").out

    del settings.CLAIMS
    claim_backends.reset()  # of a setting that goes nobody is told
    said = claims("doctor")

    assert said.code == 1
    assert "FAIL  scope" in said.out


@pytest.mark.parametrize(
    ("broken", "fact"),
    [
        ({}, "should be a dict of aliases"),
        ("x", "should be a dict"),
        (5, "should be a dict"),
        ({"default": {}}, "BACKEND"),
    ],
)
def test_settings_that_cannot_be_used_fail(claims, settings, broken, fact):
    settings.CLAIMS = broken

    said = claims("doctor")

    assert said.code == 1
    assert said.out.startswith("FAIL  config")
    assert fact in said.out


# From the shell.


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
def test_from_the_shell_on_each_store(request, shell, tmp_path, kind):
    if kind == "redis":
        store, _ = request.getfixturevalue("own_redis")
    else:
        store = Store("sqlite", {"JOBS_STORE": "sqlite", "JOBS_DIR": str(tmp_path)})

    done = shell(store, "doctor", "--no-color")

    assert done.code == 0
    assert "OK    round" in done.out


def test_from_the_shell_an_unreachable_store_is_69(shell, own_redis):
    redis, server = own_redis
    server.stop()

    done = shell(redis, "doctor")

    assert done.code == 69
    assert "FAIL  reach" in done.out
    assert done.err == ""
