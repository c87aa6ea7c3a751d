"""What all benchmarks share: rounds that take turns, medians and spread, tables, and what the machine was."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SENT = [0, 0]
"""What redis-py connections have put on the wire in this process, and in its main thread: a send is a round trip."""


@dataclass
class Table:
    """Results under a title. `bars`, of some rows, or `lines`, by name, are what a picture of it shows."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bars: dict[str, float] = field(default_factory=dict)
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    unit: str = ""

    def markdown(self) -> str:
        lines = [f"### {self.title}", ""]
        if self.rows:
            head = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
            lines += ["| " + " | ".join(row) + " |" for row in head] + [""]
        for note in self.notes:
            lines += [note, ""]
        return "\n".join(lines)


class Series:
    """The microseconds that one turn of a contestant took, in each round: by the clock, and of processor time."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def ratio(self, base: Series) -> float:
        """Return how many times as long as the base, round by round, since the load of a machine comes and goes."""
        return statistics.median(mine / floor for mine, floor in zip(self.wall, base.wall, strict=True))

    def cpu_ratio(self, base: Series) -> float:
        return statistics.median(self.cpu) / max(statistics.median(base.cpu), 0.01)


def interleave(contestants: dict[str, Callable[[int], object]], rounds: int, seconds: float) -> dict[str, Series]:
    """Let the contestants take turns for so many rounds of so many seconds each. They are given a number each time."""
    turns, count = {}, 0
    for name, once in contestants.items():
        once(-1)  # warm: scripts are loaded, connections made
        began, some = time.perf_counter(), 0
        while some < 3 or time.perf_counter() - began < seconds / 5:
            some += 1
            once(-1 - some)
        turns[name] = max(int(seconds / ((time.perf_counter() - began) / some)), 3)
    found = {name: Series() for name in contestants}
    for _ in range(rounds):
        for name, once in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(turns[name]):
                count += 1
                once(count)
            found[name].cpu.append((time.process_time() - cpu) / turns[name] * 1e6)
            found[name].wall.append((time.perf_counter() - wall) / turns[name] * 1e6)
    return found


def spread(values: Sequence[float]) -> str:
    """Return the median, and the middle half of the values."""
    middle = statistics.median(values)
    if len(values) < 4:
        return number(middle)
    low, _, high = statistics.quantiles(values, n=4)
    return f"{number(middle)} ({number(low)} to {number(high)})"


def number(value: float) -> str:
    """Return a number as short as its size allows."""
    if value != value:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def count_round_trips() -> None:
    from redis.connection import AbstractConnection

    real = AbstractConnection.send_packed_command

    def counted(self: object, *args: object, **kwargs: object) -> object:
        SENT[0] += 1
        SENT[1] += threading.current_thread() is threading.main_thread()
        return real(self, *args, **kwargs)

    AbstractConnection.send_packed_command = counted


def round_trips(once: Callable[[int], object], times: int = 20) -> float:
    """Return the round trips of one turn, if it talks to Redis."""
    before = SENT[0]
    for each in range(times):
        once(-1000 - each)
    return (SENT[0] - before) / times


def rss() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def load() -> str:
    """Return how many threads wanted a core on average: in the last minute, five and fifteen."""
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


def versions(*packages: str) -> str:
    found = []
    for package in packages:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def machine(servers: Sequence[str], load_before: str) -> str:
    """
    Return the conditions of a run in general words.

    Whether others were at work is judged by the minute before it: what came later is mostly its own load.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = float(load_before.split()[0]) > (cores or 1) * 0.5
    system = f"{platform.system()} on {platform.machine()}, {cores} cores"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    clients = versions("redis", "hiredis", "django-redis", "psycopg", "mysqlclient", "pymemcache")
    others = "; **other programs loaded the machine**, so look at ratios of one table" if busy else ""
    return "\n".join(
        [
            f"- {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {system}, {python}, {versions('Django')}",
            f"- servers: {', '.join(servers)}; all on the same machine, over the loopback or a local directory",
            f"- clients: {clients}",
            f"- load average: {load_before} before, {load()} after{others}",
        ]
    )
