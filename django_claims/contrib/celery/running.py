"""
One run of a task under its claim: how it begins, and what becomes of it.

    acquire                refused: skip, retry, fail; or wait, if the message came twice
    was it done before?    then acknowledge it, and run nothing
    body
    leave a mark           unless it goes back into the queue, or was killed
    release
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from celery.exceptions import Ignore, Reject, Retry

from django_claims.acquiring import Acquiring
from django_claims.contrib.celery.redelivery import Delivery
from django_claims.contrib.celery.workers import shutdown_flag
from django_claims.exceptions import BackendUnavailable, StopRequested
from django_claims.guards import Guard
from django_claims.holds import Hold
from django_claims.logs import get_logger
from django_claims.names import cut
from django_claims.outcomes import Refused

logger = get_logger(__name__)


def run_guarded(task: Any, name: str, request: Any, guard: Guard, key: Any, body: Callable[[], Any]) -> Any:
    """Run the body of a task under its claim. `task` is None for a function that nobody runs as a task."""
    claim = guard.claim(guard.name or f"task:{name}", key, default_on_lost="flag", stop_on_shutdown=False)
    run = _Run(task, replace(claim, label=cut(name)), request, guard)
    return run.run(body)


class _Run:
    def __init__(self, task: Any, claim: Any, request: Any, guard: Guard) -> None:
        self.task = task
        self.claim = claim
        self.request = request
        self.guard = guard
        self.delivery = Delivery(task, request, guard.using)

    def run(self, body: Callable[[], Any]) -> Any:
        acquiring = Acquiring(
            self.claim,
            self.claim.timeout,
            watch=shutdown_flag() if self.claim.stop_on_shutdown else None,
            node=self.request.hostname or "",
            task_id=self.request.id or "",
        )
        try:
            outcome = acquiring.acquire()
        except BackendUnavailable as error:
            self.cannot_tell(error)
            raise
        if isinstance(outcome, Refused):
            return self.refused(outcome)
        with outcome as hold:
            return self.work(hold, body)

    def work(self, hold: Hold, body: Callable[[], Any]) -> Any:
        """Run the body, unless it was run before; leave a mark when it has ended, for better or worse."""
        try:
            was_done = self.delivery.was_done()
        except BackendUnavailable as error:
            hold.rest_not()
            self.cannot_tell(error)
            raise
        if was_done:
            hold.rest_not()
            raise self.done_before(hold.log_extra())
        if self.may_go_back and hold.stops_for_shutdown:
            raise self.back(hold, StopRequested(hold.name, "its worker shuts down"))
        try:
            result = body()
        except StopRequested as stop:
            if self.may_go_back and hold.stops_for_shutdown and stop.name == hold.name:
                raise self.back(hold, stop) from None
            logger.info("Task stopped: %s %s", stop, self.where, extra=hold.log_extra())
            result = {"stopped": True, "claim": stop.name, "reason": stop.reason, "by": stop.by}
        except Retry:
            hold.rest_not()  # its next try is not to be refused
            self.delivery.leave_mark()
            raise
        except Reject as rejected:
            if rejected.requeue:
                hold.rest_not()
            else:
                self.delivery.leave_mark()
            raise
        except MemoryError:
            raise
        except Exception as error:
            if self.will_retry(error):
                hold.rest_not()
            self.delivery.leave_mark()
            raise
        except BaseException:  # killed, and to be run again if its message is delivered again
            hold.rest_not()
            raise
        self.delivery.leave_mark()
        return result

    def will_retry(self, error: Exception) -> bool:
        """Say whether Celery's autoretry, which is around us, is about to try again."""
        wanted = tuple(getattr(self.task, "autoretry_for", None) or ())
        unwanted = tuple(getattr(self.task, "dont_autoretry_for", None) or ())
        if not isinstance(error, wanted) or isinstance(error, unwanted):
            return False
        most = (getattr(self.task, "retry_kwargs", None) or {}).get("max_retries", self.task.max_retries)
        return most is None or self.request.retries < most

    @property
    def may_go_back(self) -> bool:
        """Whether the message is still the broker's, who gives it to another worker."""
        return self.delivery.is_message and bool(self.task.acks_late)

    def back(self, hold: Hold, stop: StopRequested) -> Reject:
        hold.rest_not()
        logger.info("Task goes back into the queue: %s %s", stop, self.where, extra=hold.log_extra())
        return Reject(stop, requeue=True)

    def refused(self, refused: Refused) -> Any:
        """Say what becomes of a task that may not run now."""
        error = refused.error()
        holder = refused.lease.holder if refused.lease else None
        is_held = refused.flag is None
        is_own = is_held and holder is not None and holder.task_id == self.request.id
        if self.delivery.is_message and (self.delivery.came_twice or is_own):
            self.wait_for_the_other_one(refused, error)
        if self.guard.on_refused == "retry" and self.delivery.is_message:
            raise self.retry(error, refused)
        if self.guard.on_refused == "skip":
            logger.warning("Task skipped: %s %s", error, self.where, extra=self.about(refused))
            return {
                "skipped": "held" if is_held else "kept stopped",
                "claim": refused.name,
                "holder": holder.as_dict() if holder else None,
            }
        raise error

    def wait_for_the_other_one(self, refused: Refused, error: Exception) -> None:
        """
        The same message, or an earlier try of it, is at work elsewhere; or it may have died there.

        Whatever of the two, and also while an operator keeps the name stopped, this one comes again
        later, and says nothing to whoever waits for the result: that is for the one that runs.
        """
        try:
            if self.delivery.was_done():
                raise self.done_before(self.about(refused))
        except BackendUnavailable:
            pass
        seconds = self.delivery.send_again("twice", refused.lease)
        logger.info(
            "Task was delivered again and waits %.1f s: %s %s", seconds, error, self.where, extra=self.about(refused)
        )
        raise Ignore(str(error))

    def done_before(self, about: dict[str, Any]) -> Ignore:
        logger.info("Task was delivered again after it had ended, and is not run again %s", self.where, extra=about)
        return Ignore("ended before")

    def retry(self, error: Exception, refused: Refused | None = None) -> Retry:
        """Send the task again, as it is: its own count of retries is for its own failures."""
        seconds = self.delivery.send_again("retry", refused.lease if refused else None)
        about = self.about(refused)
        logger.info("Task is refused and tried again in %.1f s: %s %s", seconds, error, self.where, extra=about)
        return Retry(f"Retry in {seconds:.1f} s: {error}", exc=error, when=seconds)

    def cannot_tell(self, error: BackendUnavailable) -> None:
        """Send again what must not be dropped, since the store gave no answer."""
        if not self.delivery.is_message:
            return
        if self.delivery.came_twice:
            seconds = self.delivery.send_again("twice", None)
            about = self.about()
            logger.warning("Task was delivered again and waits %.1f s: %s %s", seconds, error, self.where, extra=about)
            raise Ignore(str(error)) from error
        if self.guard.on_refused == "retry":
            raise self.retry(error) from error

    def about(self, refused: Refused | None = None) -> dict[str, Any]:
        """Return what a record about a run that has no hold says of its claim: see logs.py."""
        lease = refused.lease if refused else None
        return {
            "claim": refused.name if refused else self.claim.name,
            "claim_alias": self.claim.using,
            "claim_fence": lease.fence if lease else None,
            "claim_holder": str(lease.holder) if lease and lease.holder else None,
        }

    @property
    def where(self) -> str:
        return f"task={self.claim.label} task_id={self.request.id}"
