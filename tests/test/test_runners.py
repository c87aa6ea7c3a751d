"""Django's own test runner on a project that uses the helpers: one process, and several by fork and by spawn."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent

MANAGE = """
import multiprocessing, os, sys
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv.pop())
    os.environ["DJANGO_SETTINGS_MODULE"] = "project_settings"
    from django.core.management import execute_from_command_line
    execute_from_command_line(sys.argv)
"""

SETTINGS = """
SECRET_KEY = "x"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_claims", "django_claims.database"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}}
CLAIMS = {
    "default": {"BACKEND": "django_claims.backends.redis.RedisBackend"},  # where nobody listens
    "table": {"BACKEND": "django_claims.backends.database.DatabaseBackend", "TTL": 30},
}
"""

TESTS = """
import asyncio
import logging
import os
import threading
import time
import unittest

from django.contrib.auth.models import Group
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from django_claims import claim, claim_backends
from django_claims.backends.memory import MemoryBackend
from django_claims.test import assert_claim_released, held, override_claims, wait_until


class Shared:
    def test_a_claim(self):
        self.assertIsInstance(claim_backends["default"], MemoryBackend)
        before = set(threading.enumerate())  # those of RealTests may be there for some seconds still
        with claim("x") as hold, claim("x", using="table"):
            time.sleep(0.3)  # the other worker has one of the same name meanwhile
            self.assertTrue(hold.verify())
            self.assertLessEqual(set(threading.enumerate()), before)
        assert_claim_released("x")

    def test_a_block_of_the_test_case_is_no_transaction(self):
        with self.assertNoLogs("django_claims", logging.WARNING):
            with claim("x", release_on_commit=True):
                Group.objects.create(name="a")
            self.assertTrue(claim("x").available())

    def test_one_of_the_code_is_one(self):
        with transaction.atomic():
            with claim("x"):
                Group.objects.create(name="a")
        with held("x"):
            self.assertIsNone(claim("x").acquire())

    async def test_async(self):
        async with claim("x") as hold:
            self.assertTrue(await hold.averify())


@override_claims()
class OneTests(Shared, TestCase):
    pass


@override_claims()
class TwoTests(Shared, TransactionTestCase):
    def test_it_waits_for_the_commit(self):
        with transaction.atomic():
            with claim("x", release_on_commit=True):
                Group.objects.create(name="a")
            self.assertFalse(claim("x").available())
        self.assertTrue(claim("x").available())


@override_claims()
class ThreeTests(Shared, TestCase):
    @classmethod
    def setUpTestData(cls):
        Group.objects.create(name="b")


class RealTests(TransactionTestCase):
    databases = {"default"}

    def test_the_table_of_the_tests_database(self):
        with claim("x", using="table") as hold:
            self.assertTrue(hold.verify())
            self.assertFalse(claim("x", using="table").available())
        self.assertTrue(claim("x", using="table").available())


class MoreRealTests(RealTests):
    pass
"""


@pytest.mark.parametrize(
    "how", [["fork"], ["--parallel", "2", "fork"], ["--parallel", "2", "spawn"]], ids=["one process", "fork", "spawn"]
)
def test_the_helpers_under_djangos_test_runner(tmp_path, how):
    (tmp_path / "manage.py").write_text(MANAGE)
    (tmp_path / "project_settings.py").write_text(SETTINGS)
    (tmp_path / "tests.py").write_text(TESTS)
    inherited = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}

    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "manage.py", "test", *how],
        cwd=tmp_path,
        env={**inherited, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 15 tests" in done.stderr
    assert "\n\nOK\n" in done.stderr
