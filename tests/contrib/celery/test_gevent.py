"""Holds of greenlets, which one thread of the system renews beside their work."""

import importlib.util
import os
from types import SimpleNamespace

import pytest

from tests.conftest import missing
from tests.contrib.celery.conftest import HERE
from tests.processes.children import PROJECT, Child
from tests.processes.conftest import mariadb, new_store, redis_store

__all__ = ["mariadb"]  # the fixture

pytestmark = pytest.mark.long


@pytest.fixture
def greenlets(redis_server, tmp_path):
    """Run the script, and return what it said: its answer, and how long it took to end after that."""
    if importlib.util.find_spec("gevent") is None:
        missing("gevent is not installed")
    path = os.pathsep.join([str(PROJECT), str(PROJECT.parent.parent.parent)])
    started = []

    def run(how, store=None):
        store = store or redis_store(redis_server.url, tmp_path)
        started.append(Child(str(HERE / "greenlets.py"), how, env={**store.env, "PYTHONPATH": path}, cwd=tmp_path))
        done = started[-1].done(40)
        assert done.code == 0, done.err
        answer, over = done.out.splitlines()
        return answer, done.at - float(over.split()[1]), done.err

    yield run
    for child in started:
        child.close()


@pytest.mark.parametrize("how", ["first", "after", "loaded"])
def test_fifty_greenlets_keep_their_holds_and_the_process_ends_at_once(greenlets, how):
    kept, took, errors = greenlets(how)

    assert kept == "50"
    assert took < 5.0
    assert "lost" not in errors


def test_a_lock_of_the_files_that_is_older_than_the_patches_keeps_greenlets_apart(greenlets, request, tmp_path):
    store = new_store(SimpleNamespace(param="file", getfixturevalue=request.getfixturevalue), tmp_path)

    answer, _, errors = greenlets("lock", store)

    assert answer == "1"
    assert "lost" not in errors


def test_the_little_time_of_one_greenlet_is_none_of_the_others(greenlets):
    answer, _, _ = greenlets("limits")

    assert answer == "5.0 5.0"


def test_a_greenlet_that_lets_nobody_run_costs_the_others_their_holds_and_they_are_told(greenlets):
    answer, took, _ = greenlets("spin")

    assert answer == "False True"
    assert took < 5.0


@pytest.mark.parametrize("kind", ["redis", "mariadb", "memcached"])
def test_no_connection_wanders_between_the_threads_of_gevents_pool(request, tmp_path, kind):
    """And what renews lives on, whichever thread has taken the first claim."""
    for needed in ("gevent", "pymysql") if kind == "mariadb" else ("gevent",):
        if importlib.util.find_spec(needed) is None:
            missing(f"{needed} is not installed")
    store = new_store(SimpleNamespace(param=kind, getfixturevalue=request.getfixturevalue), tmp_path)
    path = os.pathsep.join([str(PROJECT), str(PROJECT.parent.parent.parent)])
    env = {**store.env, "PYTHONPATH": path, "JOBS_PYMYSQL": "yes" if kind == "mariadb" else ""}
    child = Child(str(HERE / "hubs.py"), env=env, cwd=tmp_path)
    try:
        done = child.done(90)
    finally:
        child.close()

    assert done.code == 0, done.err
    assert done.out.split() == ["48", "48"], done.err
    assert "lost" not in done.err and "different thread" not in done.err
