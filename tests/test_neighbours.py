"""Two neighbouring versions on one store, as during a deploy: the next one writes more, and neither minds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent

CHILD = """
import json, sys
import django
from django.conf import settings
settings.configure(**json.loads(sys.argv[1]))
django.setup()
if "django_claims.database" in settings.INSTALLED_APPS:
    from django.core.management import call_command
    call_command("migrate", verbosity=0)
import django_claims
from django_claims import *
from django_claims.backends import file_places
file_places.temporary_places = list  # the directory of a test is one
holds = {}
def take(name):
    hold = claim(name, ttl=30, heartbeat=0.2).acquire()
    if hold is not None:
        holds[name] = hold
    return hold is not None
print(json.dumps(django_claims.__file__), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line), default=str), flush=True)
"""

# What the next version is thought to do: it appends a field to all that it packs.
NEXT = {
    "holders.py": (
        "[self.host, self.pid, started, self.label, self.node, self.task_id, processes],",
        "[self.host, self.pid, started, self.label, self.node, self.task_id, processes, 'more', {'a': 1}],",
    ),
    "leases.py": (
        "json.dumps([self.done, self.total, self.note, at, *kept],",
        "json.dumps([self.done, self.total, self.note, at, *(kept or ['']), 'more', {'a': 1}],",
    ),
}


class Version:
    """A process that runs one version of the package, and says what it is asked for."""

    def __init__(self, root, settings):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, json.dumps(settings)],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(root)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.file = json.loads(self.process.stdout.readline())

    def __call__(self, expression):
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        with self.process:  # closes its pipes, which ends it
            pass


@pytest.fixture(params=["file", "database", "redis"])
def store(request, tmp_path):
    apps = ["django_claims"]
    more = {}
    if request.param == "file":
        params = {"BACKEND": "django_claims.backends.file.FileBackend", "OPTIONS": {"directory": str(tmp_path / "c")}}
    elif request.param == "database":
        params = {"BACKEND": "django_claims.backends.database.DatabaseBackend"}
        more["DATABASES"] = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}}
        apps.append("django_claims.database")
    else:
        server = request.getfixturevalue("new_redis")()
        params = {"BACKEND": "django_claims.backends.redis.RedisBackend"}
        cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": server.url}
        more["CACHES"] = {"default": cache}
    return {"INSTALLED_APPS": apps, "CLAIMS": {"default": params}, "USE_TZ": True, **more}


@pytest.fixture
def versions(store, tmp_path):
    """This version and the next one, each in a process."""
    following = tmp_path / "next"
    shutil.copytree(ROOT / "django_claims", following / "django_claims", ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in NEXT.items():
        path = following / "django_claims" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} is no longer written so"
        path.write_text(text.replace(old, new))
    pair = [Version(ROOT, store)]
    pair.append(Version(following, store))
    assert pair[0].file != pair[1].file
    yield pair
    for version in pair:
        version.end()


@pytest.mark.parametrize("turn", [1, -1], ids=["the old one holds", "the new one holds"])
def test_neighbours_refuse_read_stop_and_follow_each_other(versions, turn):
    one, other = versions[::turn]
    assert one("take('x')")
    one("holds['x'].checkpoint(3, 10, 'a note')")
    assert not other("take('x')")

    wait_until(lambda: other("(claim('x').lease().progress or Progress()).done") == 3)
    assert other("claim('x').lease().progress.note") == "a note"
    assert other("claim('x').lease().state") == "held"
    assert other("claim('x').lease().holder.pid") == one.process.pid
    assert other("[each.name for each in list_claims()]") == ["x"]

    other("request_stop('x', reason='enough', by='ann').by")
    wait_until(lambda: one("holds['x'].stop_requested"))
    assert one("holds['x'].stop_flag.reason") == "enough"
    wait_until(lambda: other("claim('x').lease().state") == "stopping")
    assert one("holds['x'].verify()")

    fence = one("holds['x'].fence")
    assert one("holds.pop('x').release().value") == "released"
    assert other("take('x')")
    assert other("holds['x'].fence") > fence
    assert not other("holds['x'].stop_requested")

    assert one("request_stop('y', keep=True, reason='broken').keep")
    assert not other("take('y')")
    assert other("clear_stop('y')")
    assert one("take('y')")

    # A holder that dies is followed at once by the other version.
    other.process.kill()
    other.process.wait(10)
    assert wait_until(lambda: one("take('x')"))
