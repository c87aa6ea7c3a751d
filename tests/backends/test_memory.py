"""The memory backend: the contract, and what is special to it."""

import pytest

from django_claims.backends import memory
from django_claims.backends.base import AcquireRequest, Refusal
from django_claims.backends.memory import MemoryBackend
from django_claims.conf import AliasSettings
from django_claims.test import BackendContract


def settings_of(alias="memory", **options):
    return AliasSettings(alias=alias, backend="django_claims.backends.memory.MemoryBackend", options=options)


class TestMemoryBackend(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self):
        self.backend = MemoryBackend(settings_of())
        yield
        memory.forget("memory")


class MovableClock:
    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


class TestMemoryBackendByAClockOfItsOwn(BackendContract):
    """The same, by a clock that is moved instead of waited for."""

    by_real_time = False

    @pytest.fixture(autouse=True)
    def fresh_backend(self):
        self.clock = MovableClock()
        self.backend = MemoryBackend(settings_of(clock=self.clock))
        yield
        memory.forget("memory")

    def until(self, condition, seconds=5.0):
        ends = self.clock.seconds + seconds
        while not (answer := condition()):
            assert self.clock.seconds < ends
            self.clock.seconds += 0.01
        return answer

    def test_expiry_is_by_that_clock(self):
        self.take("job", ttl_ms=3_600_000)

        self.clock.seconds += 3599
        assert isinstance(self.ask(["job"]), Refusal)
        self.clock.seconds += 1.001
        assert not isinstance(self.ask(["job"]), Refusal)


def test_a_thread_that_waited_for_the_others_goes_by_the_time_at_which_its_turn_came():
    """Else its grant would seem older than the one before it."""
    from concurrent.futures import ThreadPoolExecutor

    from django_claims.holders import this_holder

    time = [100.0]
    backend = MemoryBackend(AliasSettings(alias="turns", backend="", options={"clock": lambda: time[0]}))
    request = AcquireRequest("job", "t1", 10_000, 3_000, this_holder())
    with ThreadPoolExecutor(1) as pool:
        with backend._store.lock:
            asked = pool.submit(backend.acquire, [request])
            assert not asked.done()
            time[0] = 105.0
        (grant,) = asked.result(20)

    (later,) = backend.acquire([request._replace(name="another", token="t2")])
    assert grant.acquired_us == later.acquired_us
    memory.forget("turns")
