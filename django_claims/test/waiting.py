"""Wait for a condition, with a deadline: what tests do instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from django_claims.clock import clock

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], seconds: float = 5.0, *, what: str = "") -> T:
    """
    Return the first true answer of a condition, asked every few milliseconds.

    Raises AssertionError, with the last answer, if there was none in so many seconds.
    """
    ends = clock() + seconds
    while True:
        late = clock() >= ends
        answer = condition()
        if answer:
            return answer
        if late:
            raise AssertionError(f"{what or 'what was waited for'} did not come within {seconds} s: {answer!r}")
        time.sleep(0.005)
