"""The stores, each started when it is first asked for, and the process that forks workers."""

import pytest

from tests.conftest import missing
from tests.faults.register import Register
from tests.faults.rounds import Round
from tests.faults.spawner import Spawner
from tests.faults.stores import STORES


@pytest.fixture(scope="session")
def spawner(tmp_path_factory):
    made = Spawner(tmp_path_factory.mktemp("spawner"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def store_named(tmp_path_factory, django_db_blocker):
    started = {}

    def get(name):
        if name not in started:
            if problem := STORES[name].missing():
                missing(problem)
            with django_db_blocker.unblock():
                started[name] = STORES[name](tmp_path_factory.mktemp(name), seed=len(started))
        return started[name]

    yield get
    with django_db_blocker.unblock():
        for store in started.values():
            store.close()


@pytest.fixture
def hurt(spawner, store_named, tmp_path, django_db_blocker):
    """Run one round: `hurt("redis", "kill", "stop", seconds=5)`; the judgement."""
    rounds = []

    def run(store, *nemeses, **how):
        directory = tmp_path / f"round-{len(rounds)}"
        rounds.append(Round(store_named(store), directory, spawner, nemeses, **how))
        with django_db_blocker.unblock():
            return rounds[-1].run()

    return run


def assert_nothing_is_broken(checker):
    """Neither judge finds anything."""
    assert not checker.violations, "\n".join(map(str, checker.violations[:20]))
    for name in checker.runs.by_name:
        if checker.terms.exclusive:
            register = Register(checker.runs, name, checker.terms)
            assert register.ok is not False, f"{name!r}: nothing explains the {register.stuck}"
