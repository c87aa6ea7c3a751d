"""Who holds, and whether that process is over."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from django_claims import Holder, holders
from django_claims.clock import wall
from django_claims.holders import ProcessId, default_label, this_holder, this_process
from tests.helpers import wait_until


@pytest.fixture
def child():
    """A child process that sleeps."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def process_of(pid):
    return ProcessId(space=this_process().space, pid=pid, start=holders._start_of(pid))


@pytest.mark.parametrize(
    "argv, label",
    [
        (["manage.py", "nightly_report", "--password", "hunter2"], "manage.py nightly_report"),
        (["/srv/app/manage.py", "import_feed", "https://user:hunter2@example.org"], "manage.py import_feed"),
        (["/usr/bin/django-admin", "migrate"], "django-admin migrate"),
        (["/site-packages/django/__main__.py", "migrate"], "django migrate"),
        (["manage.py", "--settings=hunter2", "migrate"], "manage.py"),
        (["manage.py"], "manage.py"),
        (["manage.py", "hunter2!"], "manage.py"),
        (["/usr/bin/gunicorn", "app.wsgi", "hunter2"], "gunicorn"),
        (["/site-packages/celery/__main__.py", "-A", "hunter2", "worker"], "celery"),
        (["script.py", "hunter2"], "script.py"),
        (["-c", "hunter2"], "python"),
        (["", "hunter2"], "python"),
        (["-m", "hunter2"], "python"),
        ([], "python"),
    ],
)
def test_a_label_is_the_program_and_its_command_and_never_an_argument(argv, label):
    found = default_label(argv)

    assert found == label
    assert "hunter2" not in found


def test_this_process_is_described_as_it_is():
    holder = this_holder()

    assert holder.host == socket.gethostname()
    assert holder.pid == os.getpid()
    assert holder.label == default_label(sys.argv)
    assert timedelta(0) <= wall() - holder.started_at < timedelta(hours=12)
    assert holder.processes == (this_process(),)
    assert this_process().pid == os.getpid()
    assert this_process().start > 0


def test_a_label_of_its_own_is_put_on_one_line_and_cut():
    holder = this_holder("  a\nb" + "c" * 300, node="worker\n1", task_id="t" * 300)

    assert holder.label.startswith("a bccc")
    assert len(holder.label) == len(holder.task_id) == 200
    assert holder.node == "worker 1"


def test_a_holder_is_written_for_people():
    assert str(Holder(host="web-1", pid=4242, label="manage.py x")) == "web-1 (pid 4242, manage.py x)"
    assert str(Holder(host="web-1", pid=4242)) == "web-1 (pid 4242)"


def test_what_is_for_everybody_is_json_and_names_no_process_facts():
    holder = this_holder("job")

    found = json.loads(json.dumps(holder.as_dict()))

    assert sorted(found) == ["host", "label", "node", "pid", "started_at", "task_id"]
    assert this_process().space not in repr(holder) + str(holder)


def test_a_holder_comes_back_from_a_store_as_it_was():
    holder = this_holder("naïve job", node="n", task_id="t")

    copy = Holder.unpack(holder.packed)

    assert replace(copy, started_at=None) == replace(holder, started_at=None)
    assert abs(copy.started_at - holder.started_at) < timedelta(seconds=1)
    assert "\n" not in holder.packed


def test_a_holder_written_by_a_later_version_can_be_read():
    fields = [*json.loads(this_holder("job").packed), {"new": 1}]

    assert Holder.unpack(json.dumps(fields)).label == "job"


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", "[]", "5", "null", '["h"]', '["h", "x", 0, "", "", "", []]', '["h", 1, 0, "", "", "", [[1]]]',
     '["h", 1, 0, "", "", "", 5]', '["h", null, 0, "", "", "", []]'],
)  # fmt: skip
def test_what_is_no_holder_is_a_value_error_and_nothing_else(text):
    with pytest.raises(ValueError):
        Holder.unpack(text)


@pytest.mark.parametrize("started", ["1000000000000000000", "-1000000000000000000", "1e30"])
def test_a_start_beyond_all_dates_is_a_value_error_and_nothing_else(started):
    with pytest.raises(ValueError):
        Holder.unpack(f'["h", 1, {started}, "", "", "", []]')


# Dead or alive.


def test_itself_is_alive():
    assert this_process().is_dead() is False
    assert this_holder().is_dead() is False


def test_its_own_pid_with_another_start_is_one_that_was_before():
    assert replace(this_process(), start=this_process().start - 1).is_dead() is True


def test_its_own_pid_with_an_unknown_start_is_alive():
    assert replace(this_process(), start=0).is_dead() is False


def test_a_running_child_is_alive(child):
    assert process_of(child.pid).is_dead() is False


def test_a_child_that_ended_is_dead(child):
    process = process_of(child.pid)

    child.kill()
    child.wait()

    assert process.is_dead() is True


def test_a_child_that_nobody_waited_for_is_dead(child):
    process = process_of(child.pid)

    child.kill()

    wait_until(lambda: process.is_dead(), 5)
    assert holders._start_of(child.pid) == process.start  # it is still listed


def test_a_stopped_child_is_alive(child):
    process = process_of(child.pid)

    child.send_signal(signal.SIGSTOP)

    assert process.is_dead() is False


def test_a_pid_that_came_round_is_another_process(child):
    assert replace(process_of(child.pid), start=process_of(child.pid).start - 1).is_dead() is True


def test_a_running_pid_with_an_unknown_start_is_alive(child):
    assert replace(process_of(child.pid), start=0).is_dead() is False


@pytest.mark.parametrize("space", ["", "another machine"])
def test_about_another_machine_nobody_here_can_tell(child, space):
    process = replace(process_of(child.pid), space=space)

    child.kill()
    child.wait()

    assert process.is_dead() is False


def test_without_a_space_of_its_own_nobody_is_found_dead(child, monkeypatch):
    process = replace(process_of(child.pid), space="")
    monkeypatch.setattr(holders, "this_process", lambda: ProcessId("", os.getpid(), 0))

    child.kill()
    child.wait()

    assert process.is_dead() is False


def test_without_pidfd_the_dead_are_found_by_kill_0(child, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = process_of(child.pid)
    before = process.is_dead()

    child.kill()
    child.wait()

    assert before is False
    assert process.is_dead() is True


@pytest.mark.parametrize("error", [PermissionError, OSError])
def test_an_error_that_says_nothing_counts_as_alive(child, monkeypatch, error):
    def fails(*args):
        raise error

    process = process_of(child.pid)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", fails, raising=False)
        with_pidfd = process.is_dead()
        patch.delattr(os, "pidfd_open")
        patch.setattr(os, "kill", fails)
        without_pidfd = process.is_dead()

    assert with_pidfd is False
    assert without_pidfd is False


def test_looking_at_a_process_leaves_no_descriptor_open(child):
    process = process_of(child.pid)
    process.is_dead()
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(20):
        process.is_dead()

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_program_and_its_keeper_are_dead_when_both_are(child):
    ended = ProcessId(this_process().space, child.pid, process_of(child.pid).start - 1)
    one_lives = Holder(host="h", pid=1, processes=(ended, this_process()))
    both_ended = Holder(host="h", pid=1, processes=(ended, ended))

    assert one_lives.is_dead() is False
    assert both_ended.is_dead() is True


def test_a_holder_that_names_no_process_is_never_dead():
    assert Holder(host="h", pid=1).is_dead() is False


@pytest.mark.parametrize("comm", ["a) b", "((", "x y z"])
def test_a_program_with_an_odd_name_has_a_start_all_the_same(tmp_path, comm):
    program = tmp_path / comm
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(program), "60"])
    try:
        start = wait_until(lambda: holders._start_of(process.pid))
    finally:
        process.kill()
        process.wait()

    assert abs(start - this_process().start) < 100 * 3600 * os.sysconf("SC_CLK_TCK")
