"""Fork: a child has nothing of its parent's claims, and can take its own."""

import json
import signal

import pytest

from tests.helpers import wait_until
from tests.processes.children import end
from tests.processes.conftest import on_all_stores, sqlite_if_long


@pytest.fixture
def parent(worker, store):
    return worker(store)


@pytest.fixture
def other(worker, store):
    """A process that is not of the family."""
    return worker(store)


def read_report(path, seconds=20):
    wait_until(path.exists, seconds)
    return json.loads(path.read_text())


def test_a_child_does_not_hold_what_its_parent_holds(parent, tmp_path):
    fence = parent.ask("acquire", "p", ttl=60)
    report = tmp_path / "report"

    assert parent.ask("fork_and_look", "p", str(report)) == 0

    assert read_report(report) == {
        "held": False,
        "lost": True,
        "reason": "forked",
        "fence": fence,
        "lost_event": True,
        "renewed": False,
        "verified": False,
        "slept": True,  # cut short
        "released": "not_held",
        "all_holds": 0,
        "release_all": 0,
        "current": "None",
    }
    assert parent.ask("verify", "p") is True


@on_all_stores
def test_the_exit_of_a_child_leaves_its_parents_lease(parent, other):
    parent.ask("acquire", "p", ttl=60)
    before = other.ask("lease", "p")

    assert parent.ask("fork_and_leave") == 0

    after = other.ask("lease", "p")
    assert (after["fence"], after["expires_at"][:19]) == (before["fence"], before["expires_at"][:19])
    assert parent.ask("verify", "p") is True
    assert parent.ask("release", "p") == "released"
    assert not parent.errors, "the child has nothing to complain of"


@sqlite_if_long
def test_a_child_keeps_a_claim_of_its_own_and_not_that_of_its_dead_parent(parent, other, tmp_path):
    """C015: three TTLs for the child's own claim; the parent's ends within its TTL."""
    report, over = tmp_path / "report", tmp_path / "over"
    parent.ask("acquire", "p", ttl=1)
    child = parent.ask("fork_and_keep", "c", str(report), str(over), ttl=1)
    try:
        started = read_report(report)
        assert started["inherited"] == {"p": False}
        report.unlink()

        before = other.ask("lease", "p")
        parent.send(signal.SIGKILL)
        parent.process.wait(10)
        last = other.ask("lease", "p") or before  # on a busy machine it may have ended by now
        # Rule 9 off: the end of the lease is to be seen, not the end of its holder.
        assert other.ask("acquire", "p", timeout=20, ttl=60, follow_dead=False) is not None
        taken = other.ask("lease", "p")

        assert taken["acquired_at"] >= last["expires_at"]
        assert other.ask("lease", "p")["age"] < 1.0, "within the TTL, and nobody has renewed it"
        wait_until(lambda: is_of(other.ask("lease", "c"), started["fence"])["age"] > 3, 10)

        over.touch()
        assert read_report(report) == {"held": True, "released": "released"}
        assert other.ask("lease", "c") is None
        assert other.ask("verify", "p") is True, "the child's exit has not touched it"
    finally:
        end(child)


def is_of(lease, fence):
    assert lease is not None, "the child's claim has lapsed"
    assert lease["fence"] == fence
    return lease


@sqlite_if_long
def test_the_forked_workers_of_a_pool_take_claims_of_their_own(parent):
    parent.ask("acquire", "p", ttl=60)

    told = parent.ask("use_pool", 8)

    assert [found["held"] and found["renewed"] for found in told] == [True] * 8
    assert parent.pid not in {found["pid"] for found in told}
    assert {tuple(found["inherited"]) for found in told} == {(False,)}
    assert parent.ask("verify", "p") is True
    for number in range(8):
        assert parent.ask("lease", f"pool-{number}") is None


@on_all_stores
def test_a_program_started_by_the_holder_inherits_no_descriptor_of_the_store(parent):
    parent.ask("acquire", "p", ttl=60)

    open_files = parent.ask("fds_of_a_program")

    assert [name for name in open_files if "claims" in name or name.startswith("socket:")] == []


@sqlite_if_long
def test_a_program_that_outlives_the_holder_does_not_keep_its_lease(parent, other):
    old = parent.ask("acquire", "p", ttl=60)
    program = parent.ask("start_program")
    try:
        parent.send(signal.SIGKILL)
        parent.process.wait(10)

        assert other.ask("acquire", "p", ttl=60) > old
    finally:
        end(program)


@sqlite_if_long
def test_a_guarded_command_forks_a_child_that_leaves_by_the_way_of_all_programs(manage, store):
    command = manage(store, "report", "--do", "fork")

    done = command.done()

    assert done.out.splitlines() == ["child", "child ended 5, held True, verified True"]
    assert (done.code, done.err) == (0, "")


def test_a_guarded_command_that_looks_can_end_its_forked_children_by_sigterm(manage, redis):
    """As pools do. The command's own handler gives grace; a child has nothing that needs it, and would live on."""
    command = manage(redis, "report", "--do", "part")
    command.says("busy")

    command.tell("on")
    done = command.done()

    assert done.out.splitlines()[1:] in (["go on", f"ended {code}, held True"] for code in (-15, 143))
    assert (done.code, done.err) == (0, "")


@sqlite_if_long
@pytest.mark.parametrize("count", [8, pytest.param(30, marks=pytest.mark.long)])
def test_forks_among_threads_that_acquire_and_release_never_hang(parent, count):
    told = parent.ask("fork_among_threads", count, seconds=100)

    assert told == {"ended": [0] * count, "failures": [], "busy": True}
