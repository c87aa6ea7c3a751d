"""The fixtures of the pytest plugin, in pytest runs of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from django_claims.test.redis_server import PrivateRedis, find_redis
from tests.conftest import missing

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest in a process of its own on a test module, with pytest-django or without."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "COV_CORE"))]:
        monkeypatch.delenv(name)
    # No plugin but those that are named: an installed copy of this package may be another version's.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nfilterwarnings = error\n")

    def run(code, *args, configured=True, **more):
        conftest = (
            "from django.conf import settings\nsettings.configure(CLAIMS={'default': {'BACKEND': 'no.such.Backend'},"
        )
        pytester.makeconftest(conftest + " 'other': {'BACKEND': 'no.such.Backend'}})" if configured else "")
        pytester.makepyfile(test_it=code, **more)
        plugin = ("-p", "django_claims.pytest_plugin")
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-q", *args, timeout=100)

    return run


HELPERS = """
    import threading
    import pytest
    from django_claims import ClaimHeld, ClaimLost, claim, list_claims

    def test_claims(claims):
        before = threading.active_count()
        with claims.held("x", by="web-2"), claims.assert_refused("x"), pytest.raises(ClaimHeld, match="web-2"):
            with claim("x"):
                pass
        with claim("y") as hold:
            claims.assert_held("y")
            claims.request_stop("y")
            assert hold.stop_requested
            claims.beat()
            claims.lose("y")
            assert hold.lost
        assert threading.active_count() == before

    def test_nothing_is_left(claims):
        with claim("y"), claim("y", using="other"):
            assert len(list_claims()) == 1
        claims.assert_released("y")

    def test_clock(claims_clock):
        with claim("y") as hold:
            claims_clock.tick(121)
            with pytest.raises(ClaimLost):
                hold.checkpoint()

    @pytest.fixture
    def of_the_project(claims_clock):
        return claims_clock

    def test_both(claims, of_the_project):
        assert claims.clock is of_the_project
"""


@pytest.mark.parametrize("how", [(), ("-p", "pytest_django.plugin")], ids=["without pytest-django", "with it"])
def test_claims_and_their_clock(run, how):
    run(HELPERS, *how).assert_outcomes(passed=4)


@pytest.mark.long
def test_each_worker_of_xdist_has_claims_of_its_own(run):
    run(HELPERS, "-p", "xdist", "-n", "2").assert_outcomes(passed=4)


def test_a_clock_that_comes_too_late_is_an_error_and_so_are_no_settings(run):
    result = run(
        """
        import pytest
        def test_late(claims, request):
            request.getfixturevalue("claims_clock")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines("*comes too late*")

    result = run("def test_it(claims): pass", configured=False)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines("*set DJANGO_SETTINGS_MODULE*")


REDIS = """
    import pytest
    from django_claims import claim, claim_backends, list_claims
    from django_claims.test import wait_until

    @pytest.mark.parametrize("turn", [1, 2])
    def test_redis(claims_redis, turn):
        assert type(claim_backends["default"]).__name__ == "RedisBackend"
        assert len(list_claims()) == 0
        with claim("x", ttl=6, heartbeat=0.2) as hold, claim("x", using="other"):
            first = claim("x").lease().renewed_at
            wait_until(lambda: claim("x").lease().renewed_at > first)
            assert hold.verify()
            claims_redis.request_stop("x")
            claims_redis.expire("x")
            assert hold.lost
        claims_redis.assert_released("x")
        left_over = claims_redis.held("left over")
        left_over.__enter__()  # and never left
"""


def test_claims_on_a_redis_server_of_their_own(run, redis_program):
    run(REDIS).assert_outcomes(passed=2)


@pytest.mark.parametrize("ci, outcome", [(None, {"skipped": 1}), ("true", {"errors": 1})])
def test_without_a_server_program_it_skips_but_fails_in_ci(run, monkeypatch, ci, outcome):
    if ci:
        monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CLAIMS_TEST_REDIS_PROGRAM", raising=False)
    result = run(
        """
        from django_claims.test import redis_server
        redis_server.REDIS_WHEELS = ()
        def test_it(claims_redis): pass
        """,
        "-rs",
    )
    result.assert_outcomes(**outcome)
    result.stdout.fnmatch_lines("*needs a server program on PATH: redis-server or valkey-server*")


def test_without_a_client_it_skips(run, redis_program):
    result = run(
        """
        import importlib.util
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *more: None if name == "redis" else find(name, *more)
        def test_it(claims_redis): pass
        """,
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines("*needs the package redis*")


def test_loading_the_plugin_reads_no_settings_and_imports_no_optional_package():
    script = (
        "import sys, django_claims.pytest_plugin; from django.conf import settings; "
        "print(settings.configured, *sorted(m for m in sys.modules if m.split('.')[0] in ('redis', 'celery') or "
        "m.startswith(('django.contrib.admin', 'django_claims.test', 'django.test', 'django_claims.models'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["False"]


def test_a_server_that_does_not_start_says_so(tmp_path):
    with pytest.raises(RuntimeError, match="does not start on port"):
        PrivateRedis("/bin/false", tmp_path)


def test_a_server_ends_twice(tmp_path):
    server = PrivateRedis(find_redis() or missing("no redis-server"), tmp_path)
    server.stop()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        server.flush()


def test_the_program_that_is_named_is_the_one_that_is_taken(monkeypatch, tmp_path):
    program = tmp_path / "my-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CLAIMS_TEST_REDIS_PROGRAM", "my-server")
    assert find_redis() == str(program)

    monkeypatch.setattr("django_claims.test.redis_server.REDIS_WHEELS", (("json", "*.py"),))
    monkeypatch.setenv("CLAIMS_TEST_REDIS_PROGRAM", "another")
    assert find_redis() is None


def test_a_program_in_a_wheel_is_found_where_path_has_none(monkeypatch, tmp_path):
    (tmp_path / "a_wheel" / "bin").mkdir(parents=True)
    (tmp_path / "a_wheel" / "__init__.py").touch()
    program = tmp_path / "a_wheel" / "bin" / "redis-server"
    program.touch(mode=0o755)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CLAIMS_TEST_REDIS_PROGRAM", raising=False)
    wheels = (("no_such_wheel", "bin/redis-server"), ("json", "valkey-server"), ("a_wheel", "b*/redis-server"))
    monkeypatch.setattr("django_claims.test.redis_server.REDIS_WHEELS", wheels)
    assert find_redis() == str(program)

    monkeypatch.setenv("CLAIMS_TEST_REDIS_PROGRAM", "redis-server")
    assert find_redis() == str(program)
    monkeypatch.setenv("CLAIMS_TEST_REDIS_PROGRAM", "valkey-server")
    assert find_redis() is None
