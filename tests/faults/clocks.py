"""
Wall clocks of processes, turned from outside by what stands in a file.

By a small library that is loaded before the C library (clocks.c), where there is a compiler; else a process's own
functions of Python are replaced, and servers cannot be turned. The monotonic clocks stay as they are. libfaketime
0.9.10 is of no use here: under it time.sleep() fails, and Redis does not answer.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

VARIABLE = "CLAIMS_TEST_CLOCK"
SOURCE = Path(__file__).with_suffix(".c")


@functools.cache
def library() -> str:
    """Build the library and return its path; '' where there is no compiler."""
    compiler = shutil.which("cc")
    if not compiler:
        return ""
    directory = tempfile.mkdtemp(prefix="claims-clocks-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = f"{directory}/clocks.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", path, str(SOURCE), "-ldl"], check=True, timeout=60)
    return path


def environment(path: Path | str = "") -> dict[str, str]:
    """Return what makes a program go by the clock of a file; {} where there is no compiler."""
    return {"LD_PRELOAD": library(), VARIABLE: str(path)} if library() else {}


def turn(path: Path, seconds: float) -> None:
    """Have the clock of those who look there differ by so much from the machine's."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(file, struct.pack("=q", round(seconds * 1e6)), 0)
    os.close(file)


def follow(path: str) -> None:
    """In a process whose clock is to be turned: look there."""
    if not Path(path).exists():
        turn(Path(path), 0.0)
    if VARIABLE in os.environ:
        os.environ[VARIABLE] = path
    else:
        _patch(Path(path))


def _patch(path: Path) -> None:
    from django_claims import clock

    of, of_ns = time.clock_gettime, time.clock_gettime_ns

    def off_us() -> int:
        return int(struct.unpack("=q", path.read_bytes())[0])

    def gettime(which: int) -> float:
        return of(which) + (off_us() / 1e6 if which == time.CLOCK_REALTIME else 0.0)

    def gettime_ns(which: int) -> int:
        return of_ns(which) + (off_us() * 1000 if which == time.CLOCK_REALTIME else 0)

    time.clock_gettime, time.clock_gettime_ns = gettime, gettime_ns
    time.time = lambda: gettime(time.CLOCK_REALTIME)
    time.time_ns = lambda: gettime_ns(time.CLOCK_REALTIME)
    clock.wall = lambda: datetime.now(UTC) + timedelta(microseconds=off_us())
