"""
on_lost="interrupt": raising ClaimLost in the main thread when a hold is lost.

By a real signal, since nothing else ends a blocking call of the main thread. The handler is
there only while such a hold is, and hands on what was not meant for it.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from django_claims.exceptions import ClaimLost

if TYPE_CHECKING:
    from django_claims.holds import Hold

# A real-time signal, which programs hardly use; else one that every Unix has; none on Windows.
SIGNAL: int | None = (
    getattr(signal, "SIGRTMAX", 0) - 5 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGUSR2", None)
)

_lost: deque[Any] = deque()
_before: Any = None
_depth = 0
_is_set = False


def raise_in_main_thread(hold: Hold) -> None:
    """Have ClaimLost raised in the main thread. Called from whichever thread found the loss."""
    main = threading.main_thread()
    _lost.append(hold)
    if SIGNAL is not None and _depth and main.ident is not None:
        signal.pthread_kill(main.ident, SIGNAL)


def _handler(signum: int, frame: Any) -> None:
    while _lost:
        hold = _lost.popleft()
        if not hold._released:
            raise ClaimLost(hold.name, hold.loss_reason)
    if callable(_before):
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
        signal.signal(SIGNAL, _before if _before is not None else signal.SIG_DFL)
        _is_set = False
