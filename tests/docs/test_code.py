"""Each python block of the documentation is run as it stands there, in the order of its page."""

import ast
import asyncio
import importlib.util
import inspect
import os
import re
import signal
import subprocess
import sys
import types

import pytest
from django.contrib import admin
from django.core.checks import Error
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.models.signals import class_prepared
from django.test import override_settings
from django.test.utils import isolate_apps

from django_claims import checks, claim_backends, conf, shutdown
from django_claims import signals as claim_signals
from django_claims.test import FakeClock, override_claims
from tests.conftest import missing
from tests.docs import prepared
from tests.docs.pages import MARKS, PAGES, ROOT, blocks_of
from tests.helpers import tidy

_tidy = pytest.fixture(autouse=True)(tidy)
WITH_CODE = [page for page in PAGES if blocks_of(page, "python")]
REDIS_CACHE = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}  # nobody asks it


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def left_as_it_was(monkeypatch):
    """Take back what blocks register, connect and install."""
    registry, handlers = dict(admin.site._registry), {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    receivers = {each: list(each.receivers) for each in vars(claim_signals).values() if hasattr(each, "receivers")}
    undo, install = [], shutdown.install
    monkeypatch.setattr(shutdown, "install", lambda: undo.append(install()))
    yield
    for each in reversed(undo):
        each()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    admin.site._registry.clear()
    admin.site._registry.update(registry)
    for each, before in receivers.items():
        each.receivers = before
        each.sender_receivers_cache.clear()


@pytest.fixture
def tables(django_db_blocker):
    """Make the table of a model as soon as a block has written it, with a row; take it away at the end."""
    made = []

    def make(sender, **kwargs):
        with connection.schema_editor() as editor:
            editor.create_model(sender)
        made.append(sender)
        sender._base_manager.create(code="tea", count=5)

    with django_db_blocker.unblock():
        class_prepared.connect(make)
        with isolate_apps("django_claims"):
            yield
        class_prepared.disconnect(make)
        for model in made:
            with connection.schema_editor() as editor:
                editor.delete_model(model)


@pytest.mark.parametrize(
    "page", [page for page in WITH_CODE if not all(b.not_run for b in blocks_of(page, "python"))], ids=name_of
)
def test_the_code_of_a_page_runs(page, request, left_as_it_was, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("django_claims.management.commands.nightly_report")  # in an app that is installed
    monkeypatch.setitem(sys.modules, module.__name__, module)
    if page.name == "fencing.md":
        request.getfixturevalue("tables")
    if page.name == "moving.md":
        request.getfixturevalue("settings").CACHES = {
            "default": {**REDIS_CACHE, "LOCATION": request.getfixturevalue("redis_server").url, "KEY_PREFIX": "docs"}
        }
    with override_claims(clock=FakeClock()):
        left_out = run_all(blocks_of(page, "python"), vars(module))
    if left_out:
        missing(f"not installed: {', '.join(left_out)}")


def run_all(blocks, space):
    """Run the blocks of a page, but those that are told by other tests; return the packages that were wanted."""
    page = blocks[0].page.name
    space.update(prepared.shop())
    if page in prepared.MORE:
        space.update(prepared.MORE[page]())
    left_out = []
    for block in blocks:
        lacking = [package for package in block.needs if importlib.util.find_spec(package) is None]
        if block.not_run or block.is_tests:
            continue
        if lacking:
            left_out += lacking
        elif block.is_settings:
            judge(block)
        else:
            if page == "celery.md":
                space["__name__"] = f"tasks_{block.line}"  # Celery knows tasks by it
            run(block, space)
    return left_out


def run(block, space):
    """Run a block, await what it awaits, and call what it defines."""
    if block.needs:
        space.update(prepared.of_typed_commands())
    code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, space))
    else:
        exec(code, space)
    for name in block.names:
        made = space[name]
        if isinstance(made, type) and issubclass(made, BaseCommand) and not block.needs:
            command = made()
            parser = command.create_parser("manage.py", "nightly_report")
            words = [action.dest for action in parser._actions if not action.option_strings]
            if "def handle" in block.text:
                call_command(command, *words, verbosity=0)
        elif name in prepared.CALLS.get(block.page.name, {}):
            made(*prepared.CALLS[block.page.name][name])


def judge(block):
    """Judge settings as the system checks do."""
    space = {"INSTALLED_APPS": []}
    exec(compile(block.text, str(block), "exec"), space)
    given = {name: space[name] for name in block.names - {"INSTALLED_APPS", "LOGGING"}}
    given.setdefault("CACHES", {"default": REDIS_CACHE, "claims": REDIS_CACHE})
    for app in set(space["INSTALLED_APPS"]) - {"reports"}:
        assert app is ... or importlib.util.find_spec(app), app
    with override_settings(**given):
        found = [found for found in checks.check_settings(None) if isinstance(found, Error)]
        assert found == []
        assert {backend.alias for backend in claim_backends.all()} == set(conf.aliases())


def test_the_tests_on_the_pages_pass(tmp_path):
    written = []
    for page in WITH_CODE:
        for block in blocks_of(page, "python"):
            if block.is_tests and not block.not_run:
                file = tmp_path / f"test_{page.stem.replace('-', '_')}_{block.line}.py"
                before = "".join(
                    other.text
                    for other in blocks_of(page, "python")
                    if page.name == "custom-backend.md" and other.line < block.line and "class" in other.text
                )
                file.write_text(prepared.TEST_PREAMBLE + before + block.text)
                written.append(file)
    assert len(written) >= 3

    plugins = [f"-p{name}" for name in ("pytest_django", "django_claims.pytest_plugin", "no:cacheprovider")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), *map(str, written)],
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_CORE"))},
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # an installed copy may be another version's
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PYTHONPATH": str(ROOT),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert int(passed[1]) > 80 and "skipped" not in done.stdout


def test_every_block_that_is_not_run_here_says_why():
    for page in PAGES:
        for block in blocks_of(page):
            if not block.mark:
                continue
            assert block.mark.startswith(MARKS), f"{block}: {block.mark}"
            if block.mark.startswith("run by "):
                test = ROOT / block.mark.removeprefix("run by ")
                assert page.name in test.read_text(), f"{block}: {test.name} does not read {page.name}"
            else:
                assert len(block.mark.partition(": ")[2]) > 3, block
