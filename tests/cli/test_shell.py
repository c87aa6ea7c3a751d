"""`manage.py claims` from the shell: the main paths on real stores, Django's options, exit codes."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.conftest import Said
from tests.processes.children import PROJECT
from tests.processes.conftest import sqlite_if_long


@pytest.fixture
def holder(worker, store):
    """A process that holds 'a b'."""
    process = worker(store)
    assert process.ask("acquire", "a b", label="importer")
    return process


@pytest.fixture
def operator(worker, store):
    """Call the command in another process, which spares starting one each time."""
    process = worker(store)

    def call(*arguments):
        told = process.ask("call", "claims", *arguments)
        return Said(told.get("returncode", 0), told["out"], told["err"] + told.get("text", ""))

    return call


def test_an_operator_looks_stops_and_lets_run_again(operator, holder):
    listed = operator("list", "--no-color")
    shown = json.loads(operator("show", "--json", "a b").out)
    stopped = operator("stop", "a b", "later", "--keep", "--reason", "disk full", "--by", "ann", "--wait", "0.1")
    kept = [json.loads(line) for line in operator("list", "--json").lines]
    cleared = operator("clear-stop", "a b", "later")

    head, line = listed.lines
    assert head.split() == ["NAME", "HOLDER", "HELD-FOR", "BEAT", "LEFT", "STATE", "PROGRESS"]
    assert line.startswith("'a b'")
    assert f"(pid {holder.pid}, importer)" in line
    assert (shown["name"], shown["state"], shown["holder"]["pid"]) == ("a b", "held", holder.pid)
    assert stopped.code == 75
    assert "Kept stopped: later, until cleared" in stopped.out
    assert [(found["name"], found.get("keep")) for found in kept] == [("a b", None), ("later", True)]
    assert kept[0]["stop_flag"]["reason"] == "disk full"
    assert cleared.code == 0
    assert holder.ask("verify", "a b")


@sqlite_if_long
def test_an_operator_breaks_a_claim_and_only_the_one_seen(operator, holder):
    fence = json.loads(operator("show", "a b", "--json").out)["fence"]

    asked = operator("release", "a b", "--fence", str(fence))
    wrong = operator("release", "a b", "--fence", "1", "--yes")
    right = operator("release", "a b", "--fence", str(fence), "--yes", "--by", "ann")
    again = operator("release", "a b", "--fence", str(fence), "--yes")

    assert (asked.code, wrong.code, right.code, again.code) == (2, 75, 0, 4)
    assert "two may run at once" in asked.err
    assert not holder.ask("verify", "a b")


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--settings", "settings", "-v", "2", "--traceback", "--skip-checks", "--pythonpath", "."],
        ["--settings=settings", "-v", "2", "--traceback", "--skip-checks", "--pythonpath=.", "list"],
    ],
    ids=["after", "before"],
)
def test_djangos_own_options_may_stand_before_and_after_the_verb(shell, redis, arguments):
    done = shell(redis, *arguments)

    assert (done.code, done.out, done.err) == (0, "No claim is held.", "")


@pytest.mark.parametrize(("arguments", "code"), [(["show", "x"], 4), ([], 2)])
def test_exit_codes(shell, redis, arguments, code):
    done = shell(redis, *arguments)

    assert done.code == code
    assert "Traceback" not in done.err


@sqlite_if_long
def test_colours_come_by_the_style_alone(operator, holder):
    assert "\x1b[" in operator("list", "--force-color").out
    assert "\x1b[" not in operator("list").out


def test_a_reader_that_has_seen_enough_is_no_traceback(redis, tmp_path, shell, worker):
    holder = worker(redis)
    for number in range(3):
        holder.ask("acquire", f"n{number}")
    words = [sys.executable, str(PROJECT / "manage.py"), "claims", "list", "--json"]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "PYTHONUNBUFFERED": "1", **redis.env}
    listing = subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    listing.stdout.close()
    said = listing.stderr.read()
    listing.stderr.close()

    assert listing.wait(30) == 141
    assert said == ""


@sqlite_if_long
def test_ctrl_c_while_it_waits_is_no_traceback_and_the_stop_stays(manage, holder, store):
    waiting = manage(store.with_env(PYTHONUNBUFFERED="1"), "claims", "stop", "a b", "--wait")
    assert waiting.line().startswith("Asked to stop: a b")

    waiting.send(signal.SIGINT)
    done = waiting.done()

    assert (done.code, done.err) == (130, "")
    assert holder.ask("lease", "a b")["stop_flag"] is not None
