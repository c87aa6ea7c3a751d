"""What SIGTERM and SIGHUP do to a command that runs under a claim."""

from __future__ import annotations

import signal
import threading
import weakref
from types import FrameType
from typing import Any, Self

from django_claims import conf, registry
from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.logs import get_logger
from django_claims.shutdown import HANDLED, draining_reason, start_draining

logger = get_logger(__name__)

SWALLOWED_SECONDS = 1.0


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
        hold = self.hold
        if hold is not None and hold.is_open and hold.stop_on_shutdown and hold.stop_flag_now is None:
            hold.shutting_down(draining_reason())  # it runs without a claim, and is not among the holds
        before = self._before.get(number)
        if is_first and callable(before):
            self._call(before, number, frame)
        if not is_first or not self._is_looking():
            self._end(number)
        deadlines.run_at(clock() + conf.grace(), lambda: self._end_grace(number))

    def _call(self, before: Any, number: int, frame: FrameType | None) -> None:
        """Call what was set before. Its failure is told, and spares nobody; its SystemExit is an answer."""
        try:
            before(number, frame)
        except Exception as error:
            failure = error
            # By another thread: that it could not write may be what failed.
            deadlines.run_at(0.0, lambda: logger.error("The handler that was there before failed", exc_info=failure))

    def _holds(self) -> list[Any]:
        """Return what may be looked at: the command's own hold, and those of the commands that it has called."""
        # In a forked child none is open: they are the parent's, and so is the grace.
        held = [hold for hold in registry.all_holds() if hold.stop_on_shutdown]
        return [hold for hold in [self.hold, *held] if hold is not None and hold.is_open]

    def _is_looking(self) -> bool:
        return any(hold.has_looked for hold in self._holds())

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
        if self._is_active and (holds := self._holds()):
            logger.warning("The grace after a signal is over name=%s", holds[0].name)
            self._send(number)

    def _send(self, number: int) -> None:
        """Send the main thread the same signal again: a second one ends it at once."""
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, number)
