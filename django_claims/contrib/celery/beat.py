"""
Beat with hot standby: any number of beats, of which one is active.

    beat A   acquires │ sends, notes, sends, notes … │ is killed
    beat B   stands by, opens nothing, sends nothing │      │ acquires, adopts the last runs, sends

Each send is noted in the store once it is done; so what was sent twice, at most, is the one that was not noted yet.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from django_claims import conf
from django_claims.acquiring import Acquiring
from django_claims.claims import Claim
from django_claims.clock import Duration, clock
from django_claims.contrib.celery.last_runs import LastRuns, Run
from django_claims.contrib.celery.sends import Sends
from django_claims.exceptions import BackendUnavailable
from django_claims.holds import Hold
from django_claims.logs import get_logger
from django_claims.outcomes import Refused
from django_claims.recipes import claim
from django_claims.refusals import refuse_useless_backend

logger = get_logger(__name__)

LABEL = "celery beat"
LOOK_SECONDS = 1.0  # between two looks at the hold, or two tries for it
AFTER_STOP_SECONDS = 3.0  # so that another beat comes first when somebody stopped this one

_Base: Any = object  # a Scheduler, of whatever kind


class _LostMeanwhile(Exception):
    """The claim was lost between the look at it and the send."""


class ClaimedSchedulerMixin(_Base):
    """
    Makes any Scheduler of Celery one of many, of which one is active and the others stand by.

    The active one alone reads the schedule and sends. A standby takes over within the TTL of one that died,
    at once on the same machine, and after a clean end; it adopts each entry's last run before its first send,
    so that at most the one send in flight is repeated. One that lost its claim, or that an operator stops,
    stands by again. Limit: a process that is stopped between its look at the hold and the send does send,
    once, when it goes on.

    Put it before the Scheduler: `class Mine(ClaimedSchedulerMixin, PersistentScheduler)`.
    """

    claim_name = ""
    """Beats of one name exclude each other. Left out: `beat:<name of the Celery app>`."""

    claim_using = conf.DEFAULT_ALIAS
    """The alias of CLAIMS."""

    claim_ttl: Duration | None = 30.0
    """Seconds in which a standby on another machine takes over from a beat that died; None: the alias's."""

    hang_seconds = 60.0
    """An active beat that hangs for so long, in its broker or database, gives way to another."""

    # Nothing is set in an __init__ of ours: Celery's own calls setup_schedule() in the middle.
    _recipe: Claim | None = None
    _hold: Hold | None = None
    _last_runs: LastRuns | None = None
    _sends: Sends | None = None  # there is one once the schedule is read, and the last runs are adopted
    _is_ticking = False
    _is_told = _is_silent = False
    _stands_from = 0.0
    _tick_at = 0.0
    _reserved: Any = None
    _heap: Any
    old_schedulers: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        before = cls.__mro__[: cls.__mro__.index(ClaimedSchedulerMixin)]
        wrong = [
            base.__name__ for base in before if not issubclass(base, ClaimedSchedulerMixin) and hasattr(base, "tick")
        ]
        if wrong:
            raise TypeError(
                f"{cls.__name__} would send without a claim: write ClaimedSchedulerMixin before {wrong[0]}."
            )

    def setup_schedule(self) -> None:
        """Leave it for the take-over: a beat that stands by reads, opens and writes nothing."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Send one task that is due, if this is the active beat. Return the seconds until the next look."""
        try:
            self._is_ticking = True
            if not self._is_active():
                return LOOK_SECONDS
            if clock() >= self._tick_at:
                interval = super().tick(*args, **kwargs)
                self._tick_at = clock() + interval
            self._note()
            return float(min(max(self._tick_at - clock(), 0.0), LOOK_SECONDS))
        except _LostMeanwhile:
            self._step_down("it was lost")
            return LOOK_SECONDS
        finally:
            self._is_ticking = False

    def reserve(self, entry: Any) -> Any:
        """See Scheduler."""
        self._reserved = super().reserve(entry)
        return self._reserved

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Send it, and note that. The look at the hold is the last thing before: connecting may have taken long."""
        if self._hold is None or not self._hold.held:
            raise _LostMeanwhile
        super().apply_entry(entry, producer=producer)
        if self._sends is not None:
            self._sends.note(self._reserved)
            self._note()

    def sync(self) -> None:
        """Write the schedule, if this is the active beat: what another one has written since must stand."""
        if self._hold is not None and self._hold.held:
            super().sync()

    def close(self) -> None:
        """Tidy up and let go of the claim. Twice does no harm, nor does a signal handler that calls it."""
        if self._is_ticking:
            return  # Celery's handler raises SystemExit next, and its `finally` comes here again with nothing half done
        if self._hold is not None and not self._hold.held:
            self.forget_schedule()
        try:
            self.close_schedule()
        finally:
            self.forget_schedule()
            self._let_go()

    # What a kind of scheduler may wish to do in its own way.

    def close_schedule(self) -> None:
        """Write what was read, and close what is open, as the scheduler below does."""
        super().close()

    def forget_schedule(self) -> None:
        """Drop what was read, and write none of it: another beat may be active."""
        self._heap = self.old_schedulers = None

    def adopt(self, entry: Any, run: Run) -> None:
        """Take over an entry's last run from the beat that was active before, unless its own is later."""
        own = entry.last_run_at
        at = datetime.fromtimestamp(run.at_us / 1e6, UTC)
        at = at.astimezone(own.tzinfo) if own.tzinfo else at.replace(tzinfo=None)  # naive is UTC, as Celery has it
        if entry.total_run_count and own >= at:
            return
        entry.last_run_at, entry.total_run_count = at, max(run.times, entry.total_run_count)

    # Active or not.

    def _is_active(self) -> bool:
        """Say whether this beat may send. Takes the claim if it can, and lets go of it if it must."""
        if self._hold is None and not self._acquire():
            return False
        hold = cast(Hold, self._hold)
        if not hold.held:
            self._step_down(f"it was lost: {hold.loss_reason.sentence}" if hold.loss_reason else "it was lost")
            return False
        flag = hold.stop_flag
        if flag is not None:
            if self._sends is not None:
                super()._do_sync()
            self._step_down(f"{flag.by or 'somebody'} asked it to stop" + (f": {flag.reason}" if flag.reason else ""))
            self._stands_from = clock() + AFTER_STOP_SECONDS
            return False
        hold.keep_for(self.hang_seconds)
        return self._sends is not None or self._take_over(hold)

    def _acquire(self) -> bool:
        """Try once for the claim. Say why not, but once."""
        if clock() < self._stands_from:
            return False
        if self._recipe is None:
            name = self.claim_name or f"beat:{self.app.main or 'celery'}"
            recipe = claim(name, using=self.claim_using, ttl=self.claim_ttl, label=LABEL)
            refuse_useless_backend(recipe)
            self._recipe = recipe
        trying = Acquiring(self._recipe, 0.0)
        try:
            outcome = trying.once()
        except BackendUnavailable as error:
            self._tell_silence(error)
            return False
        self._is_silent = False
        if isinstance(outcome, Refused):
            if not self._is_told:
                trying.done(outcome)
                logger.warning("Standing by: %s name=%s alias=%s", outcome.error(), outcome.name, self.claim_using)
            self._is_told = True
            return False
        self._hold, self._last_runs = cast(Hold, trying.done(outcome)), None
        return True

    def _take_over(self, hold: Hold) -> bool:
        """Read the schedule and adopt the last runs. False, with the claim held, if the store does not answer."""
        left: dict[str, Run] = {}
        if conf.enabled():
            # One object for one hold: what it has read may be in no other place by then.
            if self._last_runs is None:
                self._last_runs = LastRuns(cast(Claim, self._recipe), LABEL)
            try:
                left = self._last_runs.take()
            except BackendUnavailable as error:
                self._tell_silence(error)
                return False
        self._is_silent = False
        super().setup_schedule()
        self._heap = self.old_schedulers = None
        schedule = dict(self.schedule)
        for name, entry in schedule.items():
            if name in left:
                self.adopt(entry, left[name])
        self._sends = Sends(hold, self._last_runs, schedule)
        self._sends.write()
        self._tick_at, self._is_told = 0.0, False
        logger.warning(
            "Active: this beat sends the schedule name=%s alias=%s fence=%s entries=%s adopted=%s",
            hold.name, hold.alias, hold.fence, len(schedule), len(left.keys() & schedule.keys()),
        )  # fmt: skip
        return True

    def _step_down(self, why: str) -> None:
        hold = cast(Hold, self._hold)
        logger.warning("Standing by again: %s name=%s alias=%s fence=%s", why, hold.name, hold.alias, hold.fence)
        self.forget_schedule()
        self._let_go()
        self._is_told = True

    def _let_go(self) -> None:
        """Release the claim, having noted what was not."""
        hold, self._hold = self._hold, None
        sends, self._sends = self._sends, None
        if sends is not None:
            sends.finish()
        if hold is not None:
            hold.release()

    def _note(self) -> None:
        """Write what was sent, if it is time."""
        if self._sends is not None and self._sends.is_due():
            if self.old_schedulers is not None:  # the schedule as of the last look: a new one may cost a query
                self._sends.keep_to(self.old_schedulers)
            self._sends.write()

    def _tell_silence(self, error: BackendUnavailable) -> None:
        if not self._is_silent:
            logger.warning("Nothing is sent until the store answers: %s alias=%s", error, self.claim_using)
        self._is_silent = True
