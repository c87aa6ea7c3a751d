"""For test suites: of sites that use claims, and of backends that others write."""

from django_claims.test.acting import beat, expire, held, lose, request_stop
from django_claims.test.asserting import assert_claim_held, assert_claim_refused, assert_claim_released
from django_claims.test.clocks import FakeClock
from django_claims.test.contract import BackendContract
from django_claims.test.overriding import ClaimsInTest, override_claims
from django_claims.test.waiting import wait_until

__all__ = [
    "override_claims",
    "held",
    "expire",
    "lose",
    "request_stop",
    "beat",
    "FakeClock",
    "assert_claim_held",
    "assert_claim_refused",
    "assert_claim_released",
    "wait_until",
    "ClaimsInTest",
    "BackendContract",
]
