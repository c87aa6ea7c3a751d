"""The beat that is active, and those that stand by: schedulers of one process, each with a claim's word for it."""

import importlib.util
import signal
import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.beat import Scheduler, Service
from celery.schedules import crontab

from django_claims import claim, claim_backends, clear_stop, force_release, list_claims, request_stop
from django_claims.backends import memory
from django_claims.clock import clock
from django_claims.contrib.celery import ClaimedPersistentScheduler, ClaimedSchedulerMixin, beat, last_runs, sends
from django_claims.contrib.celery.last_runs import LastRuns, Run, packed, unpacked
from django_claims.contrib.celery.sends import run_of
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.leases import Progress
from tests.backends.memcached_server import MemcachedServer, find_memcached
from tests.conftest import missing
from tests.helpers import claims_settings, faults, stays, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)

NAME = "beat:project"
LAST_RUNS = LastRuns(claim(NAME), "beat").name
HOUR = 3600.0


class ClaimedScheduler(ClaimedSchedulerMixin, Scheduler):
    claim_ttl = 60  # that no test waits for, however busy the machine


class ClaimedFileScheduler(ClaimedPersistentScheduler):
    claim_ttl = 60


class BriefScheduler(ClaimedScheduler):
    claim_ttl = 0.9


@pytest.fixture(autouse=True)
def claims(settings, monkeypatch):
    settings.CLAIMS = claims_settings(TTL=60)
    monkeypatch.setattr(beat, "AFTER_STOP_SECONDS", 0.1)
    monkeypatch.setattr(sends, "RETRY_SECONDS", 0.05)
    return settings


@pytest.fixture
def app():
    """An app whose broker is this process; what is sent stays in it."""
    app = Celery("project", broker=f"memory://{uuid.uuid4().hex}", backend="cache+memory://", set_as_current=False)
    app.conf.beat_schedule = {"quick": {"task": "quick", "schedule": 0.05}, "slow": {"task": "slow", "schedule": HOUR}}
    return app


@pytest.fixture
def make(app, tmp_path):
    """Make schedulers: `make()`; each with a file of its own, if it has one at all."""
    made = []

    def make(cls=ClaimedScheduler, **how):
        made.append(cls(app=app, schedule_filename=str(tmp_path / f"schedule-{len(made)}"), **how))
        made[-1].sent = sent = []
        send_task = made[-1].send_task
        made[-1].send_task = lambda task, *args, **kwargs: (sent.append(task), send_task(task, *args, **kwargs))[1]
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.close()


def tick(scheduler, times=1):
    """Look so many times, without the pauses that Celery would make."""
    return [scheduler.tick() for _ in range(times)][-1]


def tick_until(scheduler, condition, seconds=5.0):
    wait_until(lambda: (tick(scheduler), condition())[1], seconds)


def is_quiet(*schedulers, seconds=0.2):
    """Look for a while, and say whether nothing was sent though much was due."""
    before = [len(scheduler.sent) for scheduler in schedulers]
    looks = [lambda scheduler=scheduler: tick(scheduler) for scheduler in schedulers]
    return stays(lambda: [look() for look in looks] and before == [len(each.sent) for each in schedulers], seconds)


def said(caplog, text):
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


# One is active, the others stand by.


def test_one_beat_sends_and_the_others_stand_by_and_say_so_once(make, caplog):
    first, second = make(), make()
    tick(first)

    for _ in range(4):
        assert tick(second) == beat.LOOK_SECONDS
    tick_until(first, lambda: first.sent.count("quick") >= 3)

    assert second.sent == []
    assert len(said(caplog, "Standing by: Claim 'beat:project' is held by")) == 1
    assert len(said(caplog, "Active: this beat sends the schedule")) == 1


def test_a_standby_opens_no_file_and_reads_no_schedule(make, tmp_path):
    first, second = make(ClaimedFileScheduler), make(ClaimedFileScheduler)
    tick(first)
    tick(second, 3)

    assert list(tmp_path.glob("schedule-0*"))
    assert not list(tmp_path.glob("schedule-1*"))
    assert second.schedule == {}


def test_what_is_made_for_a_look_only_takes_nothing(make):
    assert make(ClaimedFileScheduler, lazy=True).info
    assert claim(NAME).lease() is None


def test_the_claim_is_named_after_the_app_unless_the_class_names_it(make, app):
    class Other(ClaimedScheduler):
        claim_name = "beat:other"

    tick(make())
    tick(make(Other))

    assert {lease.name for lease in list_claims(match="beat:*") if "last-runs" not in lease.name} == {
        NAME,
        "beat:other",
    }
    assert claim(NAME).lease().holder.label == "celery beat"


def test_an_active_beat_looks_at_its_hold_each_second_however_long_the_schedule_sleeps(make, app):
    app.conf.beat_schedule = {"slow": {"task": "slow", "schedule": HOUR}}

    assert tick(make(), 2) == pytest.approx(beat.LOOK_SECONDS, abs=0.1)


def test_without_claims_it_is_the_scheduler_that_it_was(make, settings):
    settings.CLAIMS = None
    first = make()

    tick_until(first, lambda: first.sent.count("quick") >= 2)


def test_a_guessed_backend_that_keeps_nobody_out_is_refused(make, settings):
    del settings.CLAIMS
    settings.INSTALLED_APPS = ["django_claims"]

    with pytest.raises(InvalidClaimsSetting, match="would run beside itself"):
        tick(make())


# The next one goes on where the last one was.


def at(scheduler, name):
    return scheduler.schedule[name].last_run_at


@pytest.mark.parametrize("cls", [ClaimedScheduler, ClaimedFileScheduler])
def test_a_standby_takes_over_and_adopts_the_last_runs(make, cls):
    first = make(cls)
    tick(first)
    first.schedule["slow"].last_run_at -= timedelta(minutes=50)  # as if it had run for so long
    first.schedule["slow"].total_run_count = 7
    first._heap = None
    first._sends.runs["slow"] = run_of(first.schedule["slow"])
    tick_until(first, lambda: "quick" in first.sent)
    last, ran = at(first, "quick"), at(first, "slow")
    second = make(cls)
    tick(second)

    first.close()
    tick(second)

    assert at(second, "slow") == ran
    assert second.schedule["slow"].total_run_count == 7
    assert at(second, "quick") >= last
    assert "slow" not in first.sent + second.sent


def test_a_tick_that_was_due_while_nobody_was_active_is_sent_by_the_next_one(make):
    first = make()
    tick(first)
    first._sends.runs["slow"] = Run(first._sends.runs["slow"].at_us - 2 * 3600 * 10**6, 1)
    first._sends._has_news = True
    tick(first)
    first.close()
    second = make()

    tick_until(second, lambda: "slow" in second.sent)


def test_its_own_later_run_is_kept_and_a_start_is_not_taken_for_one(make):
    scheduler, now = make(), datetime.now(UTC)
    entry = scheduler.Entry(name="x", task="x", schedule=60, app=scheduler.app)
    earlier = Run(int((now - timedelta(minutes=5)).timestamp() * 1e6), 3)

    scheduler.adopt(entry, earlier)
    assert (run_of(entry), entry.total_run_count) == (earlier, 3)  # what it had was the time of its making

    later = entry.last_run_at = now
    scheduler.adopt(entry, earlier)
    assert entry.last_run_at == later


def test_a_naive_last_run_is_utc_and_stays_naive(make):
    scheduler = make()
    entry = scheduler.Entry(name="x", task="x", schedule=60, app=scheduler.app)
    entry.last_run_at = datetime(2026, 1, 1)
    run = Run(int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1e6), 1)

    scheduler.adopt(entry, run)

    assert entry.last_run_at == datetime(2026, 1, 2)
    assert run_of(entry) == run


def test_a_crontab_in_a_time_zone_goes_on_where_it_was(make, app):
    app.conf.timezone = "America/New_York"
    app.conf.beat_schedule = {"nightly": {"task": "nightly", "schedule": crontab(minute=0, hour=2)}}
    first = make()
    tick(first)
    ran = first._sends.runs["nightly"] = Run(int(datetime(2026, 3, 8, 5, 59, tzinfo=UTC).timestamp() * 1e6), 4)
    first._sends._has_news = True
    tick(first)
    first.close()
    second = make()
    second.sent.append("nothing yet")

    tick(second)

    assert run_of(second.schedule["nightly"]).times == 5  # it was due, and was sent
    assert second.sent == ["nothing yet", "nightly"]
    assert second._sends.runs["nightly"].at_us > ran.at_us
    assert at(second, "nightly").tzinfo is not None


def test_an_entry_that_left_the_schedule_leaves_the_last_runs_too(make, app):
    first = make()
    tick(first, 2)
    del first.schedule["slow"]
    tick_until(first, lambda: "quick" in first.sent)
    first.close()

    assert "slow" not in last_runs.runs_of(claim_backends["default"].lease(LAST_RUNS))


def test_a_failed_send_counts_as_sent_as_it_does_with_celery(make):
    first = make()
    tick(first)

    def fail(*args, **kwargs):
        raise OSError("no broker")

    first.send_task = fail
    before = first._sends.runs["quick"]
    tick_until(first, lambda: first._sends.runs["quick"].at_us > before.at_us)

    assert first._hold.held


# Losing it.


def test_a_beat_that_lost_its_claim_steps_down_and_comes_back(make, caplog):
    first = make()
    tick(first)
    force_release(NAME, fence=first._hold.fence)
    wait_until(lambda: first._hold.lost)
    with claim(NAME) as other:
        tick_until(first, lambda: first._hold is None)
        count = len(first.sent)
        assert is_quiet(first)
        assert other.held
    assert len(said(caplog, "Standing by again")) == 1

    tick_until(first, lambda: len(first.sent) > count)


def test_nothing_is_sent_once_the_claim_is_lost_though_the_broker_was_waited_for(make):
    connected = []

    class Slow(ClaimedScheduler):
        @property
        def producer(self):
            force_release(NAME, fence=self._hold.fence)
            self._hold.renew()
            connected.append(clock())

    first = make(Slow)
    tick_until(first, lambda: connected)

    assert first.sent == []
    assert first._hold is None


def test_a_deposed_beat_writes_no_last_runs(make, caplog):
    """Its note is refused, and it learns from that."""
    first = make()
    tick(first)
    force_release(NAME, fence=first._hold.fence)
    second = make()
    tick(second)  # adopts, and is the one who writes
    kept = claim_backends["default"].lease(LAST_RUNS).progress

    first._sends.runs["slow"] = Run(1, 1)
    first._sends.write()

    assert claim_backends["default"].lease(LAST_RUNS).progress == kept
    assert first._hold.lost


def test_a_beat_whose_store_forgot_everything_learns_it_from_its_next_note(make):
    first, second = make(), make()
    tick(first)
    memory.forget("default")
    tick(second)
    assert second._hold.held

    count = len(first.sent)
    tick_until(first, lambda: first._hold is None)

    assert len(first.sent) <= count + 1


def test_a_deposed_beat_writes_no_schedule(make):
    written = []

    class Store(Scheduler):
        def sync(self):
            written.append(self)

    class Mine(ClaimedSchedulerMixin, Store):
        claim_ttl = 60

    first = make(Mine)
    first.sync()
    assert written == []
    tick(first)
    first.sync()
    assert written == [first]

    force_release(NAME, fence=first._hold.fence)
    wait_until(lambda: first._hold.lost)
    first._do_sync()  # as Celery's service does between two ticks
    first.close()
    assert written == [first]


def test_a_mixin_that_comes_last_is_refused():
    with pytest.raises(TypeError, match="write ClaimedSchedulerMixin before Scheduler"):
        type("Mine", (Scheduler, ClaimedSchedulerMixin), {})


def test_last_runs_that_the_store_forgot_are_written_again(make):
    first = make()
    tick(first)
    backend = claim_backends["default"]
    backend.force_release(LAST_RUNS, backend.lease(LAST_RUNS).fence)

    tick_until(first, lambda: last_runs.runs_of(backend.lease(LAST_RUNS)).keys() == {"quick", "slow"})
    assert first._hold.held


def test_an_active_beat_that_hangs_gives_way(make):
    class Hanging(BriefScheduler):
        hang_seconds = 0.1  # less than the renew deadline is no less than that

    first, second = make(Hanging), make()
    tick(first)

    tick_until(second, lambda: second.sent)

    assert tick(first) == beat.LOOK_SECONDS
    assert first._hold is None


# Stopped by an operator.


def test_a_stopped_beat_steps_down_and_another_takes_over(make, caplog):
    first, second = make(), make()
    tick(first)
    request_stop(NAME, reason="new schedule", by="ana")
    tick_until(first, lambda: first._hold is None)

    tick_until(second, lambda: second.sent)

    assert said(caplog, "ana asked it to stop: new schedule")


def test_kept_stopped_no_beat_sends_until_that_is_cleared(make, caplog):
    first = make()
    tick(first)
    request_stop(NAME, keep=True, by="ana")
    tick_until(first, lambda: first._hold is None)
    count, fresh = len(first.sent), make()
    assert is_quiet(first, fresh)
    assert len(said(caplog, "Standing by: Claim 'beat:project' is kept stopped")) == 1

    clear_stop(NAME)
    tick_until(first, lambda: len(first.sent) > count)


# A store that does not answer.


def test_an_active_beat_goes_on_without_the_store_for_as_long_as_it_holds(make, caplog):
    first = make(BriefScheduler)
    tick(first)
    faults.fail("renew", "held", "lease", "acquire", "poll", "release")
    count, hold = len(first.sent), first._hold

    tick_until(first, lambda: len(first.sent) >= count + 3)
    assert hold.held
    tick_until(first, lambda: first._hold is None)
    count = len(first.sent)
    assert is_quiet(first)
    assert len(said(caplog, "Nothing is sent until the store answers")) == 1

    faults.clear()
    tick_until(first, lambda: len(first.sent) > count)


def test_nothing_is_sent_before_the_last_runs_were_read(make):
    faults.fail("lease")
    first = make()
    assert is_quiet(first)
    assert first._hold.held

    faults.clear()
    tick_until(first, lambda: first.sent)


# The end.


def test_closing_twice_releases_once(make):
    first = make(ClaimedFileScheduler)
    tick(first)

    first.close()
    first.close()

    assert claim(NAME).lease() is None
    assert first.schedule == {}


def test_a_signal_in_the_middle_of_a_tick_ends_it_in_order(make, app, tmp_path):
    """As Celery's own handler does it: close, then SystemExit; and its service closes again."""
    service = Service(app, scheduler_cls=ClaimedFileScheduler, schedule_filename=str(tmp_path / "schedule"))
    states = []

    def handler(number, frame):
        service.sync()
        states.append(service.scheduler._hold.held)
        raise SystemExit

    def send_task(*args, **kwargs):
        signal.raise_signal(signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, handler)
    try:
        service.scheduler.send_task = send_task
        service.start()
    finally:
        signal.signal(signal.SIGUSR2, before)

    assert states == [True]  # nothing is let go of under code that runs
    assert claim(NAME).lease() is None


def test_an_end_without_an_answer_of_the_store_is_an_end(make):
    first = make()
    tick(first)
    faults.fail("renew", "release")
    started = clock()

    first.close()

    assert clock() - started < 5


# Where they are kept.


def note_and_take(recipe):
    first = LastRuns(recipe, "beat")
    assert first.take() == {}
    runs = {f"entry {number} ünïcode\n": Run(1_700_000_000_123_456 + number, number) for number in range(1000)}
    assert first.keep(runs) is True
    second = LastRuns(recipe, "beat")
    assert second.take() == runs
    assert first.keep({}) is False
    assert second.keep({"x": Run(1, 1)}) is True
    assert LastRuns(recipe, "beat").take() == {"x": Run(1, 1)}


def test_they_are_kept_in_memory():
    note_and_take(claim("x"))


def test_they_are_kept_in_redis(redis_server, settings):
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": redis_server.url,
            "KEY_PREFIX": uuid.uuid4().hex,
        }
    }
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}

    note_and_take(claim("x"))


def test_they_are_kept_in_files(tmp_path, settings, monkeypatch):
    from django_claims.backends import file_places

    monkeypatch.setattr(file_places, "temporary_places", list)
    options = {"directory": str(tmp_path / "claims")}
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.file.FileBackend", "OPTIONS": options}}

    note_and_take(claim("x"))


def test_they_are_kept_in_memcached(settings):
    if not importlib.util.find_spec("pymemcache"):
        missing("pymemcache is not installed")
    server = MemcachedServer(program=find_memcached() or missing("no memcached on PATH"))
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
            "LOCATION": server.address,
        }
    }
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.cache.CacheBackend"}}
    try:
        note_and_take(claim("x"))
    finally:
        server.stop()


def test_they_can_be_read_but_not_kept_where_the_name_is_kept_stopped(caplog):
    first = LastRuns(claim("x"), "beat")
    first.take()
    first.keep({"a": Run(1, 1)})
    # Nobody may: such names are no claim's. But a store may have it, from another program.
    claim_backends["default"].set_flag(first.name, keep=True, fence=None, reason="", by="", ttl_ms=None)

    second = LastRuns(claim("x"), "beat")

    assert second.take() == {"a": Run(1, 1)}
    assert second.keep({}) is False
    assert len(said(caplog, "cannot be kept")) == 1


@pytest.mark.parametrize("text", ["?", "e30=", packed({})[:-4], "bm9uZQ=="])
def test_what_is_not_last_runs_is_said_so(text):
    with pytest.raises(ValueError):
        unpacked(text)


def test_what_cannot_be_read_is_left_out(caplog):
    lease = claim_backends["default"].lease
    first = LastRuns(claim("x"), "beat")
    first.take()
    first.keep({})
    broken = Progress(kept="[]")
    request = last_runs.RenewRequest(first.name, first._token, first._fence, 60_000, broken.pack())
    claim_backends["default"].renew([request])

    assert last_runs.runs_of(lease(first.name)) == {}
    assert said(caplog, "cannot be read")


@pytest.mark.parametrize("verb", ["acquire", "renew"])
def test_a_lost_reply_in_the_take_over_loses_no_last_runs(verb):
    before = LastRuns(claim("x"), "beat")
    before.take()
    before.keep({"a": Run(1, 1)})
    faults.lose_reply(verb)
    after = LastRuns(claim("x"), "beat")
    with pytest.raises(BackendUnavailable):
        after.take()

    faults.clear()

    assert after.take() == {"a": Run(1, 1)}
    assert last_runs.runs_of(claim_backends["default"].lease(after.name)) == {"a": Run(1, 1)}


def test_a_signal_in_the_take_over_loses_no_last_runs():
    before = LastRuns(claim("x"), "beat")
    before.take()
    before.keep({"a": Run(1, 1)})

    def ended(real, requests):
        faults.off("renew")
        raise SystemExit

    faults.on("renew", ended)
    with pytest.raises(SystemExit):
        LastRuns(claim("x"), "beat").take()

    assert LastRuns(claim("x"), "beat").take() == {"a": Run(1, 1)}


def test_two_that_take_over_at_once_end_with_one_writer():
    takers = [LastRuns(claim("x"), "beat") for _ in range(4)]
    threads = [threading.Thread(target=taker.take) for taker in takers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert sum(taker.keep({}) for taker in takers) == 1
