"""One test an id; messages name the value, hints the way out."""

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import override_settings

MEMORY = "django_claims.backends.memory.MemoryBackend"
REDIS = "django_claims.backends.redis.RedisBackend"
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
