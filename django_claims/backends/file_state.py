"""
Time, and what all names share: one line in the lock file.

    epoch_us fence news

The clock begins with the boot, so all times are of one boot. The epoch makes dates of them;
it is kept, so that all processes show the same ones.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import NamedTuple

from django_claims.backends.file_handles import Handles
from django_claims.backends.file_news import read_news
from django_claims.backends.file_records import Garbage, Slot, read_slots
from django_claims.clock import clock


def boot() -> str:
    """Return what is another one after each boot of the machine; '-' where the platform does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or "-"
    except OSError:
        return "-"


def _time_namespace() -> int:
    """Return by how many microseconds this container's boot clock is ahead of the machine's."""
    try:
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            which, seconds, nanoseconds = line.split()
            if which == "boottime":
                return int(seconds) * 1_000_000 + int(nanoseconds) // 1000
    except (OSError, ValueError):
        pass
    return 0


BOOT = boot()
AHEAD_US = _time_namespace()
STEP_US = 1_000_000
"""How far the time of day may have moved until dates are counted anew."""


def now() -> int:
    """Return microseconds after the boot: one clock for all processes of the machine."""
    return int(clock() * 1_000_000) - AHEAD_US


def epoch() -> int:
    """Return what makes a date of now(). For people, and so that fences grow from boot to boot."""
    seconds = time.clock_gettime(time.CLOCK_REALTIME) if hasattr(time, "clock_gettime") else time.time()
    return int(seconds * 1_000_000) - now()


class State(NamedTuple):
    """What all names share. `slot` is None if it has not been written in this form."""

    epoch_us: int
    fence: int
    news: int  # the number of the news that count
    slot: Slot | None


def read_state(handles: Handles) -> State:
    """Return what all names share; of another boot only what outlives one."""
    try:
        slot = read_slots(handles.lock)
        if slot is not None and slot.is_newer:
            raise OSError(errno.EINVAL, "it is used by a newer version of django-claims")
        if slot is not None:
            epoch_us, fence, news = map(int, slot.text.split(b" ")[:3])
            return State(epoch_us if slot.boot == BOOT else epoch(), fence, news, slot)
    except (Garbage, ValueError):
        pass
    epoch_us = epoch()
    return State(epoch_us, 0, read_news(handles, BOOT, epoch_us).number, None)
