"""
A process that has everything imported and forks workers: one that was killed is replaced in milliseconds.

Told by lines of JSON: {"spawn": spec} answers {"pid": …}; what has ended is told as {"ended": pid, "code": …}.
It has no threads and never touches a store, so that a fork of it is as good as a fresh process. When its input ends,
so do all of its workers.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from django_claims.clock import clock
from tests.faults import clocks

ROOT = Path(__file__).parent.parent.parent


class Spawner:
    """The other end: starts that process and talks to it."""

    def __init__(self, directory: Path, **env: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._with_clocks: Spawner | None = None
        self._log = (directory / "spawner.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.spawner"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            bufsize=1,
        )
        self.codes: dict[int, int] = {}
        self._spawned: list[int] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            said = json.loads(line)
            with self._changed:
                if "pid" in said:
                    self._spawned.append(said["pid"])
                    self.codes.pop(said["pid"], None)  # of one before it with the same number
                else:
                    self.codes[said["ended"]] = said["code"]
                self._changed.notify_all()

    def with_clocks(self) -> Spawner:
        """Return one like this whose workers' wall clocks can be turned; it is closed with this one."""
        if self._with_clocks is None:
            self._with_clocks = Spawner(self._directory, **clocks.environment())
        return self._with_clocks

    def spawn(self, spec: dict[str, Any]) -> int:
        """Start a worker and return its pid."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"spawn": spec}) + "\n")
        self._process.stdin.flush()
        with self._changed:
            assert self._changed.wait_for(lambda: self._spawned, 30), "the spawner does not answer"
            return self._spawned.pop(0)  # it may have ended by now

    def wait(self, pids: list[int], seconds: float) -> list[int]:
        """Wait until these have ended, for so long at most; return those that have not."""
        with self._changed:
            self._changed.wait_for(lambda: all(pid in self.codes for pid in pids), seconds)
            return [pid for pid in pids if pid not in self.codes]

    def close(self) -> None:
        if self._with_clocks is not None:
            self._with_clocks.close()
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        self._process.stdout.close()
        self._log.close()


def main() -> None:
    from tests.faults.preload import preload

    preload()
    alive: set[int] = set()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *about: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    ended = False
    buffer = b""
    while not ended:
        ready, _, _ = select.select([0, reading], [], [], 60)
        if reading in ready:
            os.read(reading, 4096)
        _reap(alive)
        if 0 not in ready:
            continue
        said = os.read(0, 65536)
        ended = not said
        *lines, buffer = (buffer + said).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                signal.set_wakeup_fd(-1)
                os.close(writing)
                _work(json.loads(line)["spawn"])
            alive.add(pid)
            print(json.dumps({"pid": pid}), flush=True)
    for pid in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ends = clock() + 10
    while alive and clock() < ends:
        _reap(alive)
        time.sleep(0.01)


def _reap(alive: set[int]) -> None:
    while alive:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        alive.discard(pid)
        print(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


def _work(spec: dict[str, Any]) -> None:
    """In the child: be the worker, and end as a program does."""
    from tests.faults import workers

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    log = os.open(spec["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 2)
    # As at the end of a program: what is registered with atexit runs, and SystemExit says with which code.
    code = 1
    try:
        try:
            workers.run(spec)
            code = 0
        except SystemExit as ending:
            code = ending.code if isinstance(ending.code, int) else 1
        except BaseException:
            traceback.print_exc()
        atexit._run_exitfuncs()
    finally:  # also by a signal's exception that comes late: it must not go on as the process that was forked
        # What the interpreter tears down after that costs a busy machine seconds, and shows nothing.
        os._exit(code)


if __name__ == "__main__":
    main()
