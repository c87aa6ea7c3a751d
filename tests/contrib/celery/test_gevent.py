"""Holds of greenlets, which one thread of the system renews beside their work."""

import importlib.util
import os

import pytest

from tests.conftest import missing
from tests.contrib.celery.conftest import HERE
from tests.processes.children import PROJECT, Child
from tests.processes.conftest import redis_store

pytestmark = pytest.mark.long


@pytest.fixture
def greenlets(redis_server, tmp_path):
    """Run the script, and return what it said: its answer, and how long it took to end after that."""
    if importlib.util.find_spec("gevent") is None:
        missing("gevent is not installed")
    path = os.pathsep.join([str(PROJECT), str(PROJECT.parent.parent.parent)])
    store = redis_store(redis_server.url, tmp_path)
    started = []

    def run(how):
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


def test_the_little_time_of_one_greenlet_is_none_of_the_others(greenlets):
    answer, _, _ = greenlets("limits")

    assert answer == "5.0 5.0"


def test_a_greenlet_that_lets_nobody_run_costs_the_others_their_holds_and_they_are_told(greenlets):
    answer, took, _ = greenlets("spin")

    assert answer == "False True"
    assert took < 5.0
