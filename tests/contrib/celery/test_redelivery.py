"""Messages that a real broker delivers again: how often their work begins, and how often it ends."""

import contextlib
import signal
import threading

import pytest

from tests.contrib.celery.conftest import measured
from tests.helpers import stays, wait_until

pytestmark = pytest.mark.long

VISIBLE = 3


@pytest.fixture
def impatient(site):
    """
    A broker that delivers again after 3 s what is not acknowledged.

    Consumers look for that now and then, some of them seldom; one that belongs to the test does each half second.
    """
    transport = {"global_keyprefix": site.prefix, "visibility_timeout": VISIBLE}
    site.options = {"transport": transport}
    site.app.conf.broker_transport_options = transport
    over = threading.Event()
    swept = []

    def sweep():
        with site.app.connection_for_read() as connection:
            channel = connection.default_channel
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    channel.qos.restore_visible(num=100, interval=1)
                    swept.append(1)

    thread = threading.Thread(target=sweep)
    thread.start()
    yield site
    over.set()
    thread.join(10)
    assert swept


def counts(site, sent):
    return len(site.events("start", sent.id)), len(site.events("end", sent.id))


def overlaps(site, sent):
    """Return how often a run began while another was at work."""
    at_work, found = 0, 0
    for event in site.events(task_id=sent.id):
        if event["what"] == "start":
            found += at_work > 0
            at_work += 1
        elif event["what"] == "end":
            at_work -= 1
    return found


def test_without_a_guard_a_task_longer_than_the_visibility_timeout_runs_beside_itself(impatient):
    """What the others are about; it shows that the broker does deliver again here."""
    impatient.worker()
    impatient.worker()

    sent = impatient.send("unguarded", 8)

    wait_until(lambda: counts(impatient, sent)[0] >= 2, 20)
    assert overlaps(impatient, sent)
    measured(f"unguarded, late acks: {counts(impatient, sent)[0]} starts for one send", 0)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_task_longer_than_the_visibility_timeout_runs_once(impatient, pool):
    workers = [impatient.worker(pool), impatient.worker(pool)]

    sent = impatient.send("late", 2 * VISIBLE + 1)
    impatient.started(sent)

    states = set()
    while not impatient.events("left", sent.id):
        states.add(sent.state)
    assert states <= {"PENDING", "STARTED"}  # what waits touches no result
    assert sent.get(timeout=30) == "done"
    wait_until(lambda: "not run again" in workers[0].log + workers[1].log, 40)
    assert "was delivered again and waits" in workers[0].log + workers[1].log
    assert stays(lambda: counts(impatient, sent) == (1, 1), VISIBLE + 2)
    assert sent.state == "SUCCESS" and sent.result == "done"
    measured(f"guarded, late acks, {pool}: {counts(impatient, sent)[0]} start for one send", 0)


def test_a_task_with_a_countdown_over_the_visibility_timeout_runs_once(impatient):
    """Each worker has a copy in line, and all of them are due in the same moment."""
    for _ in range(2):
        impatient.worker("threads", concurrency=2)

    sent = impatient.send("work", 0.5, countdown=VISIBLE + 2)
    twice = impatient.send("unguarded_early", 0.5, countdown=VISIBLE + 2)

    wait_until(lambda: counts(impatient, twice)[1] >= 2, 30)
    wait_until(lambda: counts(impatient, sent)[1] >= 1, 30)
    assert stays(lambda: counts(impatient, sent)[0] == 1, VISIBLE + 1)
    assert counts(impatient, sent) == (1, 1)
    measured(f"countdown: {counts(impatient, sent)[0]} start; unguarded: {counts(impatient, twice)[0]}", 0)


@pytest.mark.parametrize("follow", [True, False], ids=["same machine", "as from another machine"])
def test_the_task_of_a_killed_worker_is_run_by_another_one(impatient, follow):
    """Whole worker killed: the broker delivers again after the visibility timeout, and then nobody is in the way."""
    env = {"JOBS_CLAIMS": f'{{"FOLLOW_DEAD": {str(follow).lower()}}}'}
    first = impatient.worker(env=env)
    sent = impatient.send("late", 60)
    impatient.started(sent)
    second = impatient.worker(env=env)
    at = first.send(signal.SIGKILL)

    start = impatient.started(sent, 2, 30)

    measured(f"killed worker, late acks, follow_dead={follow}: from death to the next start", start["at"] - at)
    assert second.process.poll() is None
    assert start["at"] - at < VISIBLE + 4 + 6
    assert counts(impatient, sent)[0] == 2


def test_a_child_that_kills_itself_in_its_task_has_it_run_again_at_once(site, tmp_path):
    worker = site.worker(concurrency=2)

    sent = site.send("late", 0, str(tmp_path / "died"))

    assert sent.get(timeout=30) == "done"
    first, second = site.events("start", sent.id)
    measured("killed child, late acks: from its start to the next one", second["at"] - first["at"])
    assert second["at"] - first["at"] < 9.0  # the pool looks for its dead each 5 s
    assert second["fence"] > first["fence"] and second["pid"] != first["pid"]
    assert stays(lambda: len(site.events("start", sent.id)) == 2, 1.0)
    assert worker.process.poll() is None


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent", "solo"])
def test_on_rabbitmq_the_task_of_a_killed_worker_is_run_by_another_one_at_once(site, rabbitmq, pool):
    site.use_broker(rabbitmq)
    first = site.worker(pool)
    sent = site.send("late", 60)
    site.started(sent)
    second = site.worker(pool)
    site.started(sent)

    at = first.send(signal.SIGKILL)
    start = site.started(sent, 2, 30)

    measured(f"rabbitmq, {pool}, killed worker, late acks: from death to the next start", start["at"] - at)
    assert start["at"] - at < 6.0
    assert counts(site, sent) == (2, 0)
    assert second.process.poll() is None


def test_on_rabbitmq_what_wants_to_know_of_a_shutdown_goes_back_and_a_refused_one_waits(site, rabbitmq, taken):
    site.use_broker(rabbitmq)
    first = site.worker(concurrency=2)
    sent = site.send("late_stoppable", 4)
    site.started(sent)
    first.send(signal.SIGTERM)
    first.done(50)  # a child of Celery 5.5 whose result nobody takes any more waits for 30 s
    with taken("task:work.work"):
        site.worker(concurrency=2)
        waits = site.send("patient")
        again = site.started(sent, 2)
        wait_until(lambda: waits.state == "RETRY", 15)

    assert again["pid"] != first.pid
    assert sent.get(timeout=20) == "done"
    assert waits.get(timeout=30) == "done"
