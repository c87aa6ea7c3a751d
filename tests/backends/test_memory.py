"""The memory backend: the contract, and what is special to it."""

import pytest

from django_claims.backends import memory
from django_claims.backends.base import Refusal
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
