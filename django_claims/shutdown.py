"""
The end of this process: draining, and releasing what it still holds.

A drain releases nothing: a long holder asks `draining()`, or looks at its hold if it was
taken with stop_on_shutdown, and lets go itself when its work is whole.
"""

from __future__ import annotations

import atexit
import signal
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

from django_claims import registry, signals
from django_claims.backends.base import Released, ReleaseRequest, last_acts, within
from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.handler import claim_backends
from django_claims.holds import result_of
from django_claims.keeper import all_keepers
from django_claims.leases import ReleaseResult
from django_claims.logs import get_logger

logger = get_logger(__name__)

HANDLED = ("SIGTERM", "SIGHUP")

RELEASE_SECONDS = 5.0
"""For all holds together, also with a dead store: nobody waits longer for a process to end."""

ORPHAN_SECONDS = 0.5

_draining = ""
_unsaid: deque[str] = deque()


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
    # By another thread: this may be a signal handler, which came in as its own thread was writing to that log.
    _unsaid.append(_draining)
    try:
        deadlines.run_at(0.0, _say)
    except RuntimeError:
        pass  # the interpreter ends, and starts no thread; release_all() says it
    for hold in registry.all_holds():
        if hold.stop_on_shutdown:
            hold.shutting_down(_draining)
    signals.shutdown_started.send_robust(sender=None, reason=_draining)


def _say() -> None:
    while _unsaid:
        logger.info("Draining reason=%s", _unsaid.popleft())


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
    holds = {hold.token: hold for hold in registry.all_holds()}
    try:
        return _release(holds, reason)
    except BaseException:  # a signal's exception in the middle: the next call tries again, at exit at the latest
        for hold in holds.values():
            hold.abandon()
        raise


def _release(holds: dict[str, Any], reason: str) -> int:
    """Release them, and take out each one that is done."""
    ends = clock() + RELEASE_SECONDS
    _say()
    retired: dict[str, list[tuple[Any, list[ReleaseRequest]]]] = {}
    count = 0
    for hold in list(holds.values()):
        requests = hold.retire()  # lost to this process first, then deleted
        if requests is not None:
            count += 1
            if hold.alias:
                retired.setdefault(hold.alias, []).append((hold, requests))
    for keeper in all_keepers():
        keeper.adopt_vanished()
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
                "%s; they end with their TTL alias=%s count=%s reason=%s error=%s",
                "Holds could not be released" if mine else "Leases that may be left could not be deleted",
                keeper.alias, len(mine) or len(left), reason, error,
            )  # fmt: skip
        said = iter(answers or ())
        for hold, requests in mine:
            hold.end(result_of([next(said) for _ in requests]) if answers else ReleaseResult.UNKNOWN)
            holds.pop(hold.token)
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
        elif not _releasing_at_exit:
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


_releasing_at_exit = False
"""The process ends as it is, in 5 s at most: a signal's exception would only keep it from releasing."""


def _at_exit() -> None:
    global _releasing_at_exit
    _releasing_at_exit = True
    try:
        release_all("exit")
        for act in last_acts:
            try:
                act()
            except Exception:
                logger.exception("An act at exit failed")
    finally:
        _releasing_at_exit = False


atexit.register(_at_exit)
