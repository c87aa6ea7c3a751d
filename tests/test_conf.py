"""Settings: read late, judged once, and told with the way out."""

import subprocess
import sys
import textwrap
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.test import override_settings

from django_claims import InvalidClaimsSetting, claim, claim_backends, conf
from django_claims.backends.memory import MemoryBackend
from tests.helpers import FLAKY, MEMORY, FlakyBackend, claims_settings, faults, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

REDIS_CACHE = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


def problems(settings, claims):
    settings.CLAIMS = claims
    return conf.problems()


def only(settings, claims):
    found = problems(settings, claims)
    assert len(found) == 1, found
    return found[0]


# One alias.


def test_defaults_follow_from_the_name_of_a_backend(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY}}

    found = conf.alias_settings("default")

    assert (found.ttl_ms, found.heartbeat_ms, found.renew_deadline_ms) == (180_000, 60_000, 120_000)
    assert found.store_timeout == 5.0
    assert found.follow_dead is True
    assert found.options == {}
    assert found.implicit is False
    assert conf.problems() == []


def test_heartbeat_and_renew_deadline_follow_the_ttl(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "TTL": timedelta(seconds=30)}}

    found = conf.alias_settings("default")

    assert (found.ttl_ms, found.heartbeat_ms, found.renew_deadline_ms) == (30_000, 10_000, 20_000)


def test_all_durations_may_be_given(settings):
    settings.CLAIMS = {
        "default": {
            "BACKEND": MEMORY,
            "TTL": 10.5,
            "HEARTBEAT": 2,
            "RENEW_DEADLINE": timedelta(seconds=8),
            "STORE_TIMEOUT": 0.5,
        }
    }

    found = conf.alias_settings("default")

    assert (found.ttl_ms, found.heartbeat_ms, found.renew_deadline_ms) == (10_500, 2_000, 8_000)
    assert found.store_timeout == 0.5


def test_a_verb_may_take_half_the_heartbeat_at_most_and_a_tenth_of_a_second_at_least(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "TTL": 6}, "quick": {"BACKEND": MEMORY, "TTL": 0.3}}

    assert conf.alias_settings("default").store_timeout == 1.0
    assert conf.alias_settings("quick").store_timeout == 0.1


def test_the_users_dict_is_left_as_it_was(settings):
    given = {"default": {"BACKEND": MEMORY, "OPTIONS": {}}}
    settings.CLAIMS = given

    assert claim("x").available()

    assert given == {"default": {"BACKEND": MEMORY, "OPTIONS": {}}}


# What is wrong, one test per id.


@pytest.mark.parametrize("claims", [5, "redis", ["default"], {}, True])
def test_e001_claims_is_a_dict_of_aliases(settings, claims):
    problem = only(settings, claims)

    assert problem.id == "E001"
    assert problem.is_error
    assert repr(claims) in problem.message
    assert "BACKEND" in problem.hint


def test_e001_there_is_an_alias_default(settings):
    problem = only(settings, {"other": {"BACKEND": MEMORY}})

    assert problem.id == "E001"
    assert "'default'" in problem.message


@pytest.mark.parametrize("params", [None, "path", 5, [MEMORY]])
def test_e001_an_alias_is_a_dict(settings, params):
    problem = only(settings, {"default": params})

    assert problem.id == "E001"
    assert repr(params) in problem.message
    assert problem.alias == "default"


def test_e001_an_alias_is_text(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY}, 5: {"BACKEND": MEMORY}})

    assert problem.id == "E001"
    assert "CLAIMS[5]" in problem.message


@pytest.mark.parametrize(
    "key, meant",
    [
        ("TLL", "TTL"),
        ("HEARTBEATS", "HEARTBEAT"),
        ("OPTION", "OPTIONS"),
        ("RENEWAL_DEADLINE", "RENEW_DEADLINE"),
        ("BACKENDS", "BACKEND"),
    ],
)
def test_e002_an_unknown_key_is_named_with_what_was_meant(settings, key, meant):
    problem = only(settings, {"default": {"BACKEND": MEMORY, key: 5}})

    assert problem.id == "E002"
    assert f"{key!r}; did you mean {meant!r}?" in problem.message


def test_e002_a_key_in_small_letters_is_named_with_what_was_meant(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "ttl": 5}})

    assert "did you mean 'TTL'?" in problem.message


def test_e002_an_unknown_key_that_is_like_none_gets_the_list(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "zzz": 5}})

    assert "did you mean" not in problem.message
    assert "STORE_TIMEOUT" in problem.hint


@pytest.mark.parametrize("params", [{}, {"BACKEND": None}, {"BACKEND": ""}, {"BACKEND": MemoryBackend}])
def test_e003_a_backend_is_a_dotted_path(settings, params):
    problem = only(settings, {"default": params})

    assert problem.id == "E003"
    assert "BACKEND" in problem.message


@pytest.mark.parametrize("key", ["TTL", "HEARTBEAT", "RENEW_DEADLINE", "STORE_TIMEOUT"])
@pytest.mark.parametrize("value", [None, "30", True, 0, -1, float("nan"), timedelta(0), [5]], ids=repr)
def test_e004_a_duration_is_a_number_of_seconds(settings, key, value):
    problem = only(settings, {"default": {"BACKEND": MEMORY, key: value}})

    assert problem.id == "E004"
    assert f"['{key}']" in problem.message
    assert repr(value) in problem.message
    assert "Leave it out" in problem.hint


@pytest.mark.parametrize(
    "value", [10**400, 1e300, float("inf")], ids=["int beyond floats", "float beyond dates", "infinity"]
)
def test_e004_a_duration_beyond_all_stores_is_a_problem_and_no_crash(settings, value):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "TTL": value}})

    assert problem.id == "E004"


def test_e004_a_store_timeout_is_never_under_a_tenth_of_a_second(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "STORE_TIMEOUT": 0.05}})

    assert problem.id == "E004"
    assert "at least 0.1 s" in problem.message


@pytest.mark.parametrize(
    "durations",
    [
        {"TTL": 10, "HEARTBEAT": 30},
        {"TTL": 10, "HEARTBEAT": 10},
        {"TTL": 10, "HEARTBEAT": 10, "RENEW_DEADLINE": 10},
        {"TTL": 10, "RENEW_DEADLINE": 10},
        {"TTL": 10, "RENEW_DEADLINE": 11},
        {"TTL": 10, "HEARTBEAT": 4, "RENEW_DEADLINE": 7},
        {"HEARTBEAT": 90},
    ],
    ids=str,
)
def test_e005_twice_the_heartbeat_fits_the_renew_deadline_and_that_the_ttl(settings, durations):
    problem = only(settings, {"default": {"BACKEND": MEMORY, **durations}})

    assert problem.id == "E005"
    assert "follow the TTL" in problem.hint


def test_e006_follow_dead_is_true_or_false(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "FOLLOW_DEAD": "no"}})

    assert problem.id == "E006"
    assert "'no'" in problem.message


def test_e007_options_are_a_dict(settings):
    problem = only(settings, {"default": {"BACKEND": MEMORY, "OPTIONS": ["x"]}})

    assert problem.id == "E007"


@pytest.mark.parametrize("value", [-1, 256, "75", 1.5, True, None])
def test_e010_the_exit_code_is_a_status(settings, value):
    settings.CLAIMS_EXIT_CODE = value

    (problem,) = conf.problems()

    assert problem.id == "E010"
    assert repr(value) in problem.message
    with pytest.raises(InvalidClaimsSetting, match="CLAIMS_EXIT_CODE"):
        conf.exit_code()


@pytest.mark.parametrize("value", [-1, "5", True, None, float("nan")])
def test_e011_the_grace_is_a_number_of_seconds(settings, value):
    settings.CLAIMS_GRACE = value

    (problem,) = conf.problems()

    assert problem.id == "E011"
    assert repr(value) in problem.message
    with pytest.raises(InvalidClaimsSetting, match="CLAIMS_GRACE"):
        conf.grace()


@pytest.mark.parametrize("value", [1, "yes", None])
def test_e012_read_only_is_true_or_false(settings, value):
    settings.CLAIMS_ADMIN_READ_ONLY = value

    (problem,) = conf.problems()

    assert problem.id == "E012"
    with pytest.raises(InvalidClaimsSetting, match="CLAIMS_ADMIN_READ_ONLY"):
        conf.admin_read_only()


def test_the_flat_settings_have_defaults_and_take_values(settings):
    assert (conf.exit_code(), conf.grace(), conf.admin_read_only()) == (75, 5.0, False)

    settings.CLAIMS_EXIT_CODE, settings.CLAIMS_GRACE, settings.CLAIMS_ADMIN_READ_ONLY = 3, timedelta(seconds=2), True

    assert (conf.exit_code(), conf.grace(), conf.admin_read_only()) == (3, 2.0, True)


def test_a_broken_flat_setting_breaks_no_other(settings):
    settings.CLAIMS_EXIT_CODE = "x"

    assert conf.grace() == 5.0
    assert claim("x").available()


def test_all_problems_are_found_at_once_and_carry_their_alias(settings):
    found = problems(settings, {"default": {"BACKEND": MEMORY, "TLL": 1}, "other": {"BACKEND": MEMORY, "TTL": "5"}})

    assert [(p.id, p.alias) for p in found] == [("E002", "default"), ("E004", "other")]


def test_a_broken_alias_breaks_no_other(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY}, "other": {"BACKEND": MEMORY, "TTL": "5"}}

    assert claim("x").available()
    with pytest.raises(InvalidClaimsSetting, match=r"CLAIMS\['other'\]\['TTL'\]"):
        claim("x", using="other").available()


# What the handler says.


def test_an_unknown_alias_is_told_with_what_was_meant_and_what_there_is():
    with pytest.raises(
        InvalidClaimsSetting, match=r"no alias 'defualt'; did you mean 'default'\? \(there is: 'default'\)"
    ):
        claim("x", using="defualt").acquire()


@pytest.mark.parametrize(
    "path", ["no.such.Backend", "tests.helpers.NoBackend", "nodots", "django_claims.backends.memory.Nothing"]
)
def test_a_backend_that_cannot_be_imported_is_told_with_those_there_are(settings, path):
    settings.CLAIMS = {"default": {"BACKEND": path}}

    with pytest.raises(InvalidClaimsSetting, match=r"cannot be imported: .*RedisBackend"):
        claim("x").acquire()


def test_a_class_that_is_no_backend_is_refused(settings):
    settings.CLAIMS = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

    with pytest.raises(InvalidClaimsSetting, match="not a claim backend"):
        claim("x").acquire()


def test_an_unknown_option_is_told_with_what_was_meant(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "OPTIONS": {"clok": None}}}

    with pytest.raises(InvalidClaimsSetting, match=r"unknown key 'clok'; did you mean 'clock'\?"):
        claim("x").acquire()


@pytest.mark.parametrize(
    "backend, option, value, should",
    [
        ("cache.CacheBackend", "trust_add", "no", "True or False"),
        ("cache.CacheBackend", "key_prefix", None, "text"),
        ("redis.RedisBackend", "key_prefix", 5, "text"),
        ("redis.RedisBackend", "version", None, "a version as in CACHES"),
        ("redis.RedisBackend", "version", True, "a version as in CACHES"),
        ("sharded.ShardedBackend", "version", 1.5, "a version as in CACHES"),
    ],
)
def test_an_option_of_another_kind_is_told_with_its_value(settings, backend, option, value, should):
    settings.CACHES = {"default": REDIS_CACHE}
    settings.CLAIMS = {"default": {"BACKEND": f"django_claims.backends.{backend}", "OPTIONS": {option: value}}}

    with pytest.raises(InvalidClaimsSetting, match=rf"\['{option}'\] should be {should}, not {value!r}\."):
        claim("x").acquire()


def test_a_memory_clock_is_a_callable(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "OPTIONS": {"clock": 5}}}

    with pytest.raises(InvalidClaimsSetting, match="callable that returns seconds"):
        claim("x").acquire()


def test_a_memory_clock_may_be_a_dotted_path(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY, "OPTIONS": {"clock": "time.monotonic"}}}

    assert claim("x").available()


def test_the_handler_names_all_aliases(settings):
    settings.CLAIMS = {"default": {"BACKEND": MEMORY}, "other": {"BACKEND": FLAKY}}

    assert list(claim_backends) == ["default", "other"]
    assert [backend.alias for backend in claim_backends.all()] == ["default", "other"]


def test_each_thread_has_a_backend_object_of_its_own_and_all_see_one_store():
    from tests.helpers import run_in_thread

    here, there = claim_backends["default"], run_in_thread(lambda: claim_backends["default"])

    assert here is claim_backends["default"]
    assert here is not there
    with claim("x"):
        assert run_in_thread(claim("x").available) is False


# Nobody wrote CLAIMS.


@pytest.fixture
def no_claims(settings):
    settings.INSTALLED_APPS = ["django_claims"]
    del settings.CLAIMS
    return settings


class ShopCache:
    """Stands for a subclass of a cache that a project wrote."""


@pytest.mark.parametrize(
    "cache, backend",
    [
        ("django_redis.cache.RedisCache", conf.REDIS),
        ("django.core.cache.backends.redis.RedisCache", conf.REDIS),
        ("django.core.cache.backends.memcached.PyMemcacheCache", conf.CACHE),
        ("django.core.cache.backends.memcached.PyLibMCCache", conf.CACHE),
        (LOCMEM, conf.MEMORY),
        ("django.core.cache.backends.dummy.DummyCache", conf.MEMORY),
        ("django.core.cache.backends.db.DatabaseCache", conf.MEMORY),
        ("no.such.Cache", conf.MEMORY),
    ],
)
def test_without_claims_the_default_cache_says_which_backend(no_claims, cache, backend):
    no_claims.CACHES = {"default": {"BACKEND": cache, "LOCATION": "redis://localhost:1"}}

    found = conf.alias_settings("default")

    assert found.backend == backend
    assert found.implicit is True
    assert conf.aliases() == ["default"]
    assert conf.problems() == []


def test_without_claims_a_subclass_of_a_redis_cache_counts_as_one(no_claims, monkeypatch):
    from django.core.cache.backends.redis import RedisCache

    monkeypatch.setattr(f"{__name__}.ShopCache", type("ShopCache", (RedisCache,), {}))
    no_claims.CACHES = {"default": {"BACKEND": f"{__name__}.ShopCache"}}

    assert conf.alias_settings("default").backend == conf.REDIS


@pytest.mark.parametrize("app", ["django_claims.database", "django_claims.database.apps.DatabaseClaimsConfig"])
def test_without_claims_and_without_a_shared_cache_the_database_app_is_used_if_installed(monkeypatch, app):
    written = SimpleNamespace(CACHES={"default": {"BACKEND": LOCMEM}}, INSTALLED_APPS=["django_claims", app])

    monkeypatch.setattr(conf, "django_settings", written)
    monkeypatch.setattr("django_claims.guess.django_settings", written)

    assert conf.alias_settings("default").backend == conf.DATABASE


def test_without_claims_there_is_no_other_alias(no_claims):
    with pytest.raises(InvalidClaimsSetting, match="no alias 'other'"):
        claim("x", using="other").acquire()


# CLAIMS = None.


def test_claims_that_are_off_have_no_alias_and_no_problem(settings):
    settings.CLAIMS = None

    assert conf.enabled() is False
    assert conf.aliases() == []
    assert list(claim_backends) == claim_backends.all() == []
    assert conf.problems() == []
    with pytest.raises(InvalidClaimsSetting, match="off"):
        conf.alias_settings("default")


# Changes take effect at once.


def test_overriding_claims_takes_effect_at_once_and_is_gone_afterwards():
    with claim("x") as hold:
        before = hold.ttl_ms

    with override_settings(CLAIMS=claims_settings(TTL=6)):
        with claim("x") as hold:
            assert hold.ttl_ms == 6000
        assert isinstance(claim_backends["default"], FlakyBackend)
        with override_settings(CLAIMS=claims_settings(TTL=9)), claim("x") as hold:
            assert hold.ttl_ms == 9000
        with claim("x") as hold:
            assert hold.ttl_ms == 6000
    with claim("x") as hold:
        after = hold.ttl_ms

    assert before == after == 180_000
    assert type(claim_backends["default"]) is MemoryBackend


def test_overriding_caches_takes_effect_at_once_and_is_gone_afterwards(no_claims):
    with override_settings(CACHES={"default": {"BACKEND": LOCMEM}}):
        first = type(claim_backends["default"])
        with override_settings(CACHES={"default": REDIS_CACHE}):
            within = conf.alias_settings("default").backend
            assert type(claim_backends["default"]).__name__ == "RedisBackend"
        again = type(claim_backends["default"])

    assert first is again is MemoryBackend
    assert within == conf.REDIS


def test_overriding_claims_is_seen_by_threads_that_were_there_before():
    import queue
    import threading

    asked, told = queue.Queue(), queue.Queue()

    def work():
        while asked.get():
            told.put(type(claim_backends["default"]))

    thread = threading.Thread(target=work)
    thread.start()
    asked.put(True)
    before = told.get(timeout=5)
    with override_settings(CLAIMS=claims_settings()):
        asked.put(True)
        within = told.get(timeout=5)
    asked.put(True)
    after = told.get(timeout=5)
    asked.put(False)
    thread.join(5)

    assert (before, within, after) == (MemoryBackend, FlakyBackend, MemoryBackend)


def test_a_recipe_made_before_uses_the_settings_of_the_acquire():
    recipe = claim("x")

    with override_settings(CLAIMS=claims_settings(TTL=6)), recipe as hold:
        assert hold.ttl_ms == 6000


# Nothing at import.


def run(script, **environ):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ".", **environ},
    )  # fmt: skip


def test_importing_reads_no_settings_and_starts_no_thread():
    done = run(
        """
        import threading
        import django_claims
        from django.conf import settings
        recipe = django_claims.claim("x", key=("a", 1), ttl=5)
        assert not settings.configured
        assert threading.active_count() == 1, threading.enumerate()
        """
    )

    assert done.returncode == 0, done.stderr


def test_setup_and_checks_touch_no_store_load_no_backend_and_start_no_thread():
    done = run(
        """
        import sys, threading
        from django.conf import settings
        settings.configure(
            SECRET_KEY="x", INSTALLED_APPS=["django_claims"],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            CACHES={"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1"}},
            CLAIMS={"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}},
        )
        import django
        django.setup()
        assert "django_claims.backends.redis" not in sys.modules
        from django.core.management import call_command
        from django_claims.recipes import claim
        from django_claims import heartbeat, registry
        call_command("check")
        claim("x")
        assert threading.active_count() == 1, threading.enumerate()
        assert "redis" not in sys.modules or not sys.modules["redis"].__dict__.get("connected")
        assert not [h for h in heartbeat._all if h.running] and not registry.all_holds()
        """
    )

    assert done.returncode == 0, done.stderr


def test_a_hold_taken_with_the_store_of_one_setting_leaves_nothing_in_the_next():
    with override_settings(CLAIMS=claims_settings(OPTIONS={"clock": "time.monotonic"})):
        hold = claim("x").acquire()
        assert claim("x").available() is False
    within_another = claim("x").available()

    hold.release()

    assert within_another is True
    assert faults.count("acquire") == 1


def test_claims_that_are_no_dict_of_aliases_are_refused_by_name():
    with override_settings(CLAIMS=["redis"]), pytest.raises(InvalidClaimsSetting, match=r"not \['redis'\]"):
        claim("x").acquire()
