"""A holder that was killed: who finds it dead takes over at once, who cannot tell waits for the TTL."""

import signal
from datetime import datetime

import pytest

from tests.helpers import wait_until
from tests.processes.conftest import on_all_stores, sqlite_if_long


@pytest.fixture
def pair(worker, store):
    """A process that holds, and one that wants."""
    return worker(store), worker(store)


def kill(holder):
    """Kill it, and wait for it as a parent does."""
    at = holder.send(signal.SIGKILL)
    holder.process.wait(10)
    return at


def kill_and_leave(holder):
    """Kill it, and do not wait for it: what is left is a zombie."""
    at = holder.send(signal.SIGKILL)
    wait_until(lambda: holder.state() == "Z" and holder.threads() == 1)
    return at


def test_a_live_holder_keeps_out_another_process(pair):
    holder, rival = pair
    holder.ask("acquire", "job", ttl=60)

    assert rival.ask("acquire", "job", ttl=60) is None
    assert holder.ask("verify", "job") is True


@on_all_stores
@pytest.mark.parametrize("end", [kill, kill_and_leave])
def test_another_process_of_this_machine_takes_over_from_a_dead_holder_at_once(pair, end):
    holder, rival = pair
    old = holder.ask("acquire", "job", ttl=60)
    assert rival.ask("acquire", "job", ttl=60) is None
    end(holder)

    fence = rival.ask("acquire", "job", ttl=60)

    assert fence is not None
    assert fence > old
    assert rival.ask("lease", "job")["holder"]["pid"] == rival.pid


@sqlite_if_long
def test_a_waiter_takes_over_when_the_holder_dies(pair):
    holder, rival = pair
    old = holder.ask("acquire", "job", ttl=60)
    rival.begin("acquire_and_time", "job", ttl=60, timeout=30)

    killed_at = kill(holder)
    fence, had_at = rival.answer()

    assert fence is not None
    assert fence > old
    assert had_at - killed_at < 3.0


def test_without_follow_dead_the_claim_is_free_after_the_ttl_and_not_before(pair):
    holder, rival = pair
    old = holder.ask("acquire", "job", ttl=1.5)
    kill(holder)
    lease = rival.ask("lease", "job")
    assert lease["fence"] == old

    fence, had_at = rival.ask("acquire_and_time", "job", ttl=60, timeout=20, follow_dead=False)
    taken = rival.ask("lease", "job")

    assert fence > old
    assert had_at > 0
    assert taken["acquired_at"] >= lease["expires_at"], "not before, by the store's clock"
    assert seconds_between(lease["expires_at"], taken["acquired_at"]) < 1.0


@sqlite_if_long
def test_a_process_with_the_pid_of_the_holder_is_not_the_holder(pair):
    """The holder's lease names its pid, but a start before that of the process which has the pid now."""
    holder, rival = pair
    holder.ask("pose_as_older")
    old = holder.ask("acquire", "job", ttl=60)

    fence = rival.ask("acquire", "job", ttl=60)

    assert fence is not None
    assert fence > old


@sqlite_if_long
def test_follow_dead_can_be_turned_off_for_an_alias(worker, store):
    store = store.with_claims(FOLLOW_DEAD=False)
    holder, rival = worker(store), worker(store)
    holder.ask("acquire", "job", ttl=60)
    kill(holder)

    assert rival.ask("acquire", "job", ttl=60) is None


@sqlite_if_long
def test_a_resting_claim_is_not_free_because_its_last_holder_died(pair):
    """min_hold outlives the process that asked for it, but not more than its time."""
    holder, rival = pair
    holder.ask("acquire", "job", ttl=60, min_hold=1.5)
    assert holder.ask("release", "job") == "released"
    kill(holder)

    assert rival.ask("acquire", "job") is None
    resting = rival.ask("lease", "job")
    assert rival.ask("acquire", "job", timeout=20) is not None
    taken = rival.ask("lease", "job")

    assert (resting["state"], resting["holder"]) == ("resting", None)
    assert 0 <= seconds_between(resting["expires_at"], taken["acquired_at"]) < 1.0


def seconds_between(before, after):
    return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
