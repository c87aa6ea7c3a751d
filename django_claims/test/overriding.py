"""`override_claims()`: claims in the memory of the test alone, without threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, Literal, TypeVar, overload

from django.test.utils import TestContextDecorator, override_settings

from django_claims import clock as clock_module
from django_claims import conf, heartbeat, registry
from django_claims.clock import real_clock, stand_in
from django_claims.deadlines import deadlines
from django_claims.exceptions import ClaimError
from django_claims.handler import claim_backends
from django_claims.keeper import all_keepers
from django_claims.test import acting, asserting
from django_claims.test.clocks import FakeClock, WallClock
from django_claims.test.isolation import set_aside

Target = TypeVar("Target", bound=Callable[..., Any])


class ClaimsInTest:
    """What `with override_claims() as claims:` and the pytest fixture give: the helpers, in one place."""

    held = staticmethod(acting.held)
    expire = staticmethod(acting.expire)
    lose = staticmethod(acting.lose)
    request_stop = staticmethod(acting.request_stop)
    beat = staticmethod(acting.beat)
    assert_held = staticmethod(asserting.assert_claim_held)
    assert_refused = staticmethod(asserting.assert_claim_refused)
    assert_released = staticmethod(asserting.assert_claim_released)

    def __init__(self, clock: FakeClock | None) -> None:
        self.clock = clock


class OverrideClaims(TestContextDecorator):
    """See override_claims()."""

    def __init__(
        self,
        *,
        clock: FakeClock | Literal["wall"] | None = None,
        threads: bool = False,
        attr_name: str | None = None,
        kwarg_name: str | None = None,
        **params: Any,
    ) -> None:
        super().__init__(attr_name=attr_name, kwarg_name=kwarg_name)
        if not (clock is None or clock == "wall" or isinstance(clock, FakeClock)):
            raise ValueError(f"clock should be a FakeClock, 'wall' or None, not {clock!r}.")
        if clock is not None and threads:
            raise ValueError("Threads go by the real clock: give threads=True or clock=, not both.")
        self._clock = clock
        self._threads = threads
        self._params = params
        self._open: list[ExitStack] = []

    def __enter__(self) -> ClaimsInTest:  # type: ignore[override]  # the stubs know of override_settings only
        return self.enable()

    def enable(self) -> ClaimsInTest:
        clock = WallClock() if isinstance(self._clock, str) else self._clock
        with ExitStack() as stack:
            settings = _in_memory(self._params)  # before all: wrong ones change nothing
            stack.enter_context(set_aside())
            stack.callback(stand_in, clock_module._clock, clock_module._wait)
            stack.callback(setattr, heartbeat, "manual", heartbeat.manual)
            stack.enter_context(override_settings(CLAIMS=settings))
            heartbeat.manual = not self._threads
            if clock is None:
                stand_in(real_clock, None if self._threads else _wait_and_beat)
            else:
                stand_in(clock, clock.to_wait)
            stack.callback(_end)
            stack.enter_context(asserting.remembering())
            self._open.append(stack.pop_all())
        return ClaimsInTest(clock)

    def disable(self) -> None:
        self._open.pop().close()


@overload
def override_claims(target: Target, /) -> Target: ...
@overload
def override_claims(
    *,
    clock: FakeClock | Literal["wall"] | None = None,
    threads: bool = False,
    attr_name: str | None = None,
    kwarg_name: str | None = None,
    **params: Any,
) -> OverrideClaims: ...
def override_claims(target: Any = None, /, **how: Any) -> Any:
    """
    Keep all claims in memory, apart from everything else, and start no threads.

    A decorator for functions, coroutine functions and TestCase classes (anew for each test,
    from setUp on), and a context manager; may be nested. Every alias of CLAIMS keeps its name and
    times and has a memory of its own. What was held, stored or draining before is set aside, and
    is there again afterwards; what is still held at the end is released.

    - `clock`: None: real time, which freezegun and time-machine neither stop nor move; a
      FakeClock; or "wall": the wall clock, so that their `tick` and `shift` expire claims
    - `threads`: True: renew from threads, as outside of tests
    - `attr_name`, `kwarg_name`: where the decorated class or function finds its ClaimsInTest
    - others: keys for every alias, such as `TTL=2` or `BACKEND=…`; a callable is given the alias

    Without threads nothing happens behind the test's back. A stop, or the force release of a
    claim, is known to its holder when the call returns. Renewals come with `beat()`, or while a
    claim or a hold waits (`acquire(timeout=…)`, `hold.sleep()`); a hold that gets neither is lost
    at its local deadline, with default settings after two minutes. The async twins run in the
    thread of the loop.
    """
    override = OverrideClaims(**how)
    return override if target is None else override(target)


def _in_memory(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return CLAIMS as it is, but for where it is kept. Raises InvalidClaimsSetting."""
    raw = conf.raw_settings() if conf.enabled() else None
    aliases = raw if isinstance(raw, Mapping) and raw else {conf.DEFAULT_ALIAS: {}}
    found = {}
    for alias, own in aliases.items():
        kept = {key: own[key] for key in conf.TIMING_KEYS if key in own} if isinstance(own, Mapping) else {}
        if "TTL" in params:
            kept = {}  # the others went with the other TTL
        given = {key: value(alias) if callable(value) else value for key, value in params.items()}
        found[alias] = {"BACKEND": conf.MEMORY, **kept, **given}
    return found


def _wait_and_beat(seconds: float, at_most: float) -> float:
    """Somebody waits, in real time: do what is due, and look again soon."""
    now = clock_module.clock()
    for each in heartbeat.all_heartbeats():
        if each.due <= now:
            each.beat()
    return min(seconds, 0.02)


def _end() -> None:
    """Let go of everything that is left, while the settings are still those of the block."""
    for hold in registry.all_holds():
        hold.release()
    keepers = all_keepers()
    for each in [*(keeper.heartbeat for keeper in keepers), deadlines.heartbeat]:
        if heartbeat.manual:
            each.beat()
        else:
            each.finish()
    for keeper in keepers:
        with suppress(ClaimError):
            claim_backends[keeper.alias].close()
