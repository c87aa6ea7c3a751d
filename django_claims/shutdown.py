"""
The end of this process: draining, and releasing what it still holds.

A drain releases nothing: a long holder asks `draining()`, or looks at its hold if it was
taken with stop_on_shutdown, and lets go itself when its work is whole.
"""

from __future__ import annotations

import atexit
import logging
import signal
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

from django_claims import conf, registry, signals
from django_claims.backends.base import Released, ReleaseRequest, within
from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.handler import claim_backends
from django_claims.holds import result_of
from django_claims.keeper import all_keepers
from django_claims.leases import ReleaseResult

logger = logging.getLogger(__name__)

HANDLED = ("SIGTERM", "SIGHUP")

RELEASE_SECONDS = 5.0
"""For all holds together, also with a dead store: nobody waits longer for a process to end."""

ORPHAN_SECONDS = 0.5
SWALLOWED_SECONDS = 1.0

_draining = ""


def draining() -> bool:
    """Say whether this process was asked to shut down. It then still holds what it holds."""
    return bool(_draining)


def draining_reason() -> str:
    """Return why, or ''."""
    return _draining


def start_draining(reason: str) -> None:
    """
    Tell this process that it is to shut down. Releases nothing; safe to call twice.

    Holds with stop_on_shutdown see a stop request. May be called from a signal handler.
    """
    global _draining
    if _draining:
        return
    _draining = reason or "shutting down"
    logger.info("Draining reason=%s", _draining)
    for hold in registry.all_holds():
        if hold.stop_on_shutdown:
            hold.shutting_down(_draining)
    signals.shutdown_started.send_robust(sender=None, reason=_draining)


def stop_draining() -> None:
    """Take it back: the process goes on, as a test's does."""
    global _draining
    _draining = ""


def release_all(reason: str) -> int:
    """
    Release every hold of this process and return how many there were.

    Called at exit, so a store that gives no answer is logged, not raised: what it kept ends
    with its TTL. Takes 5 s at most, for all together. Safe to call twice.
    """
    ends = clock() + RELEASE_SECONDS
    retired: dict[str, list[tuple[Any, list[ReleaseRequest]]]] = {}
    count = 0
    for hold in registry.all_holds():
        requests = hold.retire()  # lost to this process first, then deleted
        if requests is not None:
            count += 1
            if hold.alias:
                retired.setdefault(hold.alias, []).append((hold, requests))
    keepers = [keeper for keeper in all_keepers() if keeper.alias in retired or keeper.orphans()]
    for number, keeper in enumerate(keepers):
        mine = retired.get(keeper.alias, [])
        for hold, _ in mine:
            keeper.drop(hold)
        left = [ReleaseRequest(name, orphan.token) for orphan in keeper.orphans() for name in orphan.names]
        answers: list[Released] | None = None
        try:
            # A dead store leaves the others their share. What was asked to be deleted before, and may have
            # cost its time already, gets a brief try.
            share = (ends - clock()) / (len(keepers) - number) if mine else ORPHAN_SECONDS
            with within(max(share, 0.05)):
                answers = claim_backends[keeper.alias].release([r for _, rs in mine for r in rs] + left)
        except Exception as error:
            logger.warning(
                "Holds could not be released; they end with their TTL alias=%s count=%s reason=%s error=%s",
                keeper.alias, len(mine), reason, error,
            )  # fmt: skip
        said = iter(answers or ())
        for hold, requests in mine:
            hold.end(result_of([next(said) for _ in requests]) if answers else ReleaseResult.UNKNOWN)
    if count:
        logger.info("Released all holds count=%s reason=%s", count, reason)
    return count


def install() -> Callable[[], None]:
    """
    Make this process drain on SIGTERM and SIGHUP, and run its `finally` blocks; return what undoes it.

    For programs of one's own that are neither commands nor under a server with a hook of ours:
    Python's own answer to both ends the process without running anything. What was set before is
    called as well; where nothing was, the process ends by SystemExit(128 + n). What the caller
    ignores stays ignored. Raises RuntimeError outside the main thread, where no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("shutdown.install() sets signal handlers, so call it in the main thread.")
    before: dict[int, Any] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        start_draining(signal.Signals(number).name)
        if callable(before[number]):
            before[number](number, frame)
        else:
            raise SystemExit(128 + number)

    for name in HANDLED:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handle)

    def undo() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    return undo


class _Ended(SystemExit):
    """A SystemExit of ours, of which one can tell whether it is still on its way."""


class CommandSignals:
    """
    What SIGTERM and SIGHUP do to a command that runs under a claim. A context manager.

    Python's own answer to both ends the process without running any `finally`. Here the
    process drains; a body that never looked at its hold is ended at once by SystemExit, one that
    looks gets CLAIMS_GRACE seconds, and a second signal ends it at once. What was set before is
    called as well, and is put back at the end. Does nothing outside the main thread.
    """

    def __init__(self) -> None:
        self.hold: Any = None
        self.received: int | None = None
        self._raised: weakref.ref[_Ended] | None = None
        self._is_active = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._is_active = True
        if threading.current_thread() is threading.main_thread():
            for name in HANDLED:
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                # What the caller ignores, as nohup does, stays ignored.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_active = False
        for number, before in self._before.items():
            # None: it was set by something other than Python, and cannot be put back
            signal.signal(number, before if before is not None else signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_first, self.received = self.received is None, self.received or number
        start_draining(signal.Signals(number).name)
        before = self._before.get(number)
        if is_first and callable(before):
            before(number, frame)
        hold = self.hold
        # In a forked child the hold is not open: it is the parent's, and so is the grace.
        if not is_first or hold is None or not hold.is_open or not hold.has_looked:
            self._end(number)
        if hold.stop_on_shutdown and hold.stop_flag_now is None:
            hold.shutting_down(draining_reason())  # it runs without a claim, and is not among the holds
        deadlines.run_at(clock() + conf.grace(), lambda: self._end_grace(number))

    def _end(self, number: int) -> None:
        """
        Raise what ends the process, and look a second later whether it was swallowed.

        Python prints and drops whatever is raised inside a finalizer; a bare `except:` drops it too.
        """
        ended = _Ended(128 + number)
        self._raised = weakref.ref(ended)
        deadlines.run_at(clock() + SWALLOWED_SECONDS, lambda: self._end_again(number))
        raise ended

    def _end_again(self, number: int) -> None:
        if self._is_active and self._raised is not None and self._raised() is None:
            self._send(number)

    def _end_grace(self, number: int) -> None:
        if self.hold is not None and self.hold.is_open:
            logger.warning("The grace after a signal is over name=%s", self.hold.name)
            self._send(number)

    def _send(self, number: int) -> None:
        """Send the main thread the same signal again: a second one ends it at once."""
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, number)


def _at_exit() -> None:
    release_all("exit")


atexit.register(_at_exit)
