"""The command from code, and from the shell in processes of its own."""

import io
from dataclasses import dataclass

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.helpers import tidy
from tests.processes import conftest as processes

# What the tests with real processes have: stores, and children that are all ended.
store = processes.store
redis = processes.redis
own_redis = processes.own_redis
children = processes.children
worker = processes.worker
manage = processes.manage

SHARED = "tests.cli.stores.SharedBackend"
_tidy = pytest.fixture(autouse=True)(tidy)


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def lines(self):
        return self.out.splitlines()


@pytest.fixture
def in_memory(settings):
    """Claims of this process that pass for shared ones: `in_memory(**params)` sets others."""

    def use(backend=SHARED, **params):
        settings.CLAIMS = {"default": {"BACKEND": backend, **params}}

    use()
    return use


@pytest.fixture
def claims(in_memory):
    """Call the command from code: `claims("list", json=True)`."""

    def call(*args, **options):
        out, err = io.StringIO(), io.StringIO()
        code = 0
        try:
            call_command("claims", *args, stdout=out, stderr=err, no_color=True, **options)
        except CommandError as error:
            code = error.returncode
            err.write(str(error))
        return Said(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def shell(manage):
    """Run `manage.py claims …` of the test project to its end: `shell(store, "list")`."""

    def run(store, *arguments):
        return manage(store, "claims", *arguments).done()

    return run


@pytest.fixture
def start(manage):
    """Start `manage.py claims run …`."""

    def begin(store, *arguments, **how):
        return manage(store, "claims", "run", *arguments, **how)

    return begin
