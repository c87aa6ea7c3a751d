"""
on_lost="interrupt": raising ClaimLost in the main thread when a hold is lost.

By a real signal, since nothing else ends a blocking call of the main thread. The handler is
there only while such a hold is, and hands on what was not meant for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.exceptions import ClaimLost

if TYPE_CHECKING:
    from django_claims.holds import Hold

# A real-time signal, which programs hardly use; else one that every Unix has; none on Windows.
SIGNAL: int | None = (
    getattr(signal, "SIGRTMAX", 0) - 5 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", None)
)
AGAIN_SECONDS = 0.05
"""A signal that comes just before a blocking call does not end it: it is sent again after so long, then less often."""

_lost: deque[Any] = deque()
_before: Any = None
_depth = 0
_is_set = False
_is_ours = False  # the signal that comes next
_sending = threading.RLock()  # so that none is sent after the handler is gone


def raise_in_main_thread(hold: Hold) -> None:
    """Have ClaimLost raised in the main thread. Called from whichever thread found the loss."""
    _lost.append(hold)
    if SIGNAL is not None:
        _send(hold, AGAIN_SECONDS)


def _send(hold: Hold, pause: float) -> None:
    global _is_ours
    deadlines.run_at(clock() + pause, lambda: _send_again(hold, pause))  # first: this may be the main thread
    main = threading.main_thread()
    with _sending:
        if _depth and main.ident is not None and hold in _lost:
            _is_ours = True
            signal.pthread_kill(main.ident, SIGNAL)  # type: ignore[arg-type]  # there is one where holds were lost


def _send_again(hold: Hold, pause: float) -> None:
    if _depth and hold in _lost and not hold._released:
        _send(hold, min(pause * 2, 1.0))


def _handler(signum: int, frame: Any) -> None:
    global _is_ours
    ours, _is_ours = _is_ours, False
    while _lost:
        hold = _lost.popleft()
        if not hold._released:
            raise ClaimLost(hold.name, hold.loss_reason)
    if callable(_before) and not ours:
        _before(signum, frame)


def install() -> None:
    """Set the handler. In the main thread only; counted."""
    global _before, _depth, _is_set
    if SIGNAL is not None:
        if not _is_set:
            _before, _is_set = signal.signal(SIGNAL, _handler), True
        _depth += 1


def restore() -> None:
    """Put back what was there, once nobody needs ours: now, or at the next end in the main thread."""
    global _depth, _is_set
    _depth = max(_depth - 1, 0)
    if SIGNAL is not None and _depth == 0 and _is_set and threading.current_thread() is threading.main_thread():
        with _sending:
            signal.signal(SIGNAL, _before if _before is not None else signal.SIG_DFL)
            _is_set = False


def _after_fork_in_child() -> None:
    global _sending
    _sending = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
