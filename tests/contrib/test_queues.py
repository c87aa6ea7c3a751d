"""The examples of docs/recipes-queues.md, run as they stand there by the queues themselves."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import types
import uuid
from datetime import timedelta
from pathlib import Path

import django
import pytest
from django.utils import timezone

from django_claims import claim, current_hold, list_claims, request_stop
from tests.conftest import missing
from tests.helpers import claims_settings, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)

PAGE = Path(__file__).parents[2] / "docs" / "recipes-queues.md"


def need(package):
    if importlib.util.find_spec(package) is None:
        missing(f"{package} is not installed")


def examples(heading):
    """Return the code that stands under a heading of the page."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.M)
    (found,) = [part for part in section if part.startswith(f"{heading}\n")]
    return re.findall(r"^```python\n(.*?)^```", found, flags=re.M | re.S)


class Work:
    """What the examples work on, and how far they are."""

    def __init__(self):
        self.rows = ["a", "b"]
        self.done = []
        self.leases = []

    def rows_of(self, supplier_id):
        return self.rows

    def work_on(self, row):
        self.leases += [lease.name for lease in list_claims()]
        self.done.append(row)


@pytest.fixture
def work(settings):
    settings.CLAIMS = claims_settings(TTL=60)
    return Work()


@pytest.fixture
def load(work):
    """Import an example, with what it works on: `load(code)`."""
    loaded = []

    def load(code):
        name = f"recipe_{uuid.uuid4().hex}"
        module = sys.modules[name] = types.ModuleType(name)
        loaded.append(name)
        vars(module).update(rows_of=work.rows_of, work_on=work.work_on)
        exec(compile(code, f"{PAGE}", "exec"), vars(module))
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


@contextlib.contextmanager
def held(name, key):
    """Have somebody else hold it."""
    entered, over = threading.Event(), threading.Event()

    def hold():
        with claim(name, key=key):
            entered.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert entered.wait(10)
        yield
    finally:
        over.set()
        thread.join(10)


def test_all_queues_have_an_example():
    assert [len(examples(heading)) for heading in ("django.tasks", "django-rq", "Huey", "Dramatiq")] == [2, 1, 1, 1]


django_tasks = pytest.mark.skipif(django.VERSION < (6,), reason="django.tasks came with Django 6")


@django_tasks
def test_django_tasks(load, work, settings):
    settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.immediate.ImmediateBackend"}}
    recipe = load(examples("django.tasks")[0])
    name = f"function:{recipe.__name__}.import_feed"

    assert recipe.import_feed.enqueue(7).status == "SUCCESSFUL"
    assert work.leases == [f"{name}:7"] * 2

    with held(name, 7):
        refused = recipe.import_feed.enqueue(7)
        assert refused.status == "FAILED"
        assert refused.errors[0].exception_class_path.endswith("ClaimHeld")
        assert "is held by" in refused.errors[0].traceback
        assert recipe.import_feed.enqueue(8).status == "SUCCESSFUL"
    assert len(work.done) == 4

    def work_on(row):
        request_stop(f"{name}:7")
        wait_until(lambda: current_hold().stop_requested)

    vars(recipe)["work_on"] = work_on
    stopped = recipe.import_feed.enqueue(7)
    assert stopped.errors[0].exception_class_path.endswith("StopRequested")


@django_tasks
def test_django_tasks_that_come_back(load, work, settings):
    from django.tasks import default_task_backend

    settings.TASKS = {"default": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"}}
    recipe = load(examples("django.tasks")[1])

    with held("import-feed", 7):
        recipe.import_feed.call(7)
    (later,) = default_task_backend.results
    assert later.args == [7]
    assert timedelta(seconds=20) < later.task.run_after - timezone.now() <= timedelta(seconds=30)
    assert work.done == []

    later.task.call(*later.args)
    assert work.done == ["a", "b"]


def test_django_rq(load, work, settings, redis_server):
    need("django_rq")
    queue = f"q{uuid.uuid4().hex}"
    settings.RQ_QUEUES = {queue: {"URL": redis_server.url}}
    settings.RQ = {}
    from django_rq import get_queue
    from rq import SimpleWorker

    (code,) = examples("django-rq")
    recipe = load(code.replace('"default"', repr(queue)))
    name = f"function:{recipe.__name__}.import_feed"
    connection = get_queue(queue).connection

    def run():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        worker = SimpleWorker([get_queue(queue)], connection=connection)
        try:
            worker.work(burst=True, logging_level="CRITICAL")
        finally:  # which leaves its own behind
            for number, handler in before.items():
                signal.signal(number, handler)

    first = recipe.import_feed.delay(7)
    run()
    assert first.is_finished
    assert work.leases == [f"{name}:7"] * 2

    with held(name, 7):
        refused = recipe.import_feed.delay(7)
        run()
    refused.refresh()
    assert (refused.get_status(), refused.retries_left) == ("scheduled", 19)
    assert len(work.done) == 2

    get_queue(queue).enqueue_job(refused)  # as RQ's scheduler does when it is time
    run()
    assert refused.is_finished
    assert len(work.done) == 4
    get_queue(queue).delete(delete_jobs=True)
    connection.close()


BOOTSTRAP = """
import os, time
import django
from django.conf import settings

QUEUE, URL = os.environ["RECIPE_QUEUE"], os.environ["RECIPE_URL"]
settings.configure(
    RQ_QUEUES={QUEUE: {"URL": URL}},
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL, "KEY_PREFIX": QUEUE}},
    CLAIMS={"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}},
)
django.setup()

def rows_of(supplier_id):
    return range(600 if supplier_id == 7 else 1)

def work_on(row):
    time.sleep(0.1)

"""

STORY = """
import sys, time
from recipe import import_feed, QUEUE
from django_claims import claim
from django_rq import get_connection
from rq.command import send_stop_job_command

def wait_for(what):
    ends = time.monotonic() + 30
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)

name = "function:recipe.import_feed"
job = import_feed.delay(7)
wait_for(lambda: claim(name, key=7).lease())
send_stop_job_command(get_connection(QUEUE), job.id)
wait_for(lambda: job.get_status() == "stopped")
left = claim(name, key=7).lease()
started = time.monotonic()
with claim(name, key=7):
    print(left is not None, time.monotonic() - started < 5)
"""


@pytest.mark.long
def test_a_job_that_rq_stops_by_killing_its_process_frees_its_claim_at_once(redis_server, tmp_path):
    need("django_rq")
    (code,) = examples("django-rq")
    queue = f"q{uuid.uuid4().hex}"
    (tmp_path / "recipe.py").write_text(BOOTSTRAP + code.replace('"default"', "QUEUE"))
    path = os.pathsep.join([str(PAGE.parents[1]), str(tmp_path)])
    env = {**os.environ, "PYTHONPATH": path, "RECIPE_QUEUE": queue, "RECIPE_URL": redis_server.url}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    work = "import recipe; from django_rq import get_worker; get_worker(recipe.QUEUE).work(logging_level='ERROR')"
    worker = subprocess.Popen([sys.executable, "-c", work], env=env, cwd=tmp_path)
    try:
        story = [sys.executable, "-c", STORY]
        done = subprocess.run(story, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    finally:
        worker.terminate()
        worker.wait(30)

    assert done.stdout == "True True\n", done.stderr


def test_huey(load, work, settings):
    need("huey")
    from huey import MemoryHuey

    settings.HUEY = MemoryHuey("claims")
    sys.modules.pop("huey.contrib.djhuey", None)
    recipe = load(examples("Huey")[0])
    huey = settings.HUEY

    with held("import-feed", 7):
        recipe.import_feed(7)
        huey.execute(huey.dequeue())
    (later,) = huey.scheduled()
    assert later.args == (7,)
    assert work.done == []

    huey.execute(later, later.eta)  # as the consumer does when it is time
    assert work.done == ["a", "b"]
    assert work.leases == ["import-feed:7"] * 2
    assert claim("import-feed", key=7).lease() is None


def test_dramatiq(load, work):
    need("dramatiq")
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    broker = StubBroker()
    dramatiq.set_broker(broker)
    (code,) = examples("Dramatiq")
    assert "delay=30_000" in code
    recipe = load(code.replace("delay=30_000", "delay=20"))
    worker = dramatiq.Worker(broker, worker_threads=2, worker_timeout=50)
    worker.start()
    try:
        with held("import-feed", 7):
            recipe.import_feed.send(7)
            recipe.import_feed.send(8)
            wait_until(lambda: work.done == ["a", "b"], 10)
        wait_until(lambda: work.done == ["a", "b"] * 2, 10)  # it came back, and its turn
        broker.join("default", timeout=10_000)
        worker.join()
    finally:
        worker.stop()
        broker.close()
    assert {"import-feed:7", "import-feed:8"} == set(work.leases)
    assert claim("import-feed", key=7).lease() is None
