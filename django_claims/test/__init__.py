"""For test suites: of sites that use claims, and of backends that others write."""

from django_claims.test.contract import BackendContract
from django_claims.test.waiting import wait_until

__all__ = ["BackendContract", "wait_until"]
