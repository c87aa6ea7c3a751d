"""One test an id; messages name the value, hints the way out."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

import django_claims
from django_claims import conf

MEMORY = "django_claims.backends.memory.MemoryBackend"
REDIS = "django_claims.backends.redis.RedisBackend"
CACHE = "django_claims.backends.cache.CacheBackend"
DATABASE = "django_claims.backends.database.DatabaseBackend"
DJANGO_REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}


def found(*, deploy=False):
    messages = run_checks(tags=["claims"], include_deployment_checks=deploy)
    return {message.id.removeprefix("django_claims."): message for message in messages}


def alias(**params):
    return {"default": {"BACKEND": MEMORY, **params}}


def test_good_settings_are_passed_in_silence():
    with override_settings(CLAIMS=alias()):
        assert found() == {}


def test_claims_that_are_off_are_passed_in_silence():
    with override_settings(CLAIMS=None):
        assert found(deploy=True) == {}


@pytest.mark.parametrize(
    "claims, problem, words",
    [
        ([], "E001", "not []"),
        ({}, "E001", "not {}"),
        ({"other": {"BACKEND": MEMORY}}, "E001", "'default'"),
        ({"default": "redis"}, "E001", "not 'redis'"),
        (alias(TTTL=3), "E002", "did you mean 'TTL'?"),
        ({"default": {}}, "E003", "not None"),
        (alias(TTL="30"), "E004", "not '30'"),
        (alias(TTL=True), "E004", "not True"),
        (alias(HEARTBEAT=None), "E004", "not None"),
        (alias(TTL=float("nan")), "E004", "not nan"),
        (alias(STORE_TIMEOUT=0), "E004", "not 0"),
        (alias(TTL=10, HEARTBEAT=10), "E005", "heartbeat (10.0 s)"),
        (alias(TTL=10, HEARTBEAT=30), "E005", "heartbeat (30.0 s)"),
        (alias(TTL=10, RENEW_DEADLINE=10), "E005", "renew deadline (10.0 s)"),
        (alias(FOLLOW_DEAD="yes"), "E006", "not 'yes'"),
        (alias(OPTIONS=[]), "E007", "not []"),
        (alias(OPTIONS={"clok": None}), "E020", "did you mean 'clock'?"),
        (alias(BACKEND="nowhere.Backend"), "E020", "nowhere.Backend"),
        (alias(BACKEND="django.db.models.Model"), "E020", "not a claim backend"),
        (alias(BACKEND=REDIS, OPTIONS={"cache": "nowhere"}), "E020", "'nowhere'"),
        (alias(BACKEND=REDIS), "E020", "LocMemCache"),
        (alias(BACKEND=DATABASE, OPTIONS={"database": "nowhere"}), "E020", "'nowhere'"),
    ],
)
def test_a_misuse_is_named(claims, problem, words):
    with override_settings(CLAIMS=claims):
        messages = found()

        assert list(messages) == [problem]
        assert words in messages[problem].msg


@pytest.mark.parametrize(
    "name, value, problem",
    [
        ("CLAIMS_EXIT_CODE", 256, "E010"),
        ("CLAIMS_EXIT_CODE", True, "E010"),
        ("CLAIMS_GRACE", "5", "E011"),
        ("CLAIMS_GRACE", -1, "E011"),
        ("CLAIMS_ADMIN_READ_ONLY", "no", "E012"),
        ("CLAIMS_EXIT_COD", 3, "W013"),
    ],
)
def test_a_flat_setting_that_is_wrong_is_named(name, value, problem):
    with override_settings(**{name: value}):
        messages = found()

        assert list(messages) == [problem]
        assert name in messages[problem].msg


@override_settings(INSTALLED_APPS=["django_claims"])
def test_a_guess_that_excludes_nobody_is_a_warning_and_an_error_when_deployed(settings):
    del settings.CLAIMS

    assert list(found()) == ["W101"]
    assert "cannot shut out other processes" in found()["W101"].msg
    assert "MemoryBackend in CLAIMS" in found()["W101"].hint
    assert "E101" in found(deploy=True)


def test_memory_that_was_asked_for_is_an_error_only_when_deployed():
    with override_settings(CLAIMS=alias()):
        assert list(found(deploy=True)) == ["E101"]


def test_a_cache_that_is_shared_with_others_is_a_warning_when_deployed():
    caches = {"default": DJANGO_REDIS, "claims": {**DJANGO_REDIS, "LOCATION": "redis://127.0.0.1:1/5"}}
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=REDIS)):
        assert found() == {}
        assert list(found(deploy=True)) == ["W110"]
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=REDIS, OPTIONS={"cache": "claims"})):
        assert found(deploy=True) == {}


def test_a_cache_that_says_yes_to_everybody_is_refused():
    caches = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=REDIS)):
        assert "DummyCache" in found()["E020"].msg


def test_the_check_command_prints_them():
    with override_settings(CLAIMS=alias(TTL="30")), pytest.raises(SystemCheckError, match="E004"):
        call_command("check")


# Settings that go wrong together.


DJANGO_REDIS_5 = {**DJANGO_REDIS, "LOCATION": "redis://127.0.0.1:1/5"}
LOCMEM = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
ON_CLAIMS = alias(BACKEND=REDIS, OPTIONS={"cache": "claims"})


@pytest.mark.parametrize(
    ("code", "words"), [(1, "command that fails"), (2, "mistyped"), (69, "no answer"), (70, "lost"), (143, "signal")]
)
def test_an_exit_code_that_means_something_else_is_told(code, words):
    with override_settings(CLAIMS=alias(), CLAIMS_EXIT_CODE=code):
        messages = found()

        assert list(messages) == ["W014"]
        assert words in messages["W014"].msg


@pytest.mark.parametrize("code", [0, 3, 75, 127])
def test_an_exit_code_that_means_nothing_else_is_passed(code):
    with override_settings(CLAIMS=alias(), CLAIMS_EXIT_CODE=code):
        assert found() == {}


def test_a_store_timeout_that_the_heartbeat_cuts_is_told():
    with override_settings(CLAIMS=alias(TTL=30, STORE_TIMEOUT=30)):
        messages = found()

        assert list(messages) == ["W015"]
        assert "30 s, more than half the heartbeat: 5 s is used" in messages["W015"].msg
    with override_settings(CLAIMS=alias(TTL=30, STORE_TIMEOUT=timedelta(seconds=5))):
        assert found() == {}


@pytest.mark.parametrize(("ttl", "ids"), [(7200, ["W016"]), (timedelta(hours=2), ["W016"]), (3600, [])])
def test_a_ttl_of_hours_is_told(ttl, ids):
    with override_settings(CLAIMS=alias(TTL=ttl)):
        assert list(found()) == ids


@pytest.mark.parametrize("key", ["KEY_PREFIX", "VERSION", "KEY_FUNCTION"])
def test_a_key_of_caches_that_is_ignored_in_options_is_told(key):
    misplaced = {**DJANGO_REDIS_5, "OPTIONS": {key: "shop"}}
    with override_settings(CACHES={"default": LOCMEM, "claims": misplaced}, CLAIMS=ON_CLAIMS):
        messages = found()

        assert list(messages) == ["W017"]
        assert f"has {key}, which is ignored" in messages["W017"].msg
    placed = {**DJANGO_REDIS_5, "KEY_PREFIX": "shop"}
    with override_settings(CACHES={"default": LOCMEM, "claims": placed}, CLAIMS=ON_CLAIMS):
        assert found() == {}


@pytest.mark.parametrize(
    ("mine", "other", "is_same"),
    [
        ("redis://127.0.0.1:6379/5", "redis://127.0.0.1/5", True),
        ("redis://127.0.0.1/0", "redis://user:secret@127.0.0.1", True),
        ("redis://127.0.0.1/5", "redis://127.0.0.1?db=5", True),
        ("redis://127.0.0.1/5", ["redis://127.0.0.1/4", "redis://127.0.0.1/5"], True),
        ("unix:///run/redis?db=5", "unix:///run/redis?db=5", True),
        ("unix:///run/redis?db=5", "unix:///run/redis", False),
        ("redis://127.0.0.1/5", "redis://127.0.0.1/4", False),
        ("redis://127.0.0.1/5", "redis://127.0.0.2/5", False),
        ("redis://127.0.0.1:1/5", "redis://127.0.0.1:2/5", False),
    ],
)
def test_another_cache_in_the_same_database_is_a_warning_when_deployed(mine, other, is_same):
    """The clear() of either empties it, whatever their KEY_PREFIX."""
    caches = {
        "default": {**DJANGO_REDIS, "LOCATION": other, "KEY_PREFIX": "other"},
        "claims": {**DJANGO_REDIS, "LOCATION": mine},
    }
    with override_settings(CACHES=caches, CLAIMS=ON_CLAIMS):
        assert found() == {}
        messages = found(deploy=True)

        assert list(messages) == (["W111"] if is_same else [])
        assert "secret" not in str(messages)
        if is_same:
            assert "'default'" in messages["W111"].msg


@pytest.mark.parametrize(
    "uses",
    [
        {"SESSION_ENGINE": "django.contrib.sessions.backends.cache", "SESSION_CACHE_ALIAS": "claims"},
        {"SESSION_ENGINE": "django.contrib.sessions.backends.cached_db", "SESSION_CACHE_ALIAS": "claims"},
        {"MIDDLEWARE": ["django.middleware.cache.UpdateCacheMiddleware"], "CACHE_MIDDLEWARE_ALIAS": "claims"},
    ],
)
def test_sessions_and_pages_in_the_cache_of_claims_are_a_warning_when_deployed(uses):
    with override_settings(CACHES={"default": LOCMEM, "claims": DJANGO_REDIS_5}, CLAIMS=ON_CLAIMS, **uses):
        assert found() == {}
        assert list(found(deploy=True)) == ["W112"]
    elsewhere = {key: "default" if key.endswith("ALIAS") else value for key, value in uses.items()}
    with override_settings(CACHES={"default": LOCMEM, "claims": DJANGO_REDIS_5}, CLAIMS=ON_CLAIMS, **elsewhere):
        assert found(deploy=True) == {}


def test_a_ttl_for_tests_is_a_warning_when_deployed():
    caches = {"default": LOCMEM, "claims": DJANGO_REDIS_5}
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=REDIS, TTL=0.5, OPTIONS={"cache": "claims"})):
        assert found() == {}
        assert list(found(deploy=True)) == ["W113"]
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=REDIS, TTL=1, OPTIONS={"cache": "claims"})):
        assert found(deploy=True) == {}


def test_checks_are_silenced_as_djangos_are():
    with override_settings(CLAIMS=alias(), CLAIMS_EXIT_CODE=1, SILENCED_SYSTEM_CHECKS=["django_claims.W014"]):
        assert found()["W014"].is_silenced()
        call_command("check", "--tag", "claims", "--fail-level", "WARNING")


@pytest.mark.parametrize(
    "cache, words",
    [
        ({"BACKEND": "django.core.cache.backends.filebased.FileBasedCache", "LOCATION": "/x"}, "two in at once"),
        ({"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "x"}, "throws live ones away"),
        (LOCMEM, "of one process"),
        ({"BACKEND": "django.core.cache.backends.dummy.DummyCache"}, "everybody would hold everything"),
    ],
)
def test_a_cache_that_cannot_hold_leases_is_refused_with_what_to_use(cache, words):
    with override_settings(CACHES={"default": cache}, CLAIMS=alias(BACKEND=CACHE)):
        messages = found()

        assert list(messages) == ["E020"]
        assert words in messages["E020"].msg
        assert "Use 'django_claims.backends" in messages["E020"].msg or "use 'django_claims" in messages["E020"].msg


def test_a_sharded_client_is_refused():
    sharded = {**DJANGO_REDIS_5, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"}}
    with override_settings(CACHES={"default": LOCMEM, "claims": sharded}, CLAIMS=ON_CLAIMS):
        assert "gives no single Redis connection" in found()["E020"].msg


# The page.


def test_the_page_has_an_anchor_for_each_check_and_none_for_others():
    package = Path(django_claims.__file__).parent
    ids = {
        match
        for path in package.rglob("*.py")
        for match in re.findall(r"[\"'](?:django_claims\.)?([EW]\d{3})[\"']", path.read_text())
    }
    page = (package.parent / "docs" / "checks.md").read_text()

    assert set(re.findall(r"^\| \[[EW]\d{3}\]\(#([ew]\d{3})\) \|", page, re.MULTILINE)) == {id_.lower() for id_ in ids}
    assert set(re.findall(r"^### ([EW]\d{3})", page, re.MULTILINE)) == ids


def test_a_hint_names_the_place_on_the_page():
    with override_settings(CLAIMS=alias(TTL="30")):
        assert found()["E004"].hint == "Leave it out for the default. See docs/checks.md#e004."


@pytest.mark.parametrize(
    ("settings", "id_"),
    [({"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}}, "E101"), (7, "E001")],
)
def test_lines_of_a_hint_that_are_to_be_pasted_have_nothing_behind_them(settings, id_):
    with override_settings(CLAIMS=settings):
        hint = found(deploy=True)[id_].hint
        code, _, last = hint.rpartition("\n")

        assert conf.HOW_TO_SET in code
        assert last == f"See docs/checks.md#{id_.lower()}."


@pytest.mark.parametrize(("other", "is_same"), [("10.0.0.5:11211", True), ("10.0.0.6:11211", False)])
def test_another_cache_on_the_memcached_of_claims_is_a_warning_when_deployed(other, is_same):
    memcached = "django.core.cache.backends.memcached.PyMemcacheCache"
    caches = {
        "default": {"BACKEND": memcached, "LOCATION": other},
        "claims": {"BACKEND": memcached, "LOCATION": ["10.0.0.5:11211", "10.0.0.7:11211"]},
    }
    with override_settings(CACHES=caches, CLAIMS=alias(BACKEND=CACHE, OPTIONS={"cache": "claims"})):
        assert list(found(deploy=True)) == (["W111"] if is_same else [])
