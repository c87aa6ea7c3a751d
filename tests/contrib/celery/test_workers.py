"""What tasks under real workers do when they are refused, stopped, tried again; and what workers leave alone."""

import itertools
import signal
import time

import pytest
from celery import chain, chord, group

from django_claims import claim, clear_stop, list_claims, list_stop_flags, request_stop
from django_claims.clock import clock
from tests.contrib.celery.conftest import measured
from tests.helpers import stays, wait_until
from tests.processes.children import SECONDS

POOLS = ["prefork", "threads", "gevent", "solo"]


def test_a_task_that_is_refused_or_stopped_tells_its_sender_and_the_log(site, taken):
    worker = site.worker("threads", concurrency=2)
    with taken("task:work.work") as hold:
        skipped = site.send("work").get(timeout=15)
    assert (skipped["skipped"], skipped["claim"]) == ("held", "task:work.work")
    assert skipped["holder"]["pid"] == hold.holder.pid
    (line,) = wait_until(lambda: [line for line in worker.log.splitlines() if "Task skipped" in line], SECONDS)
    assert "task:work.work" in line and f"pid {hold.holder.pid}" in line

    sent = site.send("looking", 30)
    site.started(sent)
    at = clock()
    assert request_stop("task:work.looking", reason="wrong file", by="ana")
    stopped = sent.get(timeout=15)
    measured("from the stop to the result", clock() - at)
    assert stopped == {"stopped": True, "claim": "task:work.looking", "reason": "wrong file", "by": "ana"}
    assert site.send("looking", 0).get(timeout=15) == "done"  # the next run is not meant

    request_stop("task:work.looking", keep=True, reason="until monday")
    assert site.send("looking").get(timeout=15)["skipped"] == "kept stopped"
    assert clear_stop("task:work.looking")
    assert site.send("looking").get(timeout=15) == "done"


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")  # by Celery 5.6, of redis-py 8
def test_refused_tasks_in_chains_groups_and_chords_let_the_others_go_on(site, taken):
    site.worker("threads", concurrency=4)
    task = site.app.signature
    site.app.conf.result_chord_join_timeout = 10
    with taken("task:work.work"):
        chained = chain(task("work.work"), task("work.after")).apply_async()
        grouped = group(task("work.work"), task("work.other")).apply_async()
        gathered = chord([task("work.work"), task("work.other")], task("work.gather")).apply_async()
        failed = chain(task("work.strict"), task("work.after")).apply_async()

        assert chained.get(timeout=15)["after"]["skipped"] == "held"
        assert [isinstance(each, dict) or each for each in grouped.get(timeout=15)] == [True, "other"]
        assert gathered.get(timeout=15)[0]["skipped"] == "held"
        with pytest.raises(Exception, match="is held by"):
            failed.get(timeout=15)
        waiting = chain(task("work.patient"), task("work.after")).apply_async()
        assert stays(lambda: waiting.parent.state in ("PENDING", "RETRY", "STARTED"), 1.0)
    assert waiting.get(timeout=30) == {"after": "done"}


@pytest.mark.long
def test_a_task_that_waits_its_turn_runs_once_the_claim_is_free(site, taken):
    site.worker("threads", concurrency=4)
    with taken("task:work.work"):
        sent = [site.send("patient", 0.2) for _ in range(3)]
        wait_until(lambda: all(each.state == "RETRY" for each in sent), 15)
        assert site.events("start") == []
    at = clock()

    assert [each.get(timeout=60) for each in sent] == ["done"] * 3

    measured("three that wait their turn, from the end of the holder to the end of the last", clock() - at)
    runs = sorted((site.events("start", s.id)[0]["at"], site.events("end", s.id)[0]["at"]) for s in sent)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))


@pytest.mark.long
def test_after_a_hard_time_limit_and_after_a_revocation_it_runs_again_and_skips_say_so(site):
    worker = site.worker(concurrency=2)
    site.send("limited", 30)
    wait_until(lambda: site.lease("task:work.limited"), 10)
    outcomes = []
    for _ in range(8):
        outcomes.append(site.send("limited", 0).get(timeout=15))
        if outcomes[-1] == "done":
            break
        time.sleep(0.5)  # between two messages, or all eight are skipped before the limit has come
    assert outcomes[-1] == "done" and outcomes[0]["skipped"] == "held"
    wait_until(lambda: worker.log.count("Task skipped") == len(outcomes) - 1, SECONDS)

    running = site.send("work", 30)
    site.started(running)
    site.app.control.revoke(running.id, terminate=True)
    wait_until(lambda: site.lease("task:work.work") is None, 5)
    assert site.send("work", 0).get(timeout=15) == "done"


@pytest.mark.long
def test_a_task_that_tries_itself_again_is_not_refused_by_its_own_earlier_try(site):
    site.worker(concurrency=2)

    again, auto = site.send("tries_again", 2), site.send("retried")

    assert again.get(timeout=30) == 2
    assert [event["retries"] for event in site.events("start", again.id)] == [0, 1, 2]
    with pytest.raises(ValueError, match="again"):
        auto.get(timeout=30)
    assert len(site.events("start", auto.id)) == 3
    # The last one rests: it was released before min_hold was over.
    assert site.lease("task:work.tries_again").state == "resting"


@pytest.mark.long
@pytest.mark.parametrize("pool", POOLS)
def test_a_warm_shutdown_stops_what_wants_to_know_and_puts_late_acks_back(site, pool):
    worker = site.worker(pool, concurrency=1 if pool == "solo" else 2)
    task = "stoppable" if pool != "solo" else "late_stoppable"
    sent = site.send(task, 40)
    late = site.send("late_stoppable", 40) if pool != "solo" else sent
    for each in {sent, late}:
        site.started(each)

    at = worker.send(signal.SIGTERM)

    for each in {sent, late}:
        left = wait_until(lambda: site.events("left", each.id), 15)[0]["at"]  # noqa: B023  called in here
        measured(f"{pool}: from SIGTERM to the end of a task with stop_on_shutdown", left - at)
    worker.done(50)  # a child of Celery 5.5 whose result nobody takes any more waits for 30 s
    assert list_claims().total == 0
    if sent is not late:
        stopped = sent.get(timeout=10)
        assert (stopped["stopped"], stopped["claim"]) == (True, "task:work.stoppable")
        assert "SIGTERM" in stopped["reason"]
    assert late.state not in ("SUCCESS", "FAILURE")
    assert list_stop_flags() == []
    # A worker of the same name is not meant by what was said to the last one.
    site.count -= 1
    other = site.worker(pool)
    assert other.node == worker.node
    again = site.started(late, 2, 15)
    assert stays(lambda: not site.events("left", late.id)[1:], 1.5)
    measured(f"{pool}: from SIGTERM to the next start, under another worker", again["at"] - at)


@pytest.mark.long
def test_tasks_with_late_acks_that_a_cold_shutdown_ended_run_again(site):
    worker = site.worker()
    sent = site.send("late", 4)
    site.started(sent)

    worker.send(signal.SIGQUIT)
    worker.done(20)
    assert site.lease("task:work.late") is None
    site.worker()

    assert sent.get(timeout=40) == "done"
    assert len(site.events("start", sent.id)) == 2


@pytest.mark.long
def test_what_a_child_left_unreleased_is_released_as_it_ends(site):
    site.worker("prefork", "--max-tasks-per-child", "1")

    site.send("leaves_one").get(timeout=15)

    wait_until(lambda: site.lease("left behind") is None, 5)


@pytest.mark.long
def test_workers_that_come_and_go_leave_the_holds_of_others_alone(site):
    first = site.worker()
    sent = site.send("work", 120)
    fence = site.started(sent)["fence"]
    mine = claim("task:of the test", ttl=60).acquire()

    for how in (signal.SIGTERM, signal.SIGKILL):
        second = site.worker("prefork", "-Q", "nothing")
        assert site.lease("task:work.work").fence == fence
        second.send(how)
        second.done(20)
        assert site.lease("task:work.work").fence == fence
        assert site.lease("task:of the test").fence == mine.fence
    assert first.process.poll() is None
    assert not site.events("left", sent.id)
    assert mine.release()


@pytest.mark.long
def test_a_worker_that_is_started_again_frees_what_it_held_when_it_was_killed(site):
    first = site.worker()
    sent = site.send("work", 60)
    site.started(sent)
    first.send(signal.SIGKILL)
    first.done(10)
    assert site.lease("task:work.work") is not None
    site.count -= 1

    again = site.worker()

    assert again.node == first.node
    wait_until(lambda: site.lease("task:work.work") is None, SECONDS)
    wait_until(lambda: "Released what a dead process held" in again.log, SECONDS)  # said after it was done


@pytest.mark.long
def test_a_pool_that_spawns_its_children_tells_them_too(site):
    import celery

    if celery.VERSION < (5, 7):
        pytest.skip("worker_pool_start_method came with Celery 5.7")
    worker = site.worker(options={"worker_pool_start_method": "spawn"})
    sent = site.send("stoppable", 40)
    site.started(sent)

    worker.send(signal.SIGTERM)

    assert sent.get(timeout=20)["stopped"] is True
    worker.done(20)


@pytest.mark.long
def test_the_worker_says_which_promises_it_cannot_keep(site):
    worker = site.worker("threads")

    said = [line for line in worker.log.splitlines() if "django_claims.W" in line]

    assert any("W152" in line and "work.limited" in line and "'threads'" in line for line in said)
    assert any("W150" in line and "work.late'" in line for line in said)


@pytest.mark.long
def test_a_task_goes_on_with_a_claim_that_this_process_took(site):
    site.worker()
    hold = claim("import", ttl=30).acquire()
    ticket = hold.hand_over(valid=20)
    assert claim("import").acquire() is None

    sent = site.send("adopts", "import", ticket)

    assert sent.get(timeout=15) is True
    assert site.events("start", sent.id)[0]["fence"] == hold.fence
    assert site.lease("import") is None
    with pytest.raises(Exception, match=r"over"):
        site.send("adopts", "import", ticket).get(timeout=15)
