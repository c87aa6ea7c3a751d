"""
What happened: a line of JSON for each event, a file for each process.

`t`, `t0` and `t1` are seconds of CLOCK_BOOTTIME, one clock for all processes of a machine: before it was asked,
and after the answer. `srv` is the store's own time of the grant or renewal, in microseconds, where it says one.
Tokens are passwords, also here: the history has digests of them.

| ev | written by | means |
|---|---|---|
| ask | worker | an acquire or a release is about to be sent: it may take effect although no answer is written |
| grant, refused, renew, release | worker | the store's answer (`res`) |
| handed, adopted | worker | a hold was handed over for a ticket (a digest too), and adopted by it (`res`) |
| error | worker | no answer: it may have taken effect, at any time from `t0` on |
| act | worker | guarded work: `held` was true; `t` was taken before the look |
| lost, stopseen | worker | the hold was lost, a stop was seen |
| open, over | worker | a hold was given to the program that asked, and was given up by it |
| wait | worker | an acquire with a timeout, and how it ended |
| stop, force | worker | an operator's request, and the answer |
| wrote | worker | a guarded write was acknowledged |
| gap | worker | the process itself stood still |
| exit, crash | worker | its end; an exception that nobody has promised |
| dead | arena | a signal that ends a process is about to be sent |
| nemesis | arena | a fault, from `t0` to `t1` |
| wiped | arena | the store lost its data in that time, or some of it, so many `times` |
| down | arena | the store certainly did not answer in that time |
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from hashlib import sha1
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def digest(token: str) -> str:
    """Return what stands for an owner token."""
    return sha1(token.encode()).hexdigest()[:12]


class Writer:
    """The history of one process. Safe in threads; a line is one write, so that a kill tears the last one at most."""

    def __init__(self, directory: Path, process: str) -> None:
        self.process = process
        self.path = directory / f"{process}.jsonl"
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, ev: str, **what: Any) -> None:
        line = json.dumps({"p": self.process, "ev": ev, **what}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read(directory: Path) -> list[Event]:
    """Return all events of a directory, those of each process in their order. A torn last line is left out."""
    events = []
    for path in sorted(directory.glob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        last = lines.pop()
        for number, line in enumerate(lines):
            try:
                events.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number + 1} is no event: {line[:100]!r}") from error
        if last:
            try:
                events.append(json.loads(last))
            except ValueError:
                pass  # its process was killed as it wrote
    return events


def write_out(events: Iterable[Event], path: Path) -> None:
    """Keep events in one file, in order of time."""
    with path.open("w") as out:
        for event in sorted(events, key=lambda event: event.get("t1", event.get("t", 0.0))):
            out.write(json.dumps(event) + "\n")
