"""Several real beats on a real broker, and what is sent when one of them dies."""

import contextlib
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import uuid

import pytest

from django_claims.clock import clock
from django_claims.test import wait_until
from tests.conftest import missing
from tests.contrib.celery.beats import APP, ROOT, Beat, Sends
from tests.servers import freeze

TTL = 4.0


def need(package):
    if importlib.util.find_spec(package) is None:
        missing(f"{package} is not installed")


@pytest.fixture
def env(redis_server, tmp_path):
    return {
        "BEAT_BROKER_URL": redis_server.url,
        "BEAT_STORE_URL": redis_server.url,
        "BEAT_STORE": "redis",
        "BEAT_PREFIX": f"beat-{uuid.uuid4().hex}",
        "BEAT_DATABASE": str(tmp_path / "db.sqlite3"),
        "BEAT_TTL": str(TTL),
    }


@pytest.fixture
def sends(redis_server, env):
    found = Sends(redis_server, env["BEAT_PREFIX"])
    yield found
    found.close()


@pytest.fixture
def start(env, tmp_path):
    """Start a beat: `start(…)`; in a directory of its own, or in `cwd`."""
    started = []

    def start(*arguments, cwd=None, more=None, **how):
        cwd = cwd or tmp_path / f"beat-{len(started)}"
        started.append(Beat({**env, **(more or {})}, cwd, *arguments, **how))
        return started[-1]

    yield start
    for beat in started:
        beat.close()


def active_and_standby(start, **how):
    """Start two, and tell which is which."""
    beats = [start(**how), start(**how)]
    wait_until(lambda: sum(beat.is_active for beat in beats) == 1, 60, what="one active beat")
    first, second = sorted(beats, key=lambda beat: not beat.is_active)
    second.says("Standing by: Claim 'beat:beats' is held by")
    return first, second


@pytest.mark.parametrize("store", ["redis", pytest.param("sqlite", marks=pytest.mark.long)])
def test_a_standby_of_the_same_machine_takes_over_at_once_from_one_that_was_killed_and_one_that_ended(
    store, start, sends, env
):
    env["BEAT_STORE"] = store
    first, second = active_and_standby(start)
    sends.wait(3)
    assert sends.of(by=second.pid) == []

    killed = first.send(signal.SIGKILL)
    sends.wait(3, by=second.pid)
    third = start()
    third.says("Standing by:")
    ended = second.send(signal.SIGTERM)
    assert second.end() == 0
    sends.wait(2, by=third.pid)

    assert sends.doubled() <= 1  # the one in flight when the first was killed
    assert sends.of(by=second.pid)[0].at - killed < TTL
    assert sends.of(by=third.pid)[0].at - ended < TTL
    assert third.log.count("Standing by") == 1  # once, not at each look
    assert sends.of("never") == []


@pytest.mark.long
def test_a_standby_elsewhere_takes_over_within_the_ttl(start, sends):
    first, second = active_and_standby(start, more={"BEAT_FOLLOW_DEAD": "no"})
    sends.wait(2)

    killed = first.send(signal.SIGKILL)
    took_over = sends.wait(2, by=second.pid)[0].at

    assert sends.doubled() <= 1
    assert took_over - killed < TTL + 3  # and one look, one tick and a busy machine


@pytest.mark.long
def test_a_beat_that_was_stopped_beyond_the_ttl_steps_down_and_sends_nothing_more(start, sends):
    first, second = active_and_standby(start)
    sends.wait(2)

    freeze(first.pid)
    sends.wait(3, by=second.pid)
    woken = first.send(signal.SIGCONT)
    first.says("Standing by again")
    sends.wait(2, by=second.pid, after=clock())

    assert len(sends.of(by=first.pid, after=woken)) <= 1  # the send that it was stopped in, if it was
    assert sends.doubled() <= 1
    assert first.process.poll() is None

    second.send(signal.SIGTERM)  # and back
    sends.wait(2, by=first.pid, after=woken)


@pytest.mark.long
def test_beats_in_one_directory_share_the_file_of_the_schedule(start, sends, tmp_path):
    first, second = active_and_standby(start, cwd=tmp_path / "shared")
    sends.wait(2)

    first.send(signal.SIGTERM)
    sends.wait(2, by=second.pid)

    assert sends.doubled() == 0
    assert "corrupted" not in first.log + second.log


@pytest.mark.long
def test_a_beat_that_starts_later_counts_from_the_last_run_and_not_from_its_start(start, sends):
    more = {"BEAT_SCHEDULE": json.dumps({"rare": 6})}
    first = start(more=more)
    sent = sends.wait(1, "rare")[0].at
    first.send(signal.SIGTERM)
    assert first.end() == 0
    wait_until(lambda: clock() > sent + 2.5)

    second = start(more=more)  # with nothing on file
    wait_until(lambda: second.is_active, 60, what="another active beat")
    active = clock()
    again = sends.wait(2, "rare")[1].at

    assert again - sent > 5.5
    assert again - active < 5


@pytest.mark.long
def test_beat_inside_of_workers(start, sends):
    workers = [start("-B", "--pool", "solo", "-Q", "nobody", program="worker") for _ in range(2)]
    sends.wait(3)
    pids = {send.pid for send in sends.of()}
    assert len(pids) == 1

    wait_until(lambda: sum("Standing by: " in worker.log for worker in workers) == 1, 60)
    active = next(worker for worker in workers if "Standing by: " not in worker.log)
    active.send(signal.SIGTERM)
    assert active.end() == 0
    sends.wait(2, after=clock())

    assert len({send.pid for send in sends.of()}) == 2
    assert sends.doubled() == 0


@pytest.fixture
def beat_tables(env, tmp_path):
    """django-celery-beat's tables, in the database of the beats."""
    need("django_celery_beat")
    more = {"BEAT_APPS": json.dumps(["django_celery_beat"])}
    migrate = "from django.core.management import call_command; call_command('migrate', verbosity=0)"
    done = subprocess.run(
        [sys.executable, "-c", f"import {APP}; {migrate}"],
        env={**os.environ, **env, **more, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return more


@pytest.mark.long
def test_a_schedule_in_the_database(start, sends, beat_tables, env):
    first, second = active_and_standby(start, scheduler="QuickDatabaseScheduler", more=beat_tables)
    sends.wait(3)

    first.send(signal.SIGKILL)  # what it sent is not in the database yet
    sends.wait(3, by=second.pid)

    second.send(signal.SIGTERM)
    assert second.end() == 0
    assert sends.doubled() <= 1
    with contextlib.closing(sqlite3.connect(env["BEAT_DATABASE"])) as database:
        query = "SELECT total_run_count FROM django_celery_beat_periodictask WHERE name = 'every-second'"
        (counted,) = database.execute(query).fetchone()
    # Both beats' sends, though the first one never wrote its own there; but for those in flight at the two ends.
    assert counted <= len(sends.of()) <= counted + 2
