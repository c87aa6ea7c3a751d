"""One process takes a claim, another goes on with it."""

import json
import signal

import pytest

from tests.helpers import wait_until
from tests.processes.children import end
from tests.processes.conftest import sqlite_if_long


@pytest.fixture
def giver(worker, store):
    return worker(store)


@pytest.fixture
def taker(worker, store):
    return worker(store)


def kill(process):
    process.send(signal.SIGKILL)
    process.process.wait(10)


def test_another_process_goes_on_with_the_same_run(giver, taker):
    fence = giver.ask("acquire", "job", ttl=60)
    before = giver.ask("lease", "job")
    ticket = giver.ask("hand_over", "job")
    assert giver.ask("look", "job") == {"held": False, "lost": False, "reason": None, "fence": fence}

    assert taker.ask("adopt", "job", ticket, ttl=1) == fence

    lease = taker.ask("lease", "job")
    assert (lease["state"], lease["holder"]["pid"], lease["acquired_at"]) == ("held", taker.pid, before["acquired_at"])
    wait_until(lambda: taker.ask("lease", "job")["age"] > 2.5)
    assert taker.ask("verify", "job") is True, "the taker renews it"
    assert giver.ask("release", "job") == "not_held"
    assert taker.ask("release", "job") == "released"
    assert giver.ask("acquire", "job", ttl=60) > fence


@pytest.mark.parametrize("ending", ["exits", "is killed"])
def test_what_is_handed_over_outlives_its_giver(giver, taker, ending):
    fence = giver.ask("acquire", "job", ttl=60)
    ticket = giver.ask("hand_over", "job", valid=50)
    if ending == "exits":
        giver.process.stdin.close()
        assert giver.done().code == 0
    else:
        kill(giver)

    assert taker.ask("acquire", "job", ttl=60) is None, "it names the dead one, and is not followed"

    assert taker.ask("adopt", "job", ticket, ttl=60) == fence
    assert taker.ask("verify", "job") is True


@sqlite_if_long
def test_a_task_that_never_starts_keeps_the_name_for_as_long_as_the_ticket_is_good(giver, taker):
    giver.ask("acquire", "job", ttl=60)
    ticket = giver.ask("hand_over", "job", valid=1)
    kill(giver)

    fence = taker.ask("acquire", "job", ttl=60, timeout=20)

    assert fence is not None
    taker.ask("release", "job")
    name, text = taker.ask("adopt", "job", ticket)
    assert (name, "nobody adopted it in time" in text) == ("ClaimLost", True)


@sqlite_if_long
def test_who_waits_gets_the_name_after_the_adopter(giver, taker, worker, store):
    waiter = worker(store)
    fence = giver.ask("acquire", "job", ttl=60)
    waiter.begin("acquire_and_time", "job", ttl=60, timeout=50)
    ticket = giver.ask("hand_over", "job")

    assert taker.ask("adopt", "job", ticket, ttl=60) == fence
    assert taker.ask("verify", "job") is True
    assert taker.ask("release", "job") == "released"

    assert waiter.answer()[0] > fence


@sqlite_if_long
def test_the_death_of_the_adopter_is_followed(giver, taker):
    fence = giver.ask("acquire", "job", ttl=60)
    taker.ask("adopt", "job", giver.ask("hand_over", "job"), ttl=60)
    assert giver.ask("acquire", "job", ttl=60) is None

    kill(taker)

    assert giver.ask("acquire", "job", ttl=60) > fence


@sqlite_if_long
def test_of_two_deliveries_of_one_ticket_the_second_is_told_who_has_it(giver, taker, worker, store):
    other = worker(store)
    giver.ask("acquire", "job", ttl=60)
    ticket = giver.ask("hand_over", "job")
    taker.begin("adopt", "job", ticket, ttl=60)
    other.begin("adopt", "job", ticket, ttl=60)

    answers = [taker.answer(), other.answer()]

    (fence,) = [answer for answer in answers if isinstance(answer, int)]
    (refused,) = [answer for answer in answers if not isinstance(answer, int)]
    assert fence > 0
    assert refused[0] == "ClaimHeld"
    assert str((taker if answers[0] == fence else other).pid) in refused[1]


def test_a_forked_child_adopts_what_its_parent_hands_over(giver, taker, tmp_path):
    """As a program that becomes a daemon."""
    report, over = tmp_path / "report", tmp_path / "over"
    fence = giver.ask("acquire", "job", ttl=60)
    child = giver.ask("fork_and_adopt", "job", str(report), str(over), ttl=1)
    try:
        wait_until(report.exists, 20)
        assert json.loads(report.read_text()) == {"fence": fence, "renewed": True, "pid": child}
        report.unlink()

        kill(giver)
        wait_until(lambda: taker.ask("lease", "job")["age"] > 2.5)
        assert taker.ask("acquire", "job", ttl=60) is None

        over.touch()
        wait_until(report.exists, 20)
        assert json.loads(report.read_text()) == {"held": True, "released": "released"}
    finally:
        end(child)
