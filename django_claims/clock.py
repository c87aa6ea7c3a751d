"""
Time, one kind per use.

`clock()` measures: it decides whether this process still holds. It counts suspend where
the platform can (CLOCK_BOOTTIME), and neither freezegun nor time-machine moves it: both
replace functions of the `time` module by name, and leave `clock_gettime` alone.
`wall()` is for display only. The store's own clock, and nothing here, decides expiry.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from django_claims.exceptions import InvalidClaim

Duration = int | float | timedelta


def _real_clock() -> Callable[[], float]:
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        clock_id = getattr(time, name, None)
        if clock_id is not None:
            return functools.partial(time.clock_gettime, clock_id)
    # Wrapped, or freezegun would find it in this module, and replace it.
    return functools.partial(time.monotonic)


real_clock: Callable[[], float] = _real_clock()
"""What `clock()` is, but for the tests of a site that put another one in its place."""

_clock = real_clock
_wait: Callable[[float, float], float] | None = None


def clock() -> float:
    """Return seconds on a clock that only goes forward, and goes on while the machine sleeps."""
    return _clock()


def to_wait(seconds: float, at_most: float) -> float:
    """
    Return for how long to wait in earnest until so many seconds of `clock()` have gone by.

    That is `seconds`, but for a test's clock, which may let up to `at_most` of them go by at once.
    """
    return seconds if _wait is None else _wait(seconds, at_most)


def stand_in(clock: Callable[[], float] = real_clock, wait: Callable[[float, float], float] | None = None) -> None:
    """
    Have `clock()` and `to_wait()` answered by others: for django_claims.test alone.

    Holds that were taken by the clock before are of no use by the new one.
    """
    global _clock, _wait
    _clock, _wait = clock, wait


def wall() -> datetime:
    """Return the time of day, aware, for display."""
    return datetime.now(UTC)


def from_microseconds(value: int) -> datetime:
    """Return the aware time that lies so many microseconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)


def milliseconds(value: object, what: str, *, at_least: int = 1) -> int:
    """
    Return a duration in whole milliseconds.

    Takes seconds (int, float) or a timedelta. Anything else (text, bool, NaN, infinity,
    under `at_least` milliseconds) raises InvalidClaim that names the value.
    """
    if type(value) is float and at_least <= value * 1000 < 10**13:
        return round(value * 1000)  # what nearly all are
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidClaim(f"{what} should be a number of seconds or a timedelta, not {value!r}.")
    if not -(10**10) <= seconds <= 10**10:  # NaN too, and integers beyond all floats
        raise InvalidClaim(f"{what} should be a finite number of seconds, not {shown(value)}.")
    if seconds < 0:
        raise InvalidClaim(f"{what} should not be negative, and is {value!r}.")
    whole = round(seconds * 1000)
    if seconds * 1000 < at_least:
        raise InvalidClaim(f"{what} should be at least {at_least / 1000} s, not {value!r}.")
    return whole


def shown(value: object) -> str:
    """Return a value as a message shows it. Python refuses to write integers of some thousand digits."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of over 60 digits"
    return repr(value)


def iso(moment: datetime | None) -> str | None:
    """Return a time as JSON has it: ISO 8601 in UTC, always with as many digits."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def ago(seconds: float) -> str:
    """Return a duration in words: '4 s', '12 min', '3.5 h'."""
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
