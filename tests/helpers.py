"""What the tests of the core share: a store that fails on demand, clocks that can be moved, and waiting."""

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django_claims import claim, registry
from django_claims import signals as signals_module
from django_claims.backends import memory
from django_claims.backends.memory import MemoryBackend
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable
from django_claims.heartbeat import Schedule, _all
from django_claims.keeper import Keeper, all_keepers, deadlines
from django_claims.shutdown import release_all, stop_draining

FLAKY = "tests.helpers.FlakyBackend"
MEMORY = "django_claims.backends.memory.MemoryBackend"


def wait_until(condition: Callable[[], Any], seconds: float = 5.0) -> Any:
    """Return what the condition gives once that is true; fail if it is not in time."""
    ends = clock() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert clock() < ends, f"not within {seconds} s"
        time.sleep(0.005)


def stays(condition: Callable[[], Any], seconds: float) -> bool:
    """Say whether a condition is true all the while."""
    ends = clock() + seconds
    while clock() < ends:
        if not condition():
            return False
        time.sleep(0.005)
    return bool(condition())


def run_in_thread(func: Callable[[], Any]) -> Any:
    """Return what a function gives in another thread, or raise what it raised there."""
    found: dict[str, Any] = {}

    def run() -> None:
        try:
            found["result"] = func()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the thread hangs"
    if "error" in found:
        raise found["error"]
    return found["result"]


class ShiftedClock:
    """A clock that runs as the real one does, and can be moved."""

    def __init__(self) -> None:
        self.by = 0.0

    def __call__(self) -> float:
        return clock() + self.by


def shift_holds(monkeypatch: Any) -> ShiftedClock:
    """
    Give the holds, and nothing else, a clock that can be moved.

    No thread of ours notices when it moves: as after SIGSTOP, when the guarded code runs on first.
    """
    moved = ShiftedClock()
    for name in ("holds", "looking", "async_holds", "renewing"):
        module = sys.modules.get(f"django_claims.{name}")
        if hasattr(module, "clock"):
            monkeypatch.setattr(module, "clock", moved)
    return moved


class Faults:
    """What FlakyBackend does in place of its verbs."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.calls: list[str] = []

    def on(self, verb: str, hook: Callable[..., Any]) -> None:
        """Call `hook(real, *args)` in place of a verb; `real` is what the verb would do."""
        self.hooks[verb] = hook

    def off(self, verb: str) -> None:
        self.hooks.pop(verb, None)

    def fail(self, *verbs: str, error: BaseException | None = None) -> None:
        """Have verbs fail, as with a store that is down."""

        def down(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            raise error or BackendUnavailable("default", "connection refused") from ConnectionRefusedError(111)

        for verb in verbs:
            self.on(verb, down)

    def fail_in_turn(self, verb: str, *errors: BaseException | None) -> None:
        """Have the next calls of a verb fail, one by one (None lets one through), then let it work."""
        left = list(errors)

        def hook(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            error = left.pop(0) if left else None
            if error is not None:
                raise error
            return real(*args, **kwargs)

        self.on(verb, hook)

    def lose_reply(self, verb: str) -> None:
        """Have a verb done, and its answer lost."""

        def hook(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            real(*args, **kwargs)
            raise BackendUnavailable("default", "timed out") from TimeoutError()

        self.on(verb, hook)

    def delay(self, verb: str, seconds: float) -> None:
        """Have a verb answer late."""

        def hook(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            answer = real(*args, **kwargs)
            time.sleep(seconds)
            return answer

        self.on(verb, hook)

    @contextlib.contextmanager
    def hanging(self, verb: str) -> Iterator[threading.Event]:
        """Have a verb hang in the block, and fail at its end. Gives the event that says that one hangs."""
        entered, over = threading.Event(), threading.Event()

        def hook(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            entered.set()
            over.wait(30)
            raise BackendUnavailable("default", "timed out") from TimeoutError()

        self.on(verb, hook)
        try:
            yield entered
        finally:
            self.off(verb)
            over.set()

    def count(self, verb: str) -> int:
        return self.calls.count(verb)


faults = Faults()

VERBS = (
    "acquire", "renew", "release", "held", "lease", "leases", "force_release",
    "set_flag", "flag", "flags", "clear_flag", "poll", "hand_over", "adopt",
)  # fmt: skip


def _flaky(verb: str) -> Callable[..., Any]:
    def call(self: MemoryBackend, *args: Any, **kwargs: Any) -> Any:
        faults.calls.append(verb)
        real = getattr(super(FlakyBackend, self), verb)
        hook = faults.hooks.get(verb)
        return real(*args, **kwargs) if hook is None else hook(real, *args, **kwargs)

    return call


class FlakyBackend(MemoryBackend):
    """MemoryBackend, but for what `faults` says."""

    for _verb in VERBS:
        locals()[_verb] = _flaky(_verb)


def claims_settings(**params: Any) -> dict[str, Any]:
    """Return CLAIMS with one alias on FlakyBackend."""
    return {"default": {"BACKEND": FLAKY, **params}}


def calm(settings: Any) -> Any:
    """One alias with a TTL of a minute: nothing is renewed by itself while a test runs."""
    settings.CLAIMS = claims_settings(TTL=60)
    return settings


def taken() -> Iterator[Any]:
    """Claim 'x' is held by another thread; gives the hold."""
    held = run_in_thread(claim("x").acquire)
    yield held
    held.release()


def messages(caplog: Any, start: str) -> list[str]:
    """Return what was logged and begins so."""
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(start)]


def tidy(settings: Any) -> Iterator[None]:
    """Leave nothing behind. In each module: `_tidy = pytest.fixture(autouse=True)(tidy)`."""
    yield
    faults.clear()
    gc.collect()
    release_all("end of test")
    stop_draining()
    for heartbeat in list(_all):
        # One that died breaks the test that killed it, and no other.
        if heartbeat.thread is not None and not heartbeat.thread.is_alive():
            heartbeat._reset()
    for keeper in all_keepers():
        fresh = vars(Keeper(keeper.alias))
        with keeper._lock:
            keeper.dropped.clear()
            for name in ("_due", "_watched", "_flagged", "_orphans", "_orphans_due"):
                if name in fresh:
                    setattr(keeper, name, fresh[name])
    with deadlines._lock:
        deadlines._due = Schedule()
    for heartbeat in list(_all):
        if heartbeat.running:
            heartbeat.call_by(0.0)
    for alias, _ in list(memory.stores):
        memory.forget(alias)
    faults.clear()
    assert registry.all_holds() == []


def threads() -> list[str]:
    """Return the names of our own threads, those of the async twins apart."""
    return sorted(
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("django-claims ")
        and not thread.name.startswith(("django-claims try", "django-claims end", "django-claims ask"))
    )


def wait_for_no_threads() -> None:
    """Wait until all threads of the heartbeats have ended; with a short IDLE_SECONDS that is soon."""
    for heartbeat in list(_all):
        if heartbeat.running:
            heartbeat.call_by(0.0)
    # One that listens to what a store pushes stays for ten seconds after the last who waited.
    wait_until(lambda: not threads(), 20)


class Heard:
    """What was sent, signal by signal."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self._receivers: list[tuple[Any, Any]] = []
        for name in (
            "claim_acquired", "claim_refused", "claim_released", "claim_lost", "stop_requested",
            "stop_cleared", "stop_observed", "claim_force_released", "shutdown_started",
            "claim_handed_over", "claim_adopted", "claim_renewed", "claim_renewal_failed",
        ):  # fmt: skip
            signal = getattr(signals_module, name)
            receiver = self._receiver(name)
            signal.connect(receiver)
            self._receivers.append((signal, receiver))

    def _receiver(self, name: str) -> Callable[..., None]:
        def receive(sender: Any, signal: Any, **about: Any) -> None:
            self.sent.append((name, {"sender": sender, **about}))

        return receive

    def all(self, name: str) -> list[dict[str, Any]]:
        return [about for sent, about in list(self.sent) if sent == name]

    def one(self, name: str) -> dict[str, Any]:
        found = self.all(name)
        assert len(found) == 1, f"{name} was sent {len(found)} times"
        return found[0]

    def close(self) -> None:
        for signal, receiver in self._receivers:
            signal.disconnect(receiver)


def listening() -> Iterator[Heard]:
    """In a module: `heard = pytest.fixture(listening)`."""
    heard = Heard()
    yield heard
    heard.close()
