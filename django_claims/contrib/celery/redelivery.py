"""
Messages that come twice.

A broker delivers a message again when it was not acknowledged in time: since its worker died, or
since the work took longer than the visibility timeout. Nobody can see from the message which.

    first      |== runs ==|mark|release|            |== runs ==X  dies
    second         refused …      granted, marked:     refused … TTL over, or found dead: runs
                                  acknowledged as done
"""

from __future__ import annotations

import random
from typing import Any

from celery.exceptions import Reject

from django_claims import conf
from django_claims.backends.base import within
from django_claims.exceptions import ClaimError
from django_claims.handler import claim_backends
from django_claims.leases import Lease
from django_claims.logs import get_logger
from django_claims.names import digest

logger = get_logger(__name__)

AGAIN = "django_claims_again"
"""The header of what we have sent again: why, how often, and in which of the task's own tries."""

UNKNOWN_VISIBILITY = 3600.0
LONGEST_PAUSE = 30.0


def visibility_timeout(app: Any) -> float | None:
    """Return the seconds after which the broker delivers a message again, or None if that is not known."""
    options = app.conf.broker_transport_options or {}
    if seconds := options.get("visibility_timeout"):
        return float(seconds)
    transport = str(app.conf.broker_url or "").partition(":")[0].partition("+")[0]
    return {"redis": 3600.0, "rediss": 3600.0, "sentinel": 3600.0, "sqs": 1800.0}.get(transport)


class Delivery:
    """One message that a worker has got; or none, for a task that was called or applied in this process."""

    def __init__(self, task: Any, request: Any, alias: str) -> None:
        self.task = task
        self.request = request
        self.alias = alias
        self.is_message = bool(task is not None and request.id and not request.called_directly and not request.is_eager)
        why, tries, of_try = (request.headers or {}).get(AGAIN) or ("", 0, None)
        if of_try != request.retries:  # of the try before: a task that retries itself hands its headers on
            why, tries = "", 0
        self.tries = int(tries)
        self.came_twice = self.is_message and bool(
            why == "twice" or (request.delivery_info or {}).get("redelivered", False)
        )

    @property
    def _try(self) -> str:
        """The mark of this try of the task: a retry of it is another message, with the same id."""
        request = self.request
        about = (request.id, request.retries, request.replaced_task_nesting, self.task.name)
        return f"task {digest(repr(about))}"

    @property
    def _message(self) -> str:
        """
        The mark of this message, or ''.

        The brokers that kombu emulates keep the tag when they deliver again. It tells, of two with the same
        id, the copy that its first worker still had in line; and a task that was sent twice on purpose.
        """
        tag = (self.request.properties or {}).get("delivery_tag")
        return f"message {digest(tag)}" if isinstance(tag, str) and len(tag) > 16 else ""

    def was_done(self) -> bool:
        """Say whether this work has ended before. Raises BackendUnavailable."""
        if not self.is_message or not conf.enabled():
            return False
        name = self._try if self.came_twice else self._message
        return bool(name) and claim_backends[self.alias].marked(name)

    def leave_mark(self) -> None:
        """Say that this work has ended, for whoever gets the same message. Hides no exception."""
        if not self.is_message or not conf.enabled():
            return
        seconds = visibility_timeout(self.task.app) or UNKNOWN_VISIBILITY
        try:
            backend = claim_backends[self.alias]
            with within(backend.settings.store_timeout):
                backend.mark([name for name in (self._try, self._message) if name], round(seconds * 1000))
        except ClaimError as error:
            logger.warning(
                "No mark could be left; were it delivered again, the task would run again task=%s task_id=%s error=%s",
                self.task.name, self.request.id, error,
            )  # fmt: skip

    def send_again(self, why: str, lease: Lease | None) -> float:
        """Send the same task with a pause, and return it in seconds. What cannot be sent stays in the queue."""
        seconds = self._pause(lease)
        headers = {**(self.request.headers or {}), AGAIN: [why, self.tries + 1, self.request.retries]}
        try:
            self.task.signature_from_request(self.request, countdown=seconds, headers=headers).apply_async()
        except Exception as error:
            raise Reject(error, requeue=True) from error
        return seconds

    def _pause(self, lease: Lease | None) -> float:
        """Return how long to wait: longer each time, but not past the end of the lease, should its holder be dead."""
        visible = visibility_timeout(self.task.app) or UNKNOWN_VISIBILITY
        seconds = min(2.0 ** min(self.tries, 10), LONGEST_PAUSE, visible / 4)
        if lease is not None:
            seconds = min(seconds, lease.remaining + 0.2)
        return float(round(seconds * random.uniform(0.8, 1.2), 2))
