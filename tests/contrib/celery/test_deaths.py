"""
How a run of a task can end, in every pool, with real workers: when its claim is free, and what the result says.

The lease is looked at as another machine would: what only a process of this one can know, that the
holder is dead, does not count as free.
"""

import os
import signal
from dataclasses import dataclass

import pytest
import redis

from django_claims import claim
from django_claims.clock import clock
from tests.contrib.celery.conftest import HERE, measured
from tests.helpers import stays, wait_until
from tests.processes.children import PROJECT, Child

SOON = 3.0  # for what is to happen at once, on a machine that has other things to do
ENDED = ("SUCCESS", "FAILURE", "REVOKED", "RETRY")


@dataclass(frozen=True)
class Row:
    """One way to end. `free`: "end" of the task by itself, "once" at once, "ttl"."""

    pool: str
    how: str
    free: str
    state: str  # of the result; "" for any
    task: str = "work"
    seconds: float = 30.0
    runs_again: bool = False

    def __str__(self):
        return f"{self.pool}: {self.how}"


ROWS = [
    # What Celery lets finish.
    Row("prefork", "SIGTERM, warm", "end", "SUCCESS", seconds=2),
    Row("threads", "SIGTERM, warm", "end", "SUCCESS", seconds=2),
    Row("gevent", "SIGTERM, warm", "end", "SUCCESS", seconds=2),
    Row("solo", "SIGTERM, warm", "end", "SUCCESS", seconds=2),
    Row("threads", "SIGQUIT, cold", "end", "SUCCESS", seconds=3),
    Row("threads", "SIGTERM, then SIGQUIT", "end", "SUCCESS", seconds=3),
    Row("threads", "soft shutdown, then cold", "end", "SUCCESS", seconds=3),
    Row("threads", "revoke(terminate)", "end", "SUCCESS", seconds=3),
    Row("threads", "hard time limit", "end", "SUCCESS", task="limited", seconds=4),
    Row("threads", "soft time limit", "end", "SUCCESS", task="softly_limited", seconds=3),
    Row("solo", "hard time limit", "end", "SUCCESS", task="limited", seconds=3),
    Row("solo", "soft time limit", "end", "SUCCESS", task="softly_limited", seconds=2),
    # What it ends.
    Row("prefork", "SIGQUIT, cold", "once", "RETRY"),
    Row("prefork", "soft shutdown, then cold", "once", "RETRY"),
    Row("prefork", "SIGTERM, then SIGQUIT", "once", "RETRY"),
    Row("prefork", "REMAP_SIGTERM=SIGQUIT", "once", "RETRY"),
    Row("gevent", "SIGQUIT, cold", "once", ""),
    Row("gevent", "SIGTERM, then SIGQUIT", "once", ""),
    Row("solo", "SIGQUIT, cold", "once", "FAILURE"),
    Row("solo", "SIGTERM, then SIGQUIT", "once", "FAILURE"),
    Row("prefork", "revoke(terminate)", "once", "REVOKED"),
    Row("prefork", "revoke(terminate, SIGUSR1)", "once", ""),  # FAILURE or REVOKED: child and worker both write one
    Row("prefork", "revoke(terminate, SIGQUIT)", "once", "REVOKED"),
    Row("prefork", "revoke(terminate, SIGKILL)", "once", "REVOKED"),
    Row("gevent", "revoke(terminate)", "once", "REVOKED"),
    Row("prefork", "soft time limit", "once", "FAILURE", task="softly_limited"),
    Row("prefork", "hard time limit", "once", "FAILURE", task="limited"),
    Row("gevent", "hard time limit", "once", "FAILURE", task="limited"),
    Row("prefork", "SIGTERM of the child", "once", ""),
    Row("prefork", "SIGKILL of the child", "once", "FAILURE"),
    Row("prefork", "SIGKILL of the child, late acks", "once", "SUCCESS", task="late", seconds=1.5, runs_again=True),
    # What nobody hears of.
    Row("prefork", "SIGKILL of the worker", "ttl", "", task="brief"),
    Row("threads", "SIGKILL of the worker", "ttl", "", task="brief"),
    Row("gevent", "SIGKILL of the worker", "ttl", "", task="brief"),
    Row("solo", "SIGKILL of the worker", "ttl", "", task="brief"),
]


def inflict(row, site, worker, sent, child):
    """Do to a running task what the row says; return when."""
    at = clock()
    match row.how:
        case "SIGTERM, warm":
            worker.send(signal.SIGTERM)
        case "SIGQUIT, cold" | "soft shutdown, then cold":
            worker.send(signal.SIGQUIT)
        case "REMAP_SIGTERM=SIGQUIT":
            worker.send(signal.SIGTERM)
        case "SIGTERM, then SIGQUIT":
            worker.send(signal.SIGTERM)
            wait_until(lambda: "Warm shutdown" in worker.log, 10)
            at = worker.send(signal.SIGQUIT)
        case "SIGKILL of the worker":
            worker.send(signal.SIGKILL)
        case "SIGTERM of the child":
            os.kill(child, signal.SIGTERM)
        case "SIGKILL of the child" | "SIGKILL of the child, late acks":
            os.kill(child, signal.SIGKILL)
        case "revoke(terminate)":
            site.app.control.revoke(sent.id, terminate=True)
        case how if how.startswith("revoke"):
            site.app.control.revoke(sent.id, terminate=True, signal=how.partition(", ")[2].rstrip(")"))
    return at


def how_to_start(row):
    how = {}
    if row.how == "soft shutdown, then cold":
        how["options"] = {"worker_soft_shutdown_timeout": 1.0}
    if row.how == "REMAP_SIGTERM=SIGQUIT":
        how["env"] = {"REMAP_SIGTERM": "SIGQUIT"}
    return how


def one_run(site, worker, row):
    """Send the row's task, wait for its start, do to it what the row says, and look at what is left."""
    name = f"task:work.{row.task}"
    sent = site.send(row.task, row.seconds)
    start = site.started(sent)
    lease = site.lease(name)
    assert (lease.fence, lease.holder.task_id, lease.holder.node) == (start["fence"], sent.id, worker.node)
    at = inflict(row, site, worker, sent, start["pid"])
    if row.free == "end":
        assert stays(lambda: site.events("left", sent.id) or site.lease(name), 1.0), "freed under a task that works"
        left = wait_until(lambda: site.events("left", sent.id), 15)[-1]["at"]
        measured(f"{row}: from the end of the task", site.free_within(name, SOON, left))
        assert site.events("end", sent.id)
    elif row.pool == "gevent" and "SIGQUIT" in row.how and stays(lambda: site.lease(name), 3.0):
        # Celery runs its handler in gevent's loop now and then, where it fails: the task was never told, and works.
        assert "Impossible to call blocking function" in worker.log
        assert not site.events("left", sent.id)
        worker.process.kill()
    elif row.free == "once":
        limit = {"limited": 2.0, "softly_limited": 1.0}.get(row.task, 0.0) + (1.0 if "soft shut" in row.how else 0.0)
        # A billiard child that is over its time is asked first, and killed after some seconds.
        took = wait_until(lambda: (gone := site.lease(name)) is None or gone.fence != start["fence"], SOON + limit + 25)
        took = clock() - at - limit
        measured(str(row), took)
        assert took < SOON
    else:
        # Another process of this machine can have the dead one's claim at once; from elsewhere it lasts for its TTL.
        wait_until(lambda: claim(name).available(), SOON)
        measured(f"{row}: as seen from this machine", clock() - at)
        assert site.lease(name).fence == start["fence"]
        wait_until(lambda: worker.process.poll() is not None, 5)
        measured(str(row), site.free_within(name, lease.ttl + 2, at))
    if row.runs_again:
        site.started(sent, 2, 15)
    if row.state:
        wait_until(lambda: sent.state in ENDED and sent.state == row.state, 10)
    return sent


def is_ended_by_it(row):
    return "SIGTERM" in row.how.split(" of ")[0] or "SIGQUIT, cold" in row.how or "soft shutdown" in row.how


FATAL = [row for row in ROWS if "of the worker" in row.how or ("child" not in row.how and "revoke" not in row.how
         and "limit" not in row.how)]  # fmt: skip
OTHERS = {pool: [row for row in ROWS if row not in FATAL and row.pool == pool] for pool in
          ("prefork", "threads", "gevent", "solo")}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("row", FATAL, ids=str)
def test_the_end_of_a_worker(site, row):
    worker = site.worker(row.pool, **how_to_start(row))

    one_run(site, worker, row)

    if row.pool != "solo" or "SIGQUIT" not in row.how:  # which Celery 5.5 survives, since the task gets its error
        worker.done(20)


@pytest.mark.long
@pytest.mark.parametrize("pool", OTHERS)
def test_the_end_of_a_task_whose_worker_goes_on(site, pool):
    # Of two children one is there at once when the other has to be replaced, for which the pool takes its time.
    worker = site.worker(pool, concurrency=1 if pool == "solo" else 2)

    for row in OTHERS[pool]:
        one_run(site, worker, row)
        # The same worker goes on, and so can the claim.
        again = site.send(row.task, 0)
        assert again.get(timeout=15) == "done", str(row)


def test_a_child_that_is_killed_is_seen_by_its_worker_which_frees_the_claim(site):
    worker = site.worker()

    one_run(site, worker, Row("prefork", "SIGKILL of the child", "once", "FAILURE"))

    wait_until(lambda: "Released what a dead process held" in worker.log, 30)  # said after it was done


@pytest.mark.long
def test_children_that_are_killed_in_their_first_moment_are_seen_as_well(site):
    """Each is started in the place of the one before, and is dead before anybody had a look at it."""
    site.worker()

    sent = [site.send("dies", number) for number in range(4)]

    for number, one in enumerate(sent):
        start = site.started(one)
        measured("killed in its first moment", site.free_within(f"task:work.dies:{number}", SOON, start["at"]))


def test_a_child_that_its_pool_has_forgotten_before_the_first_look_is_known(site):
    """What the pool does, in steps: it makes a child, finds it dead, and forgets it; the look comes after that."""
    path = os.pathsep.join([str(PROJECT), str(PROJECT.parent.parent.parent)])
    child = Child(str(HERE / "forgets.py"), env={**site.env, "PYTHONPATH": path}, cwd=site.directory)
    try:
        done = child.done(40)
    finally:
        child.close()

    assert done.code == 0, done.err
    assert float(done.out) < SOON
    assert "Released what a dead process held" in done.err


@pytest.mark.long
def test_a_worker_that_has_found_its_broker_again_still_sees_a_killed_child(site, redis_server):
    """Celery 5.5 throws away all that it had to do later when a connection is lost."""
    worker = site.worker(concurrency=2)
    with redis.Redis.from_url(redis_server.url) as client:
        client.client_kill_filter(_type="normal", skipme=True)
        client.client_kill_filter(_type="pubsub", skipme=True)
    wait_until(lambda: "Connection to broker lost" in worker.log, 15)

    one_run(site, worker, Row("prefork", "SIGKILL of the child", "once", "FAILURE"))
