"""The memory backend: the contract, and what is special to it."""

import sys
import threading
import traceback

import pytest

from django_claims.backends import memory
from django_claims.backends.base import Refusal
from django_claims.backends.memory import MemoryBackend
from django_claims.conf import AliasSettings
from django_claims.test import BackendContract
from tests.helpers import wait_until


def settings_of(alias="memory", **options):
    return AliasSettings(alias=alias, backend="django_claims.backends.memory.MemoryBackend", options=options)


class TestMemoryBackend(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self):
        self.backend = MemoryBackend(settings_of())
        yield
        memory.forget("memory")


def where(thread):
    """Return the functions of the backend that a thread is in."""
    frame = sys._current_frames().get(thread.ident)
    return (
        [f.name for f in traceback.extract_stack(frame) if f.filename.endswith("backends/memory.py")] if frame else []
    )


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

    def test_what_had_to_wait_for_others_is_by_the_time_when_its_turn_came(self):
        """Else a grant would be dated before the end of the run that it had to wait for."""
        store = self.backend._store
        began, granted = threading.Event(), []

        def acquire():
            began.set()
            granted.append(self.take("job"))

        with store.lock:
            other = threading.Thread(target=acquire)
            other.start()
            assert began.wait(5)
            wait_until(lambda: "acquire" in where(other))
            self.clock.seconds += 10
        other.join(5)

        now = self.backend.lease("job")
        assert now is not None
        assert now.acquired_at == now.read_at

    def test_expiry_is_by_that_clock(self):
        self.take("job", ttl_ms=3_600_000)

        self.clock.seconds += 3599
        assert isinstance(self.ask(["job"]), Refusal)
        self.clock.seconds += 1.001
        assert not isinstance(self.ask(["job"]), Refusal)
