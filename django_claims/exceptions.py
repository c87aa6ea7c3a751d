"""
The errors, and what to do about each.

Arguments go to `super().__init__` unchanged, so that every error pickles: Celery will
pickle it. Or write it as JSON, and make it again of what that left: a lease is then its
sentence. No error carries an owner token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

if TYPE_CHECKING:
    from django_claims.leases import Lease, LossReason, StopFlag


class ClaimError(Exception):
    """Base of the errors of this package. Not raised itself, but for a heartbeat that cannot start."""


class ClaimRefused(ClaimError):
    """The claim was not granted, and the store said so. Catch this for either reason."""


class ClaimHeld(ClaimRefused):
    """
    Another holder has the claim.

    `lease` says who; it is None if that holder ended between the refusal and the look.
    `reentrant` is True if this very thread or task holds it: waiting would never end.
    """

    def __init__(self, name: str, lease: Lease | None = None, reentrant: bool = False) -> None:
        super().__init__(name, lease, reentrant)
        self.name = name
        self.lease = None if isinstance(lease, str) else lease
        self.reentrant = reentrant
        self._sentence = lease if isinstance(lease, str) else ""

    def __str__(self) -> str:
        if self._sentence:
            return self._sentence
        if self.reentrant:
            return (
                f"Claim {self.name!r} is already held by this very thread or task. Claims do not nest: "
                f"release the first hold, or pass it on (current_hold() finds it)."
            )
        if self.lease is None:
            return f"Claim {self.name!r} was held by another process, which has just ended. Try again."
        return self.lease.sentence()


class ClaimStopped(ClaimRefused):
    """An operator keeps the claim stopped; `clear_stop(name)` lets it run again."""

    def __init__(self, name: str, flag: StopFlag | None = None) -> None:
        super().__init__(name, flag)
        self.name = name
        self.flag = None if isinstance(flag, str) else flag
        self._sentence = flag if isinstance(flag, str) else ""

    def __str__(self) -> str:
        if self._sentence:
            return self._sentence
        by = f" by {self.flag.by}" if self.flag and self.flag.by else ""
        why = f" ({self.flag.reason})" if self.flag and self.flag.reason else ""
        return (
            f"Claim {self.name!r} is kept stopped{by}{why}. It runs again after clear_stop({self.name!r}) "
            f"or 'manage.py claims clear-stop'."
        )


class ClaimLost(ClaimError):
    """
    This process must assume that it no longer holds the claim: stop writing, then ask again.

    Also for who goes on after handing over, and for who comes with the ticket of a run that is over.
    """

    def __init__(self, name: str, reason: LossReason | None = None, detail: str = "") -> None:
        super().__init__(name, reason, detail)
        self.name = name
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        if self.detail:
            return f"Claim {self.name!r} {self.detail}"
        why = f": {getattr(self.reason, 'sentence', self.reason)}" if self.reason else ""
        return f"Claim {self.name!r} was lost{why}. Another holder may be at work; stop, and acquire again."


class BackendUnavailable(ClaimError):
    """
    The store did not answer, so nobody can tell; the cause is chained.

    Neither a yes nor a no: an acquire may or may not have been granted (if it was, the
    lease is deleted as soon as the store answers, and else ends with its TTL).
    """

    def __init__(self, alias: str, detail: str = "") -> None:
        super().__init__(alias, detail)
        self.alias = alias
        self.detail = detail

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"The store of claims alias {self.alias!r} gave no answer{detail}, so nobody can tell. "
            f"Look at it with 'manage.py claims doctor', and try again."
        )


class UnsupportedFeature(ClaimError):
    """The backend cannot do this, and does not fake it."""

    def __init__(self, feature: str, alias: str) -> None:
        super().__init__(feature, alias)
        self.feature = feature
        self.alias = alias

    def __str__(self) -> str:
        return f"The backend of claims alias {self.alias!r} does not support {self.feature}. Choose another backend."


class StaleFence(ClaimError):
    """A later holder has already written; this one must not."""

    def __init__(self, name: str, fence: int) -> None:
        super().__init__(name, fence)
        self.name = name
        self.fence = fence

    def __str__(self) -> str:
        return f"A holder of claim {self.name!r} later than fence {self.fence} has written. Stop: this run is over."


class InvalidClaim(ClaimError, ValueError):
    """A name, key or duration that cannot be used. Raised before anything is stored."""


class StopRequested(Exception):
    """An operator asked this run to end. Not an error: let it pass, or clean up and return."""

    def __init__(self, name: str, reason: str = "", by: str = "") -> None:
        super().__init__(name, reason, by)
        self.name = name
        self.reason = reason
        self.by = by

    def __str__(self) -> str:
        by = f" by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return f"Claim {self.name!r} was asked to stop{by}{why}."


class InvalidClaimsSetting(ImproperlyConfigured):
    """`CLAIMS`, or one of the `CLAIMS_…` settings, cannot be used as it is."""


class CommandRefused(CommandError):
    """A command decorated by `@single_instance` did not run. `call_command` raises it."""


class AlreadyRunning(CommandRefused):
    """Another process runs the command. `lease` says who (None if it has just ended)."""

    def __init__(self, message: str, lease: Lease | None = None, returncode: int = 75) -> None:
        super().__init__(message, lease, returncode)
        self.message = message
        self.lease = lease
        self.returncode = returncode

    def __str__(self) -> str:
        return self.message


class KeptStopped(CommandRefused):
    """An operator keeps the command stopped. `flag` says who and why."""

    def __init__(self, message: str, flag: StopFlag | None = None, returncode: int = 75) -> None:
        super().__init__(message, flag, returncode)
        self.message = message
        self.flag = flag
        self.returncode = returncode

    def __str__(self) -> str:
        return self.message
