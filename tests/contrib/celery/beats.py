"""Real beats, and what they send: read from the broker's queue, with the process that sent it and when."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from django_claims.clock import clock
from django_claims.test import wait_until

ROOT = Path(__file__).parents[3]
APP = "tests.contrib.celery.beat_app"
SECONDS = 40.0  # for what a healthy process does at once, on a busy machine


class Send(NamedTuple):
    at: float
    task: str
    pid: int  # of the beat


class Sends:
    """All that is sent into one queue, in the order in which it came."""

    def __init__(self, server: Any, queue: str) -> None:
        self._client = server.client(socket_timeout=10)
        self._queue = queue
        self._all: list[Send] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            raw = self._client.rpop(self._queue)
            if raw is None:
                time.sleep(0.002)
                continue
            headers = json.loads(raw)["headers"]
            self._all.append(Send(clock(), headers["task"], int(re.match(r"gen(\d+)@", headers["origin"])[1])))

    def of(self, task: str = "every-second", *, by: int | None = None, after: float = 0.0) -> list[Send]:
        return [send for send in list(self._all) if send.task == task and by in (None, send.pid) and send.at > after]

    def wait(self, count: int, task: str = "every-second", **which: Any) -> list[Send]:
        """Wait until so many of them have come."""
        return wait_until(
            lambda: len(found := self.of(task, **which)) >= count and found, SECONDS, what=f"{count} {task}"
        )

    def doubled(self, task: str = "every-second", tick: float = 1.0) -> int:
        """
        Return how many one beat sent although another had done so less than half a tick before.

        Two of one beat may well come together: two ticks, the first of which the broker was slow to take.
        """
        pairs = itertools.pairwise(self.of(task))
        return sum(later.at - sooner.at < tick / 2 and later.pid != sooner.pid for sooner, later in pairs)

    def close(self) -> None:
        self._over.set()
        self._thread.join(SECONDS)
        self._client.close()


class Beat:
    """One beat, in a directory of its own unless it is given one: the schedule's file lies there."""

    def __init__(
        self, env: dict[str, str], cwd: Path, *arguments: str, scheduler: str = "QuickScheduler", program: str = "beat"
    ) -> None:
        cwd.mkdir(parents=True, exist_ok=True)
        self.log_path = cwd / f"{program}-{os.urandom(4).hex()}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("BEAT_", "DJANGO_"))}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "celery",
                    "-A",
                    APP,
                    program,
                    "--scheduler",
                    f"{APP}.{scheduler}",
                    "-l",
                    "INFO",
                    *arguments,
                ],
                env={**inherited, "PYTHONPATH": str(ROOT), **env},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.pid = self.process.pid
        self._is_worker = program == "worker"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def says(self, text: str, times: int = 1) -> None:
        """Wait until it has logged that."""
        try:
            wait_until(lambda: self.log.count(text) >= times, SECONDS, what=f"{text!r} in the log of a beat")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said: {self.log[-3000:]}") from None

    @property
    def is_active(self) -> bool:
        return self.log.count("Active: this beat sends") > self.log.count("Standing by again")

    def send(self, number: int) -> float:
        at = clock()
        os.kill(self.pid, number)
        return at

    def end(self, seconds: float = SECONDS) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            # A worker's own beat is a child of it that outlives its death, so it is asked first.
            self.process.send_signal(signal.SIGTERM if self._is_worker else signal.SIGKILL)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(SECONDS)
