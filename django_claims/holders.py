"""
Who holds: this process, in words for people and in facts for machines.

A process is known by the machine's boot id, its pid namespace, its pid and its start
time, since a pid alone comes round again. Only a process of the same namespace and boot
can be found dead; about any other one nobody here can tell, and that counts as alive.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import select
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django_claims import clock
from django_claims.names import cut


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for good: no two ever share all four."""

    space: str  # boot id and pid namespace, digested; '' where the platform has neither
    pid: int
    start: int  # clock ticks after boot, field 22 of its stat file; 0 if unknown

    def is_dead(self) -> bool:
        """Say whether this process is certainly over. What cannot be told is alive."""
        here = this_process()
        if not self.space or self.space != here.space:
            return False
        if self.pid == here.pid:
            return bool(self.start and here.start and self.start != here.start)
        start = _start_of(self.pid)
        if self.start and start and start != self.start:
            return True  # the pid has come round: that one is another process
        return _has_ended(self.pid)


@dataclass(frozen=True, kw_only=True)
class Holder:
    """
    Who has a claim, as far as people need it.

    `label` is the program and its command, or the task's name, never arguments: those
    carry secrets. `node` is the worker's node name, where there is one.
    """

    host: str
    pid: int
    started_at: datetime | None = None
    label: str = ""
    node: str = ""
    task_id: str = ""
    processes: tuple[ProcessId, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        label = f", {self.label}" if self.label else ""
        return f"{self.host} (pid {self.pid}{label})"

    def as_dict(self) -> dict[str, Any]:
        """Return what is for everybody, JSON-ready."""
        return {
            "host": self.host,
            "pid": self.pid,
            "started_at": clock.iso(self.started_at),
            "label": self.label,
            "node": self.node,
            "task_id": self.task_id,
        }

    @functools.cached_property
    def packed(self) -> str:
        """All of it as one short line of JSON, for stores. Later versions may only append."""
        started = int(self.started_at.timestamp()) if self.started_at else 0
        processes = [[p.space, p.pid, p.start] for p in self.processes]
        return json.dumps(
            [self.host, self.pid, started, self.label, self.node, self.task_id, processes],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def unpack(cls, text: str) -> Holder:
        """Read what `packed` says. Raises ValueError for anything else."""
        return _unpacked(text)

    @classmethod
    def _read(cls, text: str) -> Holder:
        try:
            host, pid, started, label, node, task_id, processes, *_ = json.loads(text)
            return cls(
                host=str(host),
                pid=int(pid),
                started_at=clock.from_microseconds(int(started) * 1_000_000) if started else None,
                label=str(label),
                node=str(node),
                task_id=str(task_id),
                processes=tuple(ProcessId(str(space), int(pid), int(start)) for space, pid, start in processes),
            )
        except (TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError("not a holder") from error

    def is_dead(self) -> bool:
        """Say whether every process that this lease stands for is certainly over."""
        return bool(self.processes) and all(process.is_dead() for process in self.processes)


@functools.lru_cache(maxsize=256)
def _unpacked(text: str) -> Holder:
    """Read a holder, of which each that waits or is looked at is read again and again."""
    return Holder._read(text)


def this_holder(label: str = "", *, node: str = "", task_id: str = "") -> Holder:
    """Return this process as a holder."""
    return _this_holder(os.getpid(), label, node, task_id)


def process_of(pid: int) -> ProcessId:
    """Return a living process of this pid namespace by its pid."""
    return ProcessId(space=this_process().space, pid=pid, start=_start_of(pid))


def this_process() -> ProcessId:
    """Return this process."""
    return _this_process(os.getpid())


@functools.lru_cache(maxsize=256)
def _this_holder(pid: int, label: str, node: str, task_id: str) -> Holder:
    return Holder(
        host=socket.gethostname(),
        pid=pid,
        started_at=_started_at(_this_process(pid)),
        label=cut(label or default_label(sys.argv)),
        node=cut(node),
        task_id=cut(task_id),
        processes=(_this_process(pid),),
    )


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> ProcessId:
    return ProcessId(space=_space(), pid=pid, start=_start_of(pid))


def _started_at(process: ProcessId) -> datetime:
    """Return when this process started, by the wall clock as it is now."""
    if not process.start:
        return clock.wall()
    return clock.wall() - timedelta(seconds=clock.clock() - process.start / os.sysconf("SC_CLK_TCK"))


def _space() -> str:
    """Return what all processes share that can see each other's pids, or ''."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return hashlib.sha256(f"{boot}/{namespace}".encode()).hexdigest()[:16]


def _start_of(pid: int) -> int:
    """Return the start time of a process in clock ticks after boot, or 0 if unknown."""
    try:
        # The second field, the program's name, may hold blanks and brackets of its own.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _has_ended(pid: int) -> bool:
    """Say whether there is certainly no such process, or only its remains."""
    if hasattr(os, "pidfd_open"):
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(0))  # readable: it has ended, though nobody has waited for it
        finally:
            os.close(fd)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def default_label(argv: Iterable[str]) -> str:
    """
    Return the program and, for manage.py, its command: 'manage.py nightly_report'.

    Nothing else of the command line, since arguments carry secrets.
    """
    words = list(argv)
    path = Path(words[0]) if words and words[0] not in ("", "-c", "-m") else Path("python")
    program = path.parent.name if path.name == "__main__.py" else path.name
    if program in ("manage.py", "django-admin", "django") and len(words) > 1 and words[1].isidentifier():
        return f"{program} {words[1]}"
    return program
