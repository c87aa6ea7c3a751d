"""Cross-process claims and stop flags for Django."""

from django_claims.claims import Claim
from django_claims.decorators import single_instance
from django_claims.exceptions import (
    AlreadyRunning,
    BackendUnavailable,
    ClaimError,
    ClaimHeld,
    ClaimLost,
    ClaimRefused,
    ClaimStopped,
    CommandRefused,
    InvalidClaim,
    InvalidClaimsSetting,
    KeptStopped,
    StaleFence,
    StopRequested,
    UnsupportedFeature,
)
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from django_claims.holds import Hold
from django_claims.leases import Lease, LeasePage, LossReason, Progress, ReleaseResult, StopFlag
from django_claims.operations import aforce_release, alist_claims, force_release, list_claims, liveness
from django_claims.recipes import claim, claim_all, current_hold, hold
from django_claims.resources import resource
from django_claims.shutdown import draining, release_all, start_draining
from django_claims.stop_flags import (
    aclear_stop,
    arequest_stop,
    astop_flag,
    clear_stop,
    list_stop_flags,
    request_stop,
    stop_flag,
)

__all__ = [
    "claim",
    "claim_all",
    "Claim",
    "Hold",
    "hold",
    "resource",
    "single_instance",
    "request_stop",
    "clear_stop",
    "stop_flag",
    "list_claims",
    "list_stop_flags",
    "force_release",
    "liveness",
    "current_hold",
    "release_all",
    "draining",
    "start_draining",
    "claim_backends",
    "arequest_stop",
    "aclear_stop",
    "astop_flag",
    "alist_claims",
    "aforce_release",
    "Lease",
    "LeasePage",
    "Holder",
    "Progress",
    "StopFlag",
    "LossReason",
    "ReleaseResult",
    "ClaimError",
    "ClaimRefused",
    "ClaimHeld",
    "ClaimStopped",
    "ClaimLost",
    "BackendUnavailable",
    "UnsupportedFeature",
    "StaleFence",
    "InvalidClaim",
    "StopRequested",
    "CommandRefused",
    "AlreadyRunning",
    "KeptStopped",
    "InvalidClaimsSetting",
]
