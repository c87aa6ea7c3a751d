"""The thread that does what is due, and the schedule of many keys."""

import random
import threading

import pytest

from django_claims import heartbeat as module
from django_claims.clock import clock
from django_claims.heartbeat import Heartbeat, Schedule, poke
from tests.helpers import stays, wait_until


@pytest.fixture(autouse=True)
def short_idle(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.15)


class Work:
    """Work that counts its calls, and answers what it is told to."""

    def __init__(self, *answers, then=None):
        self.answers = list(answers)
        self.then = then
        self.times = []
        self.threads = set()

    def __call__(self):
        self.times.append(clock())
        self.threads.add(threading.current_thread())
        answer = self.answers.pop(0) if self.answers else self.then
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    @property
    def count(self):
        return len(self.times)


def ended(heartbeat):
    thread = heartbeat.thread
    wait_until(lambda: not heartbeat.running, 5)
    if thread is not None:
        thread.join(5)
        assert not thread.is_alive()


# The thread.


def test_nothing_runs_before_it_is_asked_for():
    work = Work()

    heartbeat = Heartbeat("one", work)

    assert not heartbeat.running
    assert work.count == 0


def test_the_thread_is_a_daemon_named_after_the_alias():
    heartbeat = Heartbeat("one", Work())

    heartbeat.ensure()

    assert heartbeat.thread.name == "django-claims one"
    assert heartbeat.thread.daemon
    ended(heartbeat)


def test_the_work_is_called_from_one_thread_at_the_times_that_it_tells():
    work = Work(lambda: clock() + 0.1, lambda: clock() + 0.1)
    heartbeat = Heartbeat("one", work)

    heartbeat.ensure()
    thread = heartbeat.thread
    wait_until(lambda: work.count >= 3)
    ended(heartbeat)

    assert work.threads == {thread}
    assert all(later - earlier > 0.09 for earlier, later in zip(work.times[:2], work.times[1:3], strict=True))


def test_it_ends_when_idle_and_starts_anew_when_asked():
    work, over = Work(), []
    heartbeat = Heartbeat("one", work, lambda: over.append(True))
    heartbeat.ensure()
    first = heartbeat.thread
    ended(heartbeat)

    heartbeat.ensure()

    assert over == [True]
    assert heartbeat.thread is not first
    ended(heartbeat)
    assert over == [True, True]


def test_it_stays_while_it_is_used():
    heartbeat = Heartbeat("one", Work())
    heartbeat.ensure()
    first = heartbeat.thread

    def use():
        heartbeat.ensure()
        return heartbeat.thread is first

    assert stays(use, 0.5)
    ended(heartbeat)


def test_it_stays_while_there_is_work_to_come():
    until = clock() + 0.6
    work = Work(then=lambda: until if clock() < until else None)
    heartbeat = Heartbeat("one", work)

    heartbeat.ensure()

    assert stays(lambda: heartbeat.running, 0.5)
    ended(heartbeat)
    assert work.count >= 2


def test_call_by_brings_a_call_forward():
    work = Work(lambda: clock() + 60)
    heartbeat = Heartbeat("one", work)
    heartbeat.ensure()
    wait_until(lambda: work.count == 1)
    wait_until(lambda: heartbeat._due > clock() + 50)

    heartbeat.call_by(clock() + 0.05)

    wait_until(lambda: work.count == 2, 2)
    assert work.times[1] - work.times[0] >= 0.04
    ended(heartbeat)


def test_call_by_never_puts_a_call_off():
    work = Work(lambda: clock() + 0.2)
    heartbeat = Heartbeat("one", work)
    heartbeat.ensure()
    wait_until(lambda: work.count == 1)

    heartbeat.call_by(clock() + 60)

    wait_until(lambda: work.count == 2, 2)
    ended(heartbeat)


def test_call_by_starts_the_thread():
    work = Work()
    heartbeat = Heartbeat("one", work)

    heartbeat.call_by(0.0)

    wait_until(lambda: work.count)
    ended(heartbeat)


def test_a_call_asked_for_while_the_work_runs_is_not_lost():
    entered, go_on = threading.Event(), threading.Event()

    def slow():
        entered.set()
        go_on.wait(5)

    work = Work(slow)
    heartbeat = Heartbeat("one", work)
    heartbeat.ensure()
    assert entered.wait(5)

    heartbeat.call_by(0.0)
    go_on.set()

    wait_until(lambda: work.count >= 2, 2)
    ended(heartbeat)


def test_it_survives_any_exception_and_tries_again_a_second_later(caplog, monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 1.5)
    work = Work(ValueError("x"), MemoryError())
    heartbeat = Heartbeat("one", work)

    heartbeat.ensure()

    first = heartbeat.thread
    wait_until(lambda: work.count >= 3, 4)
    assert work.threads == {first}
    assert all(0.9 < later - earlier < 2 for earlier, later in zip(work.times[:2], work.times[1:3], strict=True))
    assert [record.getMessage() for record in caplog.records] == [
        "Heartbeat work failed, and is tried again alias=one"
    ] * 2
    ended(heartbeat)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_it_survives_what_is_no_exception_too(error):
    work = Work(error)
    heartbeat = Heartbeat("one", work)

    heartbeat.ensure()

    wait_until(lambda: work.count >= 2, 3)
    ended(heartbeat)


def test_a_failure_at_its_end_is_logged_and_it_starts_again(caplog):
    def fails():
        raise ValueError("x")

    work = Work()
    heartbeat = Heartbeat("one", work, fails)
    heartbeat.ensure()
    ended(heartbeat)

    wait_until(lambda: "Heartbeat end failed alias=one" in caplog.text)
    heartbeat.ensure()

    assert heartbeat.running
    ended(heartbeat)


def test_a_refused_thread_is_told_and_asked_for_again_next_time(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    heartbeat = Heartbeat("one", Work())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            heartbeat.ensure()
        assert not heartbeat.running

    heartbeat.ensure()

    assert heartbeat.running
    ended(heartbeat)


def test_many_threads_that_ask_at_once_get_one_thread():
    heartbeat = Heartbeat("together", Work(lambda: clock() + 1))
    barrier = threading.Barrier(20)

    def ask():
        barrier.wait(5)
        heartbeat.ensure()

    askers = [threading.Thread(target=ask) for _ in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(5)

    assert len([thread for thread in threading.enumerate() if thread.name == "django-claims together"]) == 1
    heartbeat.call_by(0.0)
    ended(heartbeat)


def test_a_poke_reaches_the_running_thread_of_its_alias_and_no_other():
    works = {alias: Work(lambda: clock() + 60) for alias in ("poked", "other")}
    heartbeats = {alias: Heartbeat(alias, work) for alias, work in works.items()}
    idle = Heartbeat("poked", Work())
    for heartbeat in heartbeats.values():
        heartbeat.ensure()
    wait_until(lambda: all(work.count for work in works.values()))

    poke("poked")

    wait_until(lambda: works["poked"].count == 2, 2)
    assert heartbeats["poked"].poked
    assert works["other"].count == 1
    assert not idle.running
    heartbeats["other"].call_by(0.0)
    for heartbeat in heartbeats.values():
        ended(heartbeat)


# The schedule.


def test_keys_come_out_in_order_of_time():
    schedule = Schedule()
    for key, when in [("c", 3.0), ("a", 1.0), ("b", 2.0)]:
        schedule.set(key, when)

    assert schedule.next() == 1.0
    assert schedule.pop_due(2.0) == ["a", "b"]
    assert schedule.next() == 3.0
    assert schedule.pop_due(2.9) == []
    assert len(schedule) == 1


def test_a_key_is_due_once_at_the_time_that_was_set_last():
    schedule = Schedule()
    for when in (1.0, 5.0, 3.0, 5.0, 3.0):
        schedule.set("a", when)

    assert schedule.next() == 3.0
    assert schedule.pop_due(2.0) == []
    assert schedule.pop_due(9.0) == ["a"]
    assert schedule.pop_due(9.0) == []
    assert schedule.next() is None


def test_a_dropped_key_is_never_due():
    schedule = Schedule()
    schedule.set("a", 1.0)
    schedule.set("b", 2.0)

    schedule.discard("a")
    schedule.discard("unknown")

    assert schedule.next() == 2.0
    assert schedule.pop_due(5.0) == ["b"]


def test_bringing_forward_changes_known_later_keys_only():
    schedule = Schedule()
    schedule.set("a", 5.0)

    schedule.bring_forward("a", 9.0)
    later = schedule.next()
    schedule.bring_forward("a", 2.0)
    schedule.bring_forward("unknown", 1.0)

    assert later == 5.0
    assert schedule.next() == 2.0
    assert len(schedule) == 1


def test_dropped_keys_are_swept_out():
    schedule = Schedule()

    for number in range(10_000):
        schedule.set(number, float(number))
        schedule.discard(number)

    assert len(schedule) == 0
    assert len(schedule._heap) <= 65


def test_a_key_that_is_put_off_again_and_again_is_swept_too():
    schedule = Schedule()

    for number in range(10_000):
        schedule.set("a", float(number))

    assert len(schedule._heap) <= 65
    assert schedule.pop_due(10_000.0) == ["a"]


def test_any_run_of_changes_gives_what_a_plain_dict_would():
    chance, schedule, plain = random.Random(5), Schedule(), {}

    for _ in range(20_000):
        key, when = chance.randrange(100), chance.randrange(1000) / 10
        match chance.randrange(5):
            case 0 | 1:
                schedule.set(key, when)
                plain[key] = when
            case 2:
                schedule.discard(key)
                plain.pop(key, None)
            case 3:
                schedule.bring_forward(key, when)
                if key in plain:
                    plain[key] = min(plain[key], when)
            case 4:
                now = when / 20
                due = {key for key, at in plain.items() if at <= now}
                assert set(schedule.pop_due(now)) == due
                plain = {key: at for key, at in plain.items() if key not in due}
        assert schedule.next() == min(plain.values(), default=None)
        assert len(schedule) == len(plain)
