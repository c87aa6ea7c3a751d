"""Clocks and durations."""

import math
import re
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from freezegun import freeze_time

from django_claims import InvalidClaim, claim
from django_claims.clock import _real_clock, ago, clock, from_microseconds, milliseconds, wall
from tests.helpers import wait_until


def test_the_clock_goes_on_under_frozen_time():
    with freeze_time("2001-01-01"):
        before = clock()

        wait_until(lambda: clock() > before, 1)

        assert clock() > before
        assert wall() == datetime(2001, 1, 1, tzinfo=UTC)


def test_the_clock_counts_suspend_where_the_platform_can():
    assert abs(clock() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 0.5


def test_the_clock_falls_back_to_what_the_platform_has(monkeypatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    without_boottime = _real_clock()
    monkeypatch.delattr(time, "CLOCK_MONOTONIC")
    without_either = _real_clock()

    assert abs(without_boottime() - time.monotonic()) < 0.5
    assert abs(without_either() - time.monotonic()) < 0.5
    assert without_either is not time.monotonic  # which freezegun would find and replace


def test_the_wall_clock_is_aware():
    assert wall().tzinfo is UTC


def test_microseconds_after_1970_are_an_aware_time():
    assert from_microseconds(1_500_000) == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "value, expected",
    [
        (1, 1000),
        (0.5, 500),
        (1.9, 1900),
        (0.001, 1),
        (timedelta(seconds=30), 30_000),
        (timedelta(days=31), 2_678_400_000),
    ],
)
def test_a_duration_becomes_whole_milliseconds(value, expected):
    found = milliseconds(value, "ttl")

    assert found == expected
    assert isinstance(found, int)


BAD = [
    "30", True, False, None, math.nan, math.inf, -math.inf, -5, -0.001, 0, 0.0, 0.0004, timedelta(0),
    timedelta(seconds=-1),
    timedelta(microseconds=1), [1], 1j, Fraction(1, 2), b"1", 1e300, 10**12,
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=lambda value: repr(value)[:30])
def test_a_duration_that_cannot_be_used_is_refused_by_its_value(value):
    with pytest.raises(InvalidClaim, match=r"^ttl ") as refused:
        milliseconds(value, "ttl")

    assert repr(value)[:30] in str(refused.value)


@pytest.mark.parametrize("what", ["ttl", "heartbeat", "renew_deadline", "max_hold"])
@pytest.mark.parametrize(
    "value", ["30", True, math.nan, math.inf, -5, 0, 0.0004, timedelta(0)], ids=lambda v: repr(v)[:20]
)
def test_a_claim_with_such_a_duration_is_refused_before_anything_is_stored(what, value):
    with pytest.raises(InvalidClaim, match=rf"{what} .*{re.escape(repr(value)[:30])}"):
        claim("x", **{what: value})


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["huge", "minus huge"])
def test_a_number_beyond_all_floats_is_refused_as_any_other(value):
    with pytest.raises(InvalidClaim, match=r"^ttl "):
        milliseconds(value, "ttl")


@pytest.mark.parametrize("what", ["timeout", "min_hold"])
@pytest.mark.parametrize("value", ["30", True, math.nan, math.inf, -5])
def test_a_wait_or_a_minimum_that_cannot_be_used_is_refused(what, value):
    with pytest.raises(InvalidClaim, match=rf"{what} .*{re.escape(repr(value))}"):
        claim("x", **{what: value})


def test_a_wait_and_a_minimum_may_be_nothing():
    recipe = claim("x", timeout=0, min_hold=timedelta(0))

    assert recipe.timeout == 0
    assert recipe.min_hold == 0


def test_a_wait_without_limit_is_none():
    assert claim("x", timeout=None).timeout is None


@pytest.mark.parametrize(
    "seconds, words", [(-3, "0 s"), (4, "4 s"), (119.4, "119 s"), (720, "12 min"), (12_600, "3.5 h")]
)
def test_a_time_ago_is_told_in_words(seconds, words):
    assert ago(seconds) == words
