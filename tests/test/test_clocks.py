"""Time in tests: a clock that stands still, freezegun and time-machine."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from asgiref.sync import async_to_sync, sync_to_async
from freezegun import freeze_time

from django_claims import ClaimLost, InvalidClaim, LossReason, claim
from django_claims.clock import real_clock
from django_claims.test import FakeClock, held, override_claims, wait_until
from tests.helpers import listening, tidy

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)


@pytest.fixture
def fake():
    with override_claims(clock=FakeClock(), TTL=180) as claims:
        yield claims.clock


@pytest.fixture
def wall():
    with override_claims(clock="wall", TTL=180):
        yield


# A clock that stands still.


def test_it_stands_still(fake):
    with claim("x") as hold:
        left = hold.remaining()
        began = real_clock()
        wait_until(lambda: real_clock() > began + 0.05)

        assert hold.remaining() == left == 120


def test_a_tick_over_the_local_deadline_loses_and_tells(fake, heard):
    with claim("x") as hold:
        event = hold.lost_event
        fake.tick(119)
        assert hold.held

        fake.tick(1)

        assert event.is_set()
        assert hold.loss_reason is LossReason.EXPIRED
        assert heard.one("claim_lost")["held_for"] == 120
        assert not claim("x").available()  # its time to stop
        fake.tick(timedelta(minutes=1))
        assert claim("x").available()


def test_ticks_add_up_since_nothing_is_renewed(fake):
    with claim("x") as hold:
        for _ in range(4):
            fake.tick(30)

        assert hold.lost


def test_a_run_renews_on_the_way(fake):
    with claim("x") as hold:
        fake.run(3600)

        assert hold.held
        assert claim("x").lease().age == 3600
        assert claim("x").lease().remaining > 100


def test_a_run_ends_at_max_hold(fake):
    with claim("x", max_hold=600) as hold:
        fake.run(601)

        assert hold.loss_reason is LossReason.MAX_HOLD


def test_waiting_takes_no_time_in_earnest(fake):
    began, fake_began = real_clock(), fake()
    with held("x"):
        assert claim("x").acquire(timeout=600) is None
    with claim("y") as hold:
        assert not hold.sleep(3600)
        assert hold.held

    assert fake() - fake_began >= 4200
    assert real_clock() - began < 60


def test_an_expiry_ends_the_wait(fake):
    with held("x", ttl=30), claim("x", timeout=60) as hold:
        assert hold.held


def test_waiting_coroutines_take_no_time_in_earnest(fake):
    async def job():
        async with claim("y") as hold:
            assert not await hold.asleep(3600)
            assert await claim("x").aacquire(timeout=600) is None
            return hold.held

    began = real_clock()
    with held("x"):
        assert asyncio.run(job())
    assert real_clock() - began < 60


def test_min_hold_passes(fake):
    with claim("x", min_hold=600):
        pass
    assert claim("x").lease().state == "resting"
    fake.tick(600)
    assert claim("x").available()


@pytest.mark.parametrize("seconds", [-1, "1", float("nan")])
def test_time_does_not_go_back(fake, seconds):
    with pytest.raises(InvalidClaim):
        fake.tick(seconds)


def test_a_clock_that_nobody_goes_by_moves_all_the_same():
    clock = FakeClock()
    began = clock()
    clock.tick(5)
    clock.run(5)

    assert clock() == began + 10


# Tools that freeze time: by default they neither lose nor freeze a hold.


class Freezegun:
    def __init__(self):
        self.context = freeze_time("2030-01-01")

    def __enter__(self):
        self.frozen = self.context.__enter__()
        return self

    def __exit__(self, *exc):
        self.context.__exit__(*exc)

    def tick(self, seconds):
        self.frozen.tick(seconds)


class TimeMachine(Freezegun):
    def __init__(self):
        self.context = time_machine.travel(datetime(2030, 1, 1, tzinfo=UTC), tick=False)

    def tick(self, seconds):
        self.frozen.shift(seconds)


tools = pytest.mark.parametrize("tool", [Freezegun, TimeMachine])


@tools
@pytest.mark.parametrize("with_threads", [False, True])
def test_frozen_time_does_not_lose_a_hold(tool, with_threads):
    with override_claims(threads=with_threads), tool() as frozen, claim("x") as hold:
        frozen.tick(86_400)

        assert hold.held
        assert hold.verify()
        assert claim("x").acquire() is None
        assert hold.release()


@tools
def test_frozen_time_does_not_freeze_a_hold(tool):
    with override_claims(TTL=0.3), tool(), claim("x") as hold:
        wait_until(lambda: hold.lost)
        wait_until(lambda: claim("x").available())


@tools
def test_under_frozen_time_threads_renew(tool):
    with override_claims(threads=True, TTL=1.5), tool(), claim("x") as hold:
        wait_until(lambda: real_clock() > hold._since + 1.2)  # its deadline, unless renewed, was after 1 s
        assert hold.held


@tools
def test_under_frozen_time_a_wait_ends(tool):
    with override_claims(), tool(), held("x"):
        assert claim("x").acquire(timeout=0.2) is None


@tools
def test_a_block_may_begin_and_end_in_frozen_time(tool):
    with tool() as frozen:
        with override_claims(), claim("x") as hold:
            assert hold.lease.acquired_at.year == 2030
            frozen.tick(1000)
            assert hold.held
        assert not hold.held


# clock="wall": they do.


@tools
def test_by_the_wall_clock_a_tick_loses_and_expires(tool, wall):
    with tool() as frozen, claim("x") as hold:
        assert hold.lease.acquired_at == datetime(2030, 1, 1, tzinfo=UTC)
        frozen.tick(119)
        assert hold.held
        frozen.tick(2)
        assert not hold.held
        with pytest.raises(ClaimLost):
            hold.checkpoint()
        frozen.tick(60)

        assert claim("x").available()


@tools
def test_by_the_wall_clock_a_renewal_in_between_keeps_it(tool, wall):
    with tool() as frozen, claim("x") as hold:
        for _ in range(3):
            frozen.tick(100)
            assert hold.renew()


@tools
def test_by_the_wall_clock_a_wait_ends_though_time_is_frozen(tool, wall):
    with tool(), held("x"), claim("y") as hold:
        assert claim("x").acquire(timeout=30) is None
        assert not hold.sleep(30)
        assert hold.held


@tools
def test_by_the_wall_clock_other_threads_agree(tool, wall):
    async def job():
        async with claim("x") as hold:
            return await sync_to_async(lambda: hold.held and hold.renew(), thread_sensitive=False)()

    with tool():
        assert async_to_sync(job)()


def test_the_wall_clock_goes_on_by_itself(wall):
    with claim("x") as hold:
        left = hold.remaining()
        wait_until(lambda: hold.remaining() < left)
