"""What a type checker knows of the helpers for tests. Checked by mypy and pyright, never run."""

from typing import assert_type

from django.test import SimpleTestCase, TestCase

from django_claims import Lease, LossReason, StopFlag, claim
from django_claims.test import (
    ClaimsInTest,
    FakeClock,
    assert_claim_held,
    assert_claim_refused,
    assert_claim_released,
    expire,
    held,
    lose,
    override_claims,
    request_stop,
    wait_until,
)


def blocks() -> None:
    with override_claims() as claims:
        assert_type(claims, ClaimsInTest)
        assert_type(claims.clock, FakeClock | None)
        with claims.held("x") as lease:
            assert_type(lease, Lease)
    with override_claims(clock="wall", TTL=2), override_claims(clock=FakeClock()), override_claims(threads=True):
        pass
    with held(claim("x", key=1), by="web-2") as lease, assert_claim_refused("x", key=1):
        assert_type(lease.fence, int)
    assert_type(assert_claim_held("x", by="web-2"), Lease)
    assert_claim_released("x")
    expire("x", using="other")
    lose("x", LossReason.TAKEN)
    assert_type(request_stop("x"), StopFlag)
    assert_type(wait_until(lambda: claim("x").lease(), what="a lease"), Lease)


@override_claims
def plain(number: int) -> str:
    return str(number)


@override_claims()
class Tests(TestCase):
    pass


@override_claims(attr_name="claims")
class MoreTests(SimpleTestCase):
    claims: ClaimsInTest


@held("x")
def decorated(number: int) -> str:
    return str(number)


def kept() -> None:
    assert_type(plain(1), str)
    assert_type(decorated(1), str)


def fixtures(claims: ClaimsInTest, claims_clock: FakeClock, claims_redis: ClaimsInTest) -> None:
    claims_clock.tick(1)
    claims_clock.run(2.5)
    claims_redis.assert_released("x")
    claims.beat()
