"""A holder that was stopped for longer than its lease lives: it must find out first of all."""

import contextlib
import os
import signal

import pytest

from tests.helpers import wait_until
from tests.processes.conftest import on_all_stores, sqlite_if_long


@pytest.fixture
def stalled(worker, store):
    """Two processes; the first holds "job" with a TTL of 2 s, in a with block, and is stopped. Also when it was."""
    holder, rival = worker(store), worker(store)
    fence = holder.ask("enter", "job", ttl=2)
    holder.begin("look_after_gap", "job", 1.0)
    assert holder.answer() == "watching"
    stopped_at = holder.send(signal.SIGSTOP)
    wait_until(lambda: holder.state() == "T")
    try:
        yield holder, rival, fence, stopped_at
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGCONT)


@on_all_stores
def test_a_stopped_holder_knows_of_its_loss_before_it_does_anything(stalled, store):
    holder, rival, old, stopped_at = stalled
    assert rival.ask("acquire", "job", ttl=60) is None, "stopped is not dead"

    fence, had_at = rival.ask("acquire_and_time", "job", ttl=60, timeout=20)
    before = rival.ask("lease", "job")
    holder.send(signal.SIGCONT)
    first_look = holder.answer()

    # About the TTL: the last renewal may have been up to a heartbeat before the stop.
    late = 2.0 if store.kind == "memcached" else 0.0  # which counts in whole seconds
    assert 2 - 0.7 - 0.1 < had_at - stopped_at < 3.0 + late
    assert fence > old
    assert first_look["gap"] > 1.0
    assert first_look["held"] is False
    assert first_look["reason"] == "expired"

    # Time for its threads to do harm: they are awake as well.
    assert holder.ask("look", "job") == {"held": False, "lost": True, "reason": "expired", "fence": old}
    logged = holder.ask("leave", "job")
    after = rival.ask("lease", "job")

    assert any(line.startswith("ERROR Work ended after its claim was lost") for line in logged), logged
    assert rival.ask("verify", "job") is True
    assert (after["fence"], after["holder"]) == (fence, before["holder"])
    assert abs(after["remaining"] - (before["remaining"] - (after["age"] - before["age"]))) < 0.1, (
        "the other's lease was neither renewed nor cut short"
    )
    assert holder.ask("release", "job") == "not_held"
    assert rival.ask("lease", "job")["fence"] == fence


@sqlite_if_long
def test_a_holder_that_was_stopped_for_less_than_its_deadline_goes_on(worker, store):
    holder, rival = worker(store), worker(store)
    fence = holder.ask("enter", "job", ttl=6)
    holder.begin("look_after_gap", "job", 0.5)
    assert holder.answer() == "watching"

    holder.send(signal.SIGSTOP)
    wait_until(lambda: holder.state() == "T")
    assert rival.ask("acquire", "job", timeout=0.7) is None
    holder.send(signal.SIGCONT)

    assert holder.answer()["held"] is True
    assert holder.ask("verify", "job") is True
    assert rival.ask("lease", "job")["fence"] == fence
