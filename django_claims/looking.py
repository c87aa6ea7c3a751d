"""
How the guarded code looks: was it asked to stop, has it lost, how far is it?

All of it is local memory; the keeper brings the news.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, TypeVar

from django_claims import registry, signals
from django_claims.backends.base import Notice
from django_claims.clock import clock, milliseconds, shown, to_wait, wall
from django_claims.deadlines import deadlines
from django_claims.exceptions import ClaimLost, InvalidClaim, StopRequested
from django_claims.keeper import PROGRESS_SECONDS, Keeper
from django_claims.leases import Lease, LossReason, Progress, StopFlag
from django_claims.logs import get_logger
from django_claims.names import cut

logger = get_logger(__name__)
T = TypeVar("T")

GIVEN_AWAY = "was handed over by this process, which holds it no more: leave the work to whoever adopts it."


def _is_number(value: object) -> bool:
    """Say whether JSON can tell it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


class LookingHold:
    """The part of a hold that its guarded code looks at."""

    if TYPE_CHECKING:  # what Hold has
        names: tuple[str, ...]
        token: str
        fence: int
        deadline: float
        _keeper: Keeper | None
        _loss: LossReason | None
        _released: bool
        _handed_over: bool

        @property
        def name(self) -> str: ...
        @property
        def alias(self) -> str: ...
        @property
        def lost(self) -> bool: ...
        @property
        def is_open(self) -> bool: ...
        @property
        def lease(self) -> Lease | None: ...
        def lose(self, reason: LossReason) -> None: ...
        def log_extra(self) -> dict[str, Any]: ...

    # The state of most holds for all of their life: ten thousand of them need not each have a copy.
    _watch: str | None = None
    _trip: Callable[[], Any] | None = None
    _own_flag: StopFlag | None = None
    _watched_flag: StopFlag | None = None
    _local_flag: StopFlag | None = None  # this process shuts down, and the hold wished to know
    _stop_event: threading.Event | None = None
    _lost_event: threading.Event | None = None
    _news: threading.Event | None = None
    _wakers: tuple[Callable[[], Any], ...] = ()
    _progress: Progress | None = None
    _unwritten: Progress | None = None
    _sent: Progress | None = None
    write_by = float("inf")
    _wrote_at = float("-inf")
    has_looked = False  # does the guarded code look at all? Then SIGTERM gives it time

    @property
    def flag_names(self) -> tuple[str, ...]:
        """The names whose stop flags concern this hold."""
        return self.names if self._watch is None or self._watch in self.names else (*self.names, self._watch)

    # What the guarded code asks.

    @property
    def stop_flag(self) -> StopFlag | None:
        """The stop flag that concerns this run, as of the last news. No I/O."""
        self.has_looked = True
        return self.stop_flag_now

    @property
    def stop_requested(self) -> bool:
        """Whether an operator asks this run to end, as of the last news. No I/O."""
        self.has_looked = True
        return self.stop_flag_now is not None

    @property
    def stop_flag_now(self) -> StopFlag | None:
        return self._own_flag or self._watched_flag or self._local_flag

    @property
    def stops_for_shutdown(self) -> bool:
        """Whether no operator asks, but the end of the process or worker that runs it."""
        return self._own_flag is None and self.stop_flag_now is not None

    @property
    def stop_event(self) -> threading.Event:
        """Set while a stop is asked for."""
        self.has_looked = True
        with registry.lock:
            if self._stop_event is None:
                self._stop_event = threading.Event()
                if self.stop_flag_now is not None:
                    self._stop_event.set()
            return self._stop_event

    @property
    def lost_event(self) -> threading.Event:
        """Set once the hold is lost. To decide, ask `held`: an event is late after a stalled process."""
        with registry.lock:
            if self._lost_event is None:
                self._lost_event = threading.Event()
                if self._loss is not None:
                    self._lost_event.set()
            return self._lost_event

    def sleep(self, seconds: float) -> bool:
        """Sleep, but end early on stop or loss. Return True if cut short."""
        ends = clock() + milliseconds(seconds, "seconds", at_least=0) / 1000
        self.has_looked = True
        with registry.lock:
            if self._news is None:
                self._news = threading.Event()
        while not self._has_news():
            left = min(ends, self.deadline) - clock()
            if ends <= clock():
                return False
            self._news.wait(to_wait(min(max(left, 0.001), 60.0), max(left, 0.001)))
        return True

    def _has_news(self) -> bool:
        return self.lost or self._released or self.stop_flag_now is not None

    def checkpoint(self, done: float | None = None, total: float | None = None, note: str | None = None) -> None:
        """
        Raise StopRequested if this run should end, ClaimLost if it no longer holds; else keep the progress.

        No I/O while news are fresh; asks the store itself, for a second at most, when the last
        answer on stops is over 2 s old. A stop that cannot be read is not "no stop": the last
        answer stands.
        """
        self.has_looked = True
        if done is not None or total is not None or note is not None:
            self._keep_progress(done, total, note)
        if self.lost or self._released:
            raise self.gone()
        if self._keeper is not None:
            self._keeper.listen_if_stale()
            if self.lost:
                raise self.gone()
        flag = self.stop_flag_now
        if flag is not None:
            raise StopRequested(self.name, flag.reason, flag.by)

    def gone(self) -> ClaimLost:
        """Return the error that says why there is no going on."""
        return ClaimLost(self.name, self._loss, GIVEN_AWAY if self._handed_over else "")

    def track(self, iterable: Iterable[T], total: float | None = None) -> Iterator[T]:
        """Yield the items with a checkpoint before each and after the last; progress is how many are done."""
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        done = 0
        for item in iterable:
            self.checkpoint(done, total)
            yield item
            done += 1
        self.checkpoint(done, total)

    # What the keeper asks and tells.

    def _keep_progress(self, done: float | None, total: float | None, note: str | None) -> None:
        for what, value in (("done", done), ("total", total)):
            if value is not None and not _is_number(value):
                raise InvalidClaim(f"checkpoint({what}=…) should be a finite number, not {shown(value)}.")
        before = self._progress
        if note is None:
            note = before.note if before else ""
        self._progress = self._unwritten = Progress(done=done, total=total, note=cut(str(note)), at=wall())
        if self.write_by == float("inf") and self._keeper is not None and self.is_open:
            # The first one at once, so that people see it begin; then one in a while.
            self.write_by = max(clock(), self._wrote_at + PROGRESS_SECONDS)
            self._keeper.renew_by(self.token, self.write_by)

    def progress_to_write(self) -> str | None:
        """Return the progress that the store has not yet, packed."""
        self._sent = self._unwritten
        return self._sent.pack() if self._sent else None

    def progress_written(self) -> None:
        """The store has what progress_to_write() gave."""
        if self._sent is not None:
            self._wrote_at = clock()
        if self._unwritten is self._sent:
            self._unwritten = None
            self.write_by = float("inf")
        else:
            self.write_by = clock() + PROGRESS_SECONDS

    @property
    def has_seen_flag(self) -> bool:
        return self._own_flag is not None

    def told(self, notices: list[Notice]) -> bool:
        """Take the news about all names that concern this hold. Return whether it has a flag now."""
        own = watched = None
        for notice in notices:
            if notice.forced_fence is not None:
                if notice.name in self.names and notice.forced_fence == self.fence:
                    self.lose(LossReason.FORCED)
                    return False
            elif notice.name in self.names:
                if notice.flag is not None and notice.flag.aims_at(self.fence):
                    own = own or notice.flag
            else:
                watched = notice.flag
        self._set_flags(own, watched)
        return self.stop_flag_now is not None

    def told_by_renewal(self, flags: list[StopFlag | None]) -> None:
        """Take the flags of its own names."""
        own = next((flag for flag in flags if flag is not None), None)
        if own is not None or self._own_flag is not None:
            self._set_flags(own, self._watched_flag)
            if own is not None and self._keeper is not None:
                self._keeper.note_flagged(self.token)

    def shutting_down(self, reason: str) -> None:
        """Ask this run to stop since its process shuts down. Seen here only; the store knows nothing of it."""
        self._local_flag = StopFlag(
            name=self.name, alias=self.alias, fence=self.fence, keep=False, reason=reason, requested_at=wall()
        )
        # A signal handler may be what calls this: the events' own locks are for another thread.
        deadlines.run_at(0.0, self._stop_news)

    def _stop_news(self) -> None:
        with registry.lock:
            events = [event for event in (self._stop_event, self._news) if event is not None]
        for event in events:
            event.set()
        self._wake()

    def _set_flags(self, own: StopFlag | None, watched: StopFlag | None) -> None:
        was_asked = self.stop_flag_now is not None
        self._own_flag, self._watched_flag = own, watched
        flag = self.stop_flag_now
        if own is not None and own.seen_at is None and self._keeper is not None:
            self.write_by = 0.0  # let the operator see that it was heard
            self._keeper.renew_by(self.token, clock())
        if flag is not None and not was_asked:
            with registry.lock:
                events = [event for event in (self._stop_event, self._news) if event is not None]
            for event in events:
                event.set()
            self._wake()
            logger.info(
                "Stop observed name=%s alias=%s fence=%s by=%s", self.name, self.alias, self.fence, flag.by,
                extra=self.log_extra(),
            )  # fmt: skip
            signals.send(signals.stop_observed, name=self.name, alias=self.alias, lease=self.lease, flag=flag)
        elif flag is None and was_asked:
            with registry.lock:
                for cleared in (self._stop_event, self._news):
                    if cleared is not None and self._loss is None:
                        cleared.clear()
                if self._stop_event is not None:
                    self._stop_event.clear()

    def wake_for_loss(self) -> None:
        """Wake everybody who waits for a loss."""
        with registry.lock:
            events = [event for event in (self._lost_event, self._news) if event is not None]
        for event in events:
            event.set()
        self._wake()

    def _wake(self) -> None:
        trips = [self._trip] if self._trip is not None else []
        for wake in [*trips, *self._wakers]:
            try:
                wake()
            except BaseException:  # SystemExit too: this may be the thread that renews
                logger.exception("A signal= callable failed name=%s", self.name)

    def forget_events(self) -> None:
        """In a forked child: the parent's locks may be taken for ever, so use none of them."""
        self._lost_event = threading.Event()
        self._lost_event.set()
        self._stop_event = self._news = None
        self._wakers = ()
