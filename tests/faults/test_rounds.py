"""Every nemesis on every store, for a few seconds each. For more, see `python -m tests.faults --help`."""

import os
import subprocess
import sys

import pytest

from tests.faults.conftest import assert_nothing_is_broken
from tests.faults.nemeses import NEMESES
from tests.faults.rounds import Round
from tests.faults.spawner import ROOT, Spawner
from tests.faults.stores import STORES

TOGETHER = {
    "processes": ("kill", "stop", "stop_at_write"),
    "programs": ("terminate", "fork", "crowd", "starve"),
    "wires": ("cut", "swallow", "delay", "late_then_silent", "throttle", "lose_reply"),
    "server": ("freeze", "restart", "force"),
    "data": ("wipe", "restart_empty", "evict"),
    "clocks": ("client_clock", "clock_set_back", "stop"),
}
PAIRS = [
    (store, together)
    for store in STORES
    for together, names in TOGETHER.items()
    if any(NEMESES[name].fits(STORES[store]) for name in names)
]


def test_each_nemesis_is_tried():
    assert {name for names in TOGETHER.values() for name in names} == set(NEMESES)


def test_workers_start_where_a_client_is_not_installed():
    script = "import sys; sys.modules['MySQLdb'] = None; from tests.faults.preload import preload; preload()"

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_round_whose_workers_do_not_start_fails_and_signals_nobody(store_named, tmp_path, monkeypatch):
    """A worker that was never started has no process number, and signals to number 0 go to whoever runs the tests."""
    signalled = []
    spawner = Spawner(tmp_path / "spawner")
    spawner.close()
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))

    with pytest.raises(ValueError, match="closed file"):
        Round(store_named("memory"), tmp_path / "round", spawner, ()).run()

    assert signalled == []


def test_a_worker_that_ends_before_anybody_looks_has_ended(spawner, tmp_path, monkeypatch):
    """As one that had nothing to do: its end is told before who has asked for it goes on."""
    changed = spawner._changed
    spec = {"p": "w", "dir": str(tmp_path), "log": str(tmp_path / "w.log"), "kind": "memory", "settings": {}}
    spec |= {"mutant": "none that there is"}  # so that it ends at once

    def wait_for(condition, seconds):
        return type(changed).wait_for(changed, lambda: condition() and spawner._spawned[0] in spawner.codes, seconds)

    monkeypatch.setattr(changed, "wait_for", wait_for)
    pid = spawner.spawn(spec)
    monkeypatch.undo()

    assert spawner.wait([pid], 10) == []
    assert spawner.codes[pid] == 1


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


@pytest.mark.long
@pytest.mark.parametrize("mode", ["held", "fence"])
def test_guarded_writes_of_holders_that_are_stopped_between_check_and_write(hurt, mode):
    """A look at `held` right before the write does not help; the fence does."""
    writes = lost = 0
    for seed in range(3):
        spec = {"only": True, "guard_mode": mode, "stops_itself": 0.15, "think": 0.05}
        checker = hurt("redis", "stop_at_write", seconds=8, seed=seed, names=1, operations={"write": 1}, spec=spec)
        writes += checker.numbers["writes"]
        lost += checker.numbers["lost updates"]
        if lost and mode == "held":
            break

    assert writes > 10
    assert (lost > 0) == (mode == "held"), f"{lost} of {writes} acknowledged writes were lost"
