"""
What a claim in files costs, as ratios to floors measured in the same run.

usage: python benchmarks/files.py [DIRECTORY]

The floor is what no lock file can beat: open, flock, write, close; once on a file that is there
and once on one that is made and removed each time, which is what a lock file costs that leaves
nothing behind. Ours is acquire and release of the backend, and of claims with heartbeat and
all. Rounds of floor and ours take turns, and the ratio is the median over the rounds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.conf import settings

ROUNDS, TIMES = 15, 1000
RECORD = b"x" * 300  # what a record of ours has
TOKEN = "0123456789abcdef0123456789abcdef"


def floor(path: str, *, leave: bool) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, RECORD)
    os.close(fd)
    if not leave:
        Path(path).unlink()


def microseconds(func: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(TIMES):
        func()
    return (time.perf_counter() - started) / TIMES * 1e6


def main() -> None:
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent
    folder = Path(tempfile.mkdtemp(dir=given, prefix="bench-"))
    from django_claims.backends import file_places

    file_places.temporary_places = list
    options = {"directory": str(folder / "claims")}
    settings.configure(
        INSTALLED_APPS=["django_claims"],
        CLAIMS={"default": {"BACKEND": "django_claims.backends.file.FileBackend", "OPTIONS": options}},
    )
    django.setup()
    from django_claims import claim
    from django_claims.backends.base import AcquireRequest, ReleaseRequest
    from django_claims.handler import claim_backends
    from django_claims.holders import this_holder

    backend = claim_backends["default"]
    count = 0

    def verbs(name: str) -> None:
        assert isinstance(backend.acquire([AcquireRequest(name, TOKEN, 180_000, 60_000, this_holder())]), list)
        backend.release([ReleaseRequest(name, TOKEN)])

    def new_name() -> None:
        nonlocal count
        count += 1
        verbs(f"job-{count}")

    def whole() -> None:
        with claim("job"):
            pass

    path = str(folder / "floor")
    contenders: dict[str, Callable[[], object]] = {
        "floor: open, flock, write, close": lambda: floor(path, leave=True),
        "floor with a file made and removed": lambda: floor(path + "-new", leave=False),
        "acquire + release, the same name": lambda: verbs("job"),
        "acquire + release, a new name each time": new_name,
        "with claim(): heartbeat, signals, all": whole,
    }
    times: dict[str, list[float]] = {label: [] for label in contenders}
    for _ in range(ROUNDS):
        for label, func in contenders.items():
            times[label].append(microseconds(func))
    first, second = list(times.values())[:2]
    print(f"{'':42} {'µs':>7} {'x floor':>8} {'x made':>8}")
    for label, found in times.items():
        ratios = [
            statistics.median(ours / base for ours, base in zip(found, bases, strict=True)) for bases in (first, second)
        ]
        print(f"{label:42} {statistics.median(found):7.1f} {ratios[0]:8.2f} {ratios[1]:8.2f}")
    backend.close()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
