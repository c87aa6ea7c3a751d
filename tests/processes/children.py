"""Processes of our own: their lines are read with deadlines, and each is ended by its own process id."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django_claims.clock import clock

PROJECT = Path(__file__).parent / "project"
SECONDS = 30.0  # for whatever a healthy child does at once; long, since the machine may be busy

# What pytest or a developer's shell has set must not decide what the children do.
FOREIGN = ("DJANGO_SETTINGS_MODULE", "PYTHONWARNINGS", "PYTHONUNBUFFERED")


@dataclass(frozen=True)
class Done:
    """How a process has ended. A negative code is the signal that it died by."""

    code: int
    out: str
    err: str
    at: float


class Child:
    """One process of the test project."""

    def __init__(self, script: str, *arguments: str, env: dict[str, str], cwd: Path, **how: Any) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in FOREIGN}
        prefix = how.pop("prefix", ())
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(PROJECT / script), *arguments],
            env={**inherited, "DJANGO_SETTINGS_MODULE": "settings", **env},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **how,
        )
        self.pid = self.process.pid
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._unread: queue.Queue[str | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_out, daemon=True),
            threading.Thread(target=self._read_err, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._unread.put(line.rstrip("\n"))
        self._unread.put(None)

    def _read_err(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line)

    def line(self, seconds: float = SECONDS) -> str:
        """Return the next line of its output."""
        try:
            line = self._unread.get(timeout=seconds)
        except queue.Empty:
            line = None
        assert line is not None, f"no line within {seconds} s; so far {self.lines}, errors: {''.join(self.errors)}"
        return line

    def says(self, wanted: str, seconds: float = SECONDS) -> None:
        """Read on until it says that."""
        ends = clock() + seconds
        while self.line(max(ends - clock(), 0.001)) != wanted:
            pass

    def tell(self, text: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def send(self, number: int) -> float:
        """Send it a signal; return when."""
        at = clock()
        os.kill(self.pid, number)
        return at

    def done(self, seconds: float = SECONDS) -> Done:
        """Wait for its end by itself, and return what came of it."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it did not end within {seconds} s; output {self.lines}, errors: {''.join(self.errors)}"
            ) from None
        at = clock()
        for reader in self._readers:
            reader.join(SECONDS)
        return Done(code, "\n".join(self.lines), "".join(self.errors), at)

    def state(self) -> str:
        """Return the letter that the kernel gives its state: R, S, T for stopped, Z for dead and not waited for."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def threads(self) -> int:
        """Return how many threads it has left; a process is over when its last one is."""
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def close(self) -> None:
        """End it, if it has not ended."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # it died with our last request unread
                pass


class Worker(Child):
    """A long-living process that does as it is told; see project/worker.py for the verbs."""

    def __init__(self, **how: Any) -> None:
        super().__init__("worker.py", **how)

    def begin(self, verb: str, *args: Any, **kwargs: Any) -> None:
        """Have it do something, and do not wait for the answer."""
        self.tell(json.dumps([verb, args, kwargs]))

    def answer(self, seconds: float = SECONDS) -> Any:
        said = json.loads(self.line(seconds))
        assert "raised" not in said, said["raised"]
        return said["answer"]

    def ask(self, verb: str, *args: Any, seconds: float = SECONDS, **kwargs: Any) -> Any:
        """Have it do something, and return the answer; fail if it raised."""
        self.begin(verb, *args, **kwargs)
        return self.answer(seconds)


def end(pid: int) -> None:
    """End a process that a child of ours has started."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
