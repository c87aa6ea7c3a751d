"""The judges themselves: a small history with each fault, and the same one without it."""

import json

import pytest

from tests.faults.checker import Checker, Terms
from tests.faults.history import Writer, digest, read
from tests.faults.register import Register
from tests.faults.runs import Runs

TTL = 1.0


def grant(p, tok, fence, t, *, took=0.001, name="job", **more):
    return {
        "p": p,
        "ev": "grant",
        "n": [name],
        "tok": tok,
        "ttl": TTL,
        "i": 0,
        "t0": t,
        "t1": t + took,
        "fence": fence,
        **more,
    }


def renew(p, tok, fence, t, res="renewed", took=0.001):
    return {"p": p, "ev": "renew", "n": ["job"], "tok": tok, "fence": fence, "t0": t, "t1": t + took, "res": res}


def release(p, tok, fence, t, res="released", took=0.001, rest=0, name="job"):
    return {
        "p": p, "ev": "release", "n": [name], "tok": tok, "fence": fence, "i": 1, "t0": t, "t1": t + took, "res": res,
        "rest": rest,
    }  # fmt: skip


def ask(p, tok, t, verb="acquire", fence=0):
    return {
        "p": p,
        "ev": "ask",
        "verb": verb,
        "n": ["job"],
        "tok": tok,
        "i": 9,
        "t0": t,
        "fence": fence,
        "ttl": TTL,
        "rest": 0,
    }


def act(p, tok, t):
    return {"p": p, "ev": "act", "tok": tok, "t": t}


def opened(p, tok, fence, t, rd=0.6):
    return {"p": p, "ev": "open", "n": ["job"], "tok": tok, "fence": fence, "t": t, "rd": rd}


def refused(p, tok, t, why="held", took=0.001):
    return {
        "p": p, "ev": "refused", "n": ["job"], "tok": tok, "ttl": TTL, "i": 0, "t0": t, "t1": t + took, "which": "job",
        "why": why, "fence": 0,
    }  # fmt: skip


def lost(p, tok, fence, t, deadline, res="expired"):
    return {"p": p, "ev": "lost", "n": ["job"], "tok": tok, "fence": fence, "t": t, "deadline": deadline, "res": res}


def stop(fence, t, res="flag", keep=False):
    return {
        "p": "operator",
        "ev": "stop",
        "n": ["job"],
        "fence": fence,
        "keep": keep,
        "t0": t,
        "t1": t + 0.001,
        "res": res,
    }


def stopseen(p, tok, fence, t):
    return {"p": p, "ev": "stopseen", "n": ["job"], "tok": tok, "fence": fence, "t": t}


def rules(*events, **terms):
    return sorted(Checker(list(events), Terms(**terms)).found())


def fits(*events, **terms):
    return Register(Runs(list(events)), "job", Terms(**terms)).ok


def test_a_clean_history_is_clean():
    events = [
        grant("a", "A", 10, 1.0), opened("a", "A", 10, 1.002), renew("a", "A", 10, 1.4), act("a", "A", 1.9),
        refused("b", "B", 1.5), release("a", "A", 10, 1.95), grant("b", "B", 11, 1.96), release("b", "B", 11, 1.97),
    ]  # fmt: skip

    assert rules(*events, calm=True) == []
    assert fits(*events) is True


WIPED = {"p": "arena", "ev": "wiped", "t0": 1.1, "t1": 1.2}
WRITES = [{"p": p, "ev": "wrote", "row": "job", "value": 7, "fence": f, "t": 1.0} for p, f in (("a", 10), ("b", 11))]


def waited(p, tok, t0, t1, res="hold"):
    return {"p": p, "ev": "wait", "n": ["job"], "tok": tok, "t0": t0, "t1": t1, "timeout": 3.0, "res": res}


def adopted(p, tok, fence, t):
    return {
        "p": p, "ev": "adopted", "n": ["job"], "tok": tok, "ticket": "T", "i": 2, "ttl": TTL, "t0": t, "t1": t + 0.001,
        "fence": fence, "res": True,
    }  # fmt: skip


HANDED = {"p": "a", "ev": "handed", "n": ["job"], "tok": "A", "ticket": "T", "i": 1, "ttl": TTL, "res": True}
GIVEN = [HANDED | {"t0": 1.1, "t1": 1.101}, adopted("b", "B", 10, 1.2)]

BROKEN = {
    "granted before the other could have ended": (
        "I1", [grant("a", "A", 10, 1.0), grant("b", "B", 11, 1.5)], {}),
    "granted although it was renewed": (
        "I1", [grant("a", "A", 10, 1.0), renew("a", "A", 10, 1.8), grant("b", "B", 11, 2.2)], {}),
    "granted while it rests": (
        "I1", [grant("a", "A", 10, 1.0), release("a", "A", 10, 1.1, rest=500), grant("b", "B", 11, 1.3)], {}),
    "the same fence again": (
        "I2", [grant("a", "A", 10, 1.0), release("a", "A", 10, 1.1), grant("b", "B", 10, 1.2)], {}),
    "a smaller fence": (
        "I2", [grant("a", "A", 10, 1.0), release("a", "A", 10, 1.1), grant("b", "B", 9, 1.2)], {}),
    "a smaller fence after data loss": (
        "I2", [grant("a", "A", 10, 1.0), WIPED, grant("b", "B", 1, 1.3)], {}),
    "ended by one who was not the owner any more": (
        "I3", [grant("a", "A", 10, 1.0), grant("b", "B", 11, 2.1), release("a", "A", 10, 2.2)], {}),
    "renewed by one who was not the owner any more": (
        "I3", [grant("a", "A", 10, 1.0), grant("b", "B", 11, 2.1), renew("a", "A", 10, 2.2)], {}),
    "ended by another process": (
        "I3", [grant("a", "A", 10, 1.0), release("child of a", "A", 10, 1.1)], {}),
    "believed after another was granted": (
        "I4", [grant("a", "A", 10, 1.0), grant("b", "B", 11, 2.1), act("a", "A", 2.2)], {}),
    "believed beyond the deadline": (
        "I4", [grant("a", "A", 10, 1.0), opened("a", "A", 10, 1.01), act("a", "A", 1.7)], {}),
    "told of a loss too late": (
        "I4", [grant("a", "A", 10, 1.0), lost("a", "A", 10, 1.7, 1.6)], {}),
    "told of data loss too late": (
        "I4",
        [grant("a", "A", 10, 1.0), WIPED, grant("b", "B", 11, 1.3),
         act("a", "A", 1.9)],
        {"told_within": 0.5}),
    "held again after it was lost": (
        "I4", [{"p": "a", "ev": "revived", "n": ["job"], "tok": "A", "fence": 10, "t": 1.0}], {}),
    "two acknowledged the same value": (
        "I5", WRITES, {}),
    "renewed after its release": (
        "I6", [grant("a", "A", 10, 1.0), ask("a", "A", 1.2, "release", 10), renew("a", "A", 10, 1.4, "gone")], {}),
    "renewed after its loss": (
        "I6", [grant("a", "A", 10, 1.0), lost("a", "A", 10, 1.6, 1.6), renew("a", "A", 10, 1.8)], {}),
    "one token for two": (
        "I6", [ask("a", "T", 1.0), ask("b", "T", 2.0)], {}),
    "left at the end": (
        "I6", [{"p": "i", "ev": "left", "n": ["job"], "t": 9.0, "after": 3.0, "lease": "held"}], {}),
    "refused although free": (
        "I7", [grant("a", "A", 10, 1.0), release("a", "A", 10, 1.1), refused("b", "B", 1.2)], {}),
    "refused although expired": (
        "I7", [grant("a", "A", 10, 1.0), refused("b", "B", 3.2)], {}),
    "a stop seen by another run": (
        "I8", [grant("a", "A", 10, 1.0), stop(9, 0.9), stopseen("a", "A", 10, 1.2)], {}),
    "a stop seen twice": (
        "I8", [grant("a", "A", 10, 1.0), stop(10, 1.1), stopseen("a", "A", 10, 1.2), stopseen("a", "A", 10, 1.3)], {}),
    "a stop seen too late": (
        "I8", [grant("a", "A", 10, 1.0), stop(10, 1.1), stopseen("a", "A", 10, 2.9)], {"stop_within": 1.5}),
    "a stop never seen": (
        "I8", [grant("a", "A", 10, 1.0), stop(10, 1.1), act("a", "A", 2.9)], {"stop_within": 1.5}),
    "lost for no reason": (
        "I9", [grant("a", "A", 10, 1.0), lost("a", "A", 10, 1.3, 1.6, "forgotten")], {"calm": True}),
    "served before one who had come earlier": (
        "I12",
        [waited("a", "A", 1.0, 3.0), grant("a", "A", 12, 2.9), waited("b", "B", 1.5, 1.8), grant("b", "B", 10, 1.7)],
        {"in_line": True}),
    "served while one who had come earlier waited in vain": (
        "I12", [waited("a", "", 1.0, 2.5, "none"), waited("b", "B", 1.5, 1.8), grant("b", "B", 10, 1.7)],
        {"in_line": True}),
    "a ticket that was good twice": (
        "I11", [grant("a", "A", 10, 1.0), *GIVEN, adopted("c", "C", 10, 1.3)], {}),
    "a ticket that was good for too long": (
        "I11", [grant("a", "A", 10, 1.0), GIVEN[0], adopted("b", "B", 10, 2.5)], {}),
    "adopted with another fence": (
        "I11", [grant("a", "A", 10, 1.0), GIVEN[0], adopted("b", "B", 11, 1.2)], {}),
    "renewed after it was handed over": (
        "I11", [grant("a", "A", 10, 1.0), *GIVEN, renew("a", "A", 10, 1.4, "taken")], {}),
    "granted although it was handed over": (
        "I1", [grant("a", "A", 10, 1.0), GIVEN[0], grant("b", "B", 11, 1.5)], {}),
    "believed after another had adopted": (
        "I4", [grant("a", "A", 10, 1.0), *GIVEN, act("a", "A", 1.4)], {}),
    "an exception that nobody promised": (
        "I10", [{"p": "a", "ev": "crash", "t": 1.0, "text": "KeyError"}], {}),
    "an answer of a dead store": (
        "I10", [{"p": "arena", "ev": "down", "t0": 1.0, "t1": 2.0}, refused("b", "B", 1.5)], {"refusals": False}),
    "a call that takes too long": (
        "I10", [grant("a", "A", 10, 1.0, took=0.9)], {"verb_within": 0.5}),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_found(what):
    rule, events, terms = BROKEN[what]

    assert rule in rules(*events, **terms)


def test_no_accusation_where_an_answer_is_missing():
    """The release may have been done, the acquire may have been granted, the renewal may have come through."""
    released = [grant("a", "A", 10, 1.0), ask("a", "A", 1.2, "release", 10), grant("b", "B", 11, 1.3)]
    granted = [ask("a", "A", 1.0), refused("b", "B", 1.5)]

    assert rules(*released) == []
    assert fits(*released) is True
    assert rules(*granted) == []
    assert fits(*granted) is True


def test_no_accusation_where_two_came_at_the_same_time_or_one_had_given_up():
    served = [waited("b", "B", 1.1, 1.8), grant("b", "B", 10, 1.7), release("b", "B", 10, 1.81)]
    events = [*served, waited("a", "A", 1.0, 2.5), grant("a", "A", 12, 2.4), waited("c", "", 0.5, 1.7, "none")]

    assert rules(*events, in_line=True) == []


def test_a_hold_that_is_handed_over_is_one_run_also_when_its_giver_is_dead():
    dead = {"p": "arena", "ev": "dead", "of": "a", "t": 1.15}
    events = [
        grant("a", "A", 10, 1.0), *GIVEN, refused("c", "C", 1.18), renew("b", "B", 10, 1.5), release("b", "B", 10, 1.6),
        grant("c", "C", 11, 1.7),
    ]  # fmt: skip

    assert rules(*events, dead) == []
    assert fits(*events, dead) is True
    assert fits(*events[:2], grant("c", "C", 11, 1.3), dead) is False, "who is dead had given it away"


def test_no_accusation_where_the_order_is_open():
    """Both were under way at the same time: the second may have been granted first, and released."""
    events = [
        grant("a", "A", 11, 1.0, took=0.5), grant("b", "B", 10, 1.1), release("b", "B", 10, 1.2),
        release("a", "A", 11, 1.6),
    ]  # fmt: skip

    assert rules(*events) == []
    assert fits(*events) is True


def test_a_dead_holder_may_be_followed_at_once_and_a_living_one_not():
    dead = {"p": "arena", "ev": "dead", "of": "a", "t": 1.2}
    events = [grant("a", "A", 10, 1.0), grant("b", "B", 11, 1.3)]

    assert rules(*events, dead) == []
    assert fits(*events, dead) is True
    assert fits(*events) is False


def test_what_an_operator_ends_may_be_taken_and_its_holder_is_told_in_time():
    force = {"p": "operator", "ev": "force", "n": ["job"], "fence": 10, "t0": 1.2, "t1": 1.21, "res": True}
    events = [grant("a", "A", 10, 1.0), force, grant("b", "B", 11, 1.3), act("a", "A", 1.4)]

    assert rules(*events, told_within=1.0) == []
    assert fits(*events) is True
    assert rules(*events, told_within=0.05) == ["I4"]


def test_a_process_that_stood_still_is_not_late():
    gap = {"p": "a", "ev": "gap", "t0": 1.55, "t1": 1.9}

    assert rules(grant("a", "A", 10, 1.0), lost("a", "A", 10, 1.92, 1.6), gap) == []


def test_the_stores_own_times_sharpen_the_judgement():
    """Asked for long, granted at an exact moment: before the other had ended."""
    slow = grant("b", "B", 11, 1.1, took=2.0, srv=101_500_000)
    events = [grant("a", "A", 10, 1.0, srv=101_000_500), renew("a", "A", 10, 1.3) | {"srv": 101_300_500}, slow]

    assert rules(*events) == ["I1"]
    assert rules(*[{**event, "srv": None} for event in events]) == []


def test_times_of_a_clock_that_was_turned_are_not_used():
    events = [
        grant("a", "A", 10, 1.0, srv=101_000_500), release("a", "A", 10, 1.1), grant("b", "B", 11, 1.2, srv=1_000_000),
    ]  # fmt: skip

    assert Runs(events).clocks.agree is False
    assert rules(*events) == []


IMPOSSIBLE = {
    "two owners": [grant("a", "A", 10, 1.0), grant("b", "B", 11, 1.5)],
    "renewed after another": [grant("a", "A", 10, 1.0), grant("b", "B", 11, 2.1), renew("a", "A", 10, 2.2)],
    "released after another": [grant("a", "A", 10, 1.0), grant("b", "B", 11, 2.1), release("a", "A", 10, 2.2)],
    "refused by nobody": [grant("a", "A", 10, 1.0), release("a", "A", 10, 1.1), refused("b", "B", 1.2)],
    "told that it is gone too early": [grant("a", "A", 10, 1.0), renew("a", "A", 10, 1.2, "gone")],
    "renewed after it was gone": [
        grant("a", "A", 10, 1.0), renew("a", "A", 10, 2.1, "gone"), renew("a", "A", 10, 2.2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_the_register_finds_no_order_for_what_cannot_be(what):
    assert fits(*IMPOSSIBLE[what]) is False


def test_the_register_finds_the_order_of_many():
    events, at = [], 1.0
    for turn in range(300):
        tok = f"T{turn}"
        events += [refused("c", f"C{turn}", at + 0.002), grant("a", tok, turn, at), release("a", tok, turn, at + 0.004)]
        events += [
            grant("d", f"D{turn}", turn + 0.5, at + 0.0045, took=0.004),
            release("d", f"D{turn}", turn + 0.5, at + 0.009),
        ]
        at += 0.02

    register = Register(Runs(events), "job")

    assert register.ok is True
    assert register.steps < 10 * len(events)


def test_a_history_is_written_and_read_and_a_torn_line_left_out(tmp_path):
    writer = Writer(tmp_path, "w1")
    writer.write("act", tok=digest("secret"), t=1.5)
    with writer.path.open("a") as file:
        file.write('{"p": "w1", "ev": "ac')

    assert read(tmp_path) == [{"p": "w1", "ev": "act", "tok": digest("secret"), "t": 1.5}]
    assert "secret" not in writer.path.read_text()


def test_a_broken_line_in_the_middle_is_an_error(tmp_path):
    (tmp_path / "w1.jsonl").write_text("nonsense\n" + json.dumps({"p": "w1"}) + "\n")

    with pytest.raises(ValueError, match="line 1 is no event"):
        read(tmp_path)


def test_one_of_several_names_may_be_refused_while_another_is_tried_with_it():
    """Where they are taken one after the other, as on memcached, and given back as one of them is not free."""
    together = refused("a", "A", 1.0, took=0.1) | {"n": ["job", "other"], "which": "other"}
    events = [grant("c", "C", 9, 0.5, name="other"), together, refused("b", "B", 1.05)]

    assert (rules(*events), fits(*events)) == (["I7"], False)
    assert (rules(*events, together=False), fits(*events, together=False)) == ([], True)


def test_a_grant_that_took_long_may_have_come_after_a_loss_of_data_that_came_after_another():
    slow, quick = grant("b", "B", 11, 1.0, took=0.5), grant("a", "A", 10, 1.05)

    assert rules(slow, quick, WIPED) == []
    assert rules(slow, quick) == ["I1"]


def test_a_database_grants_when_it_says_or_later():
    """It says when the statement began, and that waits while the row is another's."""
    first, second = grant("a", "A", 10, 1.0, srv=101_000_500), grant("b", "B", 11, 1.1, took=0.5, srv=101_100_500)
    events = [first, renew("a", "A", 10, 1.05) | {"srv": 101_050_500}, release("a", "A", 10, 1.4), second]

    assert "I1" in rules(*events)
    assert rules(*events[:-1], {**second, "early": True}) == []


def test_one_force_ends_a_run_that_was_handed_over_once():
    force = {"p": "operator", "ev": "force", "n": ["job"], "fence": 10, "t0": 1.3, "t1": 1.31, "res": True}

    assert fits(grant("a", "A", 10, 1.0), *GIVEN, force, grant("c", "C", 11, 1.4)) is True
