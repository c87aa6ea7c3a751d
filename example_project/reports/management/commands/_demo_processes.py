"""Commands of this project in operating-system processes of their own, each ended by its own pid."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Self, TypeVar

from django.conf import settings

T = TypeVar("T")

MANAGE = settings.BASE_DIR / "manage.py"
CELERY = ("-m", "celery", "-A", "example", "--quiet")
TICK = 0.05


class DemoFailure(Exception):
    """A step did not come out as it must. The text says how."""


class Run:
    """One manage.py command, or other program of Python, in a process of its own; what it prints is kept."""

    def __init__(self, *arguments: str, program: tuple[str, ...] = (str(MANAGE),)) -> None:
        self.command = " ".join(arguments)
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=settings.BASE_DIR,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def printed(self) -> str:
        """The end of what it printed, to be shown where something went wrong."""
        return "\n".join(self.output.splitlines()[-8:]) or "(nothing)"

    def finish(self, seconds: float) -> int:
        """Wait for its end and return the exit code."""
        try:
            self.output, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise DemoFailure(f"'{self.command}' (pid {self.pid}) had not ended after {seconds:.0f} s.") from None
        return self.process.returncode

    def must_exit(self, code: int, seconds: float) -> None:
        """Wait for its end; a DemoFailure with its output unless it ends with this code."""
        found = self.finish(seconds)
        if found != code:
            raise DemoFailure(
                f"'{self.command}' (pid {self.pid}) ended with exit code {found} instead of {code}. "
                f"It printed:\n{self.printed}"
            )

    def line_with(self, text: str) -> str:
        """Return the first line that it printed with this text in it."""
        for line in self.output.splitlines():
            if text in line:
                return line.strip()
        raise DemoFailure(f"'{self.command}' did not print {text!r}, but:\n{self.printed}")

    def end(self, seconds: float) -> None:
        """SIGTERM, which it must answer by an end in order."""
        self.process.terminate()
        self.must_exit(0, seconds)

    def kill(self, seconds: float = 10.0) -> None:
        """SIGKILL: it gets no chance to let go of anything."""
        self.process.kill()
        self.finish(seconds)


class Runs:
    """All that was started; leaving the block ends what is left, by pid."""

    def __init__(self) -> None:
        self._runs: list[Run] = []

    def start(self, *arguments: str, **how: tuple[str, ...]) -> Run:
        run = Run(*arguments, **how)
        self._runs.append(run)
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for run in self._runs:
            if not run.has_ended:
                run.process.kill()
            run.process.communicate()


def wait_for(look: Callable[[], T | None], seconds: float, what: str) -> T:
    """Look again and again until there is something to see, and return it; a DemoFailure if there never is."""
    ends = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() >= ends:
            raise DemoFailure(f"Waited {seconds:.0f} s for {what}, in vain.")
        time.sleep(TICK)


def inner_environment(**changes: str | None) -> dict[str, str]:
    """Return this process's environment with some variables set, and those of None taken out."""
    environment = {**os.environ, **changes}
    return {name: value for name, value in environment.items() if value is not None}
