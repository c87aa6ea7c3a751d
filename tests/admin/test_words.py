"""Durations, numbers, times and states in words."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import translation

from django_claims.admin import words
from django_claims.clock import wall
from django_claims.leases import StopFlag


@pytest.mark.parametrize(
    "seconds, said",
    [
        (-5, "0 s"), (0, "0 s"), (1.4, "1 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"),
        (12600, "3.5 h"), (172_800, "2 d"), (10**8, "1,157.4 d"),
    ],
)  # fmt: skip
def test_durations_are_short_and_never_negative(seconds, said):
    assert words.duration(seconds) == said.replace("1,157", "1157")


@pytest.mark.parametrize(
    "value, said",
    [
        (7, "7"), (9999, "9999"), (12345, "12,345"), (-12345, "-12,345"), (2.0, "2"), (2.345, "2.35"), (1e20, "1e+20"),
        (float("nan"), "nan"), (float("inf"), "inf"), ("x" * 100, "x" * 40), (None, "None"), (True, "True"),
        ("\x1b", "\\x1b"),
    ],
)  # fmt: skip
def test_numbers_are_grouped_and_what_is_none_is_text(value, said):
    assert words.number(value) == said


def test_numbers_follow_the_language():
    with translation.override("de"):
        assert words.number(12345.5) == "12.345,5"
        assert words.duration(12600) == "3,5 h"


def test_times_of_today_stand_without_the_date(settings):
    settings.TIME_ZONE = "Asia/Tokyo"
    today = wall()
    other = datetime(2020, 1, 2, 20, 0, tzinfo=UTC)

    assert words.moment(today) == (today + timedelta(hours=9)).strftime("%H:%M:%S")
    assert words.moment(other) == "01/03/2020 05:00:00"
    assert words.moment(None) == ""
    assert words.moment(datetime.max.replace(tzinfo=UTC)).startswith("9999-12-31")


def test_how_long_a_stop_lasts():
    def flag(**about):
        return StopFlag(name="a", alias="default", **about)

    assert words.until(flag(fence=1, keep=False)) == "until that run ends"
    assert words.until(flag(fence=None, keep=True)) == "until cleared"
    until = words.until(flag(fence=None, keep=True, expires_at=datetime(2020, 1, 2, 20, 0, tzinfo=UTC)))
    assert until.startswith("until 01/02/2020")
