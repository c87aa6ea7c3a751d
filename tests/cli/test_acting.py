"""`claims stop`, `clear-stop` and `release`, from code."""

import io
import json
import sys
import threading

import pytest

from django_claims import claim, list_stop_flags, stop_flag
from tests.helpers import wait_until


@pytest.fixture
def hold(in_memory):
    with claim("job", label="worker").acquire() as hold:
        yield hold


@pytest.fixture
def terminal(monkeypatch):
    """A terminal on which somebody types: `terminal("yes")`."""

    def types(text):
        class Typed(io.StringIO):
            def isatty(self):
                return True

        monkeypatch.setattr(sys, "stdin", Typed(text))

    return types


# stop


def test_stop_asks_this_run_and_says_whom(claims, hold):
    said = claims("stop", "job", "--reason", "too slow", "--by", "ann")

    flag = stop_flag("job")
    assert (flag.fence, flag.reason, flag.by, flag.keep) == (hold.fence, "too slow", "ann", False)
    assert said.code == 0
    assert ", worker), fence" in said.out


def test_stop_names_the_login_if_nobody_is_named(claims, hold, monkeypatch):
    monkeypatch.setenv("LOGNAME", "operator")

    claims("stop", "job")

    assert stop_flag("job").by.startswith("operator@")


def test_stop_of_nobody_is_4_and_stops_the_others_all_the_same(claims, hold):
    said = claims("stop", "nobody", "job")

    assert said.code == 4
    assert "Nobody has claim 'nobody'" in said.err
    assert stop_flag("job") is not None
    assert stop_flag("nobody") is None


def test_keep_stops_also_what_does_not_run_and_for_as_long_as_said(claims, hold):
    said = claims("stop", "job", "later", "--keep", "--for", "2h")

    assert said.code == 0
    assert [flag.keep for flag in list_stop_flags()] == [True, True]
    flag = stop_flag("later")
    assert (flag.expires_at - flag.requested_at).total_seconds() == pytest.approx(7200)
    assert "for 2.0 h" in said.out


def test_stop_gives_the_flags_as_json(claims, hold):
    said = claims("stop", "job", json=True)

    assert json.loads(said.out) == stop_flag("job").as_dict()


def test_a_wait_that_ends_before_the_run_is_75(claims, hold):
    said = claims("stop", "job", "--wait", "0.05")

    assert said.code == 75
    assert "Goes on still: job" in said.err
    assert hold.held


@pytest.mark.parametrize("wait", [["--wait", "20"], ["--wait"]])
def test_a_wait_returns_when_the_run_has_ended(claims, in_memory, wait):
    hold = claim("job").acquire()

    def work():
        wait_until(lambda: stop_flag("job"))
        hold.release()

    thread = threading.Thread(target=work)
    thread.start()
    said = claims("stop", "job", *wait)
    thread.join()

    assert said.code == 0
    assert said.lines[-1] == "Has ended: job"


# clear-stop


def test_clear_stop_lets_it_run_again(claims):
    claims("stop", "job", "--keep")

    said = claims("clear-stop", "job")

    assert (said.code, said.out) == (0, "Cleared: job\n")
    assert stop_flag("job") is None
    assert claims("clear-stop", "job").code == 4


def test_clear_stop_says_so_as_json(claims):
    claims("stop", "job", "--keep")

    said = claims("clear-stop", "job", "nobody", json=True)

    assert [json.loads(line) for line in said.lines] == [{"name": "job", "alias": "default", "cleared": True}]
    assert said.code == 4


# release


def test_release_breaks_the_run_with_that_fence(claims, hold):
    said = claims("release", "job", "--fence", str(hold.fence), "--yes")

    assert said.code == 0
    assert claim("job").lease() is None
    wait_until(lambda: hold.lost)


def test_release_gives_what_it_broke_as_json(claims, hold):
    said = claims("release", "job", "--yes", "--json", fence=hold.fence)

    broken = json.loads(said.out)
    assert (broken["name"], broken["fence"], broken["state"]) == ("job", hold.fence, "held")


def test_release_with_another_fence_is_75_and_changes_nothing(claims, hold):
    said = claims("release", "job", fence=hold.fence + 1, yes=True)

    assert said.code == 75
    assert f"with fence {hold.fence}" in said.err
    assert hold.verify()


def test_release_of_nobody_is_4(claims):
    assert claims("release", "job", "--fence", "1", "--yes").code == 4


def test_release_needs_a_terminal_or_yes(claims, hold, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))

    said = claims("release", "job", "--fence", str(hold.fence))

    assert said.code == 2
    assert "two may run at once" in said.err
    assert hold.verify()


def test_release_asks_on_a_terminal_and_says_that_two_may_run(claims, hold, terminal):
    terminal("yes\n")

    said = claims("release", "job", "--fence", str(hold.fence))

    assert said.code == 0
    assert "two may run at once" in said.out
    assert claim("job").lease() is None


@pytest.mark.parametrize("typed", ["no\n", "y\n", "\n", ""])
def test_release_changes_nothing_without_a_clear_yes(claims, hold, terminal, typed):
    terminal(typed)

    said = claims("release", "job", "--fence", str(hold.fence))

    assert said.code == 1
    assert hold.verify()
