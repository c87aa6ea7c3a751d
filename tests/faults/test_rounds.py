"""Every nemesis on every store, for a few seconds each. For more, see `python -m tests.faults --help`."""

import pytest

from tests.faults.conftest import assert_nothing_is_broken
from tests.faults.nemeses import NEMESES
from tests.faults.stores import STORES

TOGETHER = {
    "processes": ("kill", "stop", "stop_at_write"),
    "programs": ("terminate", "fork", "crowd", "starve"),
    "wires": ("cut", "swallow", "delay", "late_then_silent", "throttle", "lose_reply"),
    "server": ("freeze", "restart", "force"),
    "data": ("wipe", "restart_empty"),
}
PAIRS = [
    (store, together)
    for store in STORES
    for together, names in TOGETHER.items()
    if any(NEMESES[name].fits(STORES[store]) for name in names)
]


def test_each_nemesis_is_tried():
    assert {name for names in TOGETHER.values() for name in names} == set(NEMESES)


def test_holders_and_connections_that_are_hurt(hurt):
    checker = hurt("redis", "kill", "stop", "cut", seconds=4)

    assert_nothing_is_broken(checker)
    assert checker.numbers["grants"] > 10
    assert checker.numbers["stale belief"] == 0


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_nobody_is_hurt(hurt, store):
    checker = hurt(store, seconds=2.5)

    assert_nothing_is_broken(checker)
    assert checker.numbers["grants"] > 10


@pytest.mark.long
@pytest.mark.parametrize(("store", "together"), PAIRS)
def test_nothing_is_broken(hurt, store, together):
    names = [name for name in TOGETHER[together] if NEMESES[name].fits(STORES[store])]

    checker = hurt(store, *names, seconds=4)

    assert_nothing_is_broken(checker)
    assert checker.numbers["grants"] > 3
