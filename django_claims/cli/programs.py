"""
A program under a claim: its process, and the signals that are handed on to it.

    prepared (a process that waits) ── acquire ── go: it becomes the program ── ends ── release

The process is there before the claim is acquired, so that the lease names it from the start.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

from django_claims.holders import ProcessId, process_of
from django_claims.logs import get_logger

logger = get_logger(__name__)

BECOME = Path(__file__).parent / "become.py"
ENDING = ("SIGTERM", "SIGINT", "SIGHUP")
HANDED_ON = (*ENDING, "SIGUSR1", "SIGUSR2")
OF_TERMINALS = ("SIGINT", "SIGHUP")


def keys_reach_the_program() -> bool:
    """
    Say whether a terminal speaks to our process group, and the program may wish to read it.

    It then stays in our group: the keys (Ctrl-C, Ctrl-Z) and a hang-up reach it without us. Else
    it gets a group of its own, so that a signal for our group reaches it once, through us.
    """
    if os.name != "posix":
        return True
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


class Program:
    """The process of a program. Make it in the thread that waits: the process dies with that thread."""

    def __init__(self, words: Sequence[str], name: str) -> None:
        self.words = list(words)
        self.has_keys = keys_reach_the_program()
        self._environment = {**os.environ, "CLAIM_NAME": name}
        self._process: subprocess.Popen[bytes] | None = None
        self._go: int | None = None
        self._has_ended = False

    def prepare(self) -> None:
        """Start a process that waits for go(). On Windows, and in embedded Pythons, there is none before."""
        if os.name != "posix" or not sys.executable:
            return
        read, self._go = os.pipe()
        os.set_inheritable(read, True)
        words = [sys.executable, "-I", "-S", str(BECOME), str(read), str(os.getpid()), *self.words]
        try:
            self._process = self._popen(words)
        finally:
            os.close(read)

    def _popen(self, words: list[str]) -> subprocess.Popen[bytes]:
        # What we were given open (a socket of systemd's) is the program's as well; of ours nothing is inheritable.
        group: dict[str, Any] = {} if self.has_keys or os.name != "posix" else {"process_group": 0}
        # To pyright, who does not know the keys of `group`, it may be one of text.
        return subprocess.Popen(words, env=self._environment, close_fds=False, **group)  # pyright: ignore[reportReturnType]

    @property
    def process_id(self) -> ProcessId | None:
        """The process, as a lease names it."""
        if self._process is None:
            return None
        pid = self._process.pid
        return process_of(pid)

    def go(self, fence: int) -> None:
        """Let it become the program."""
        if self._go is None:
            self._environment["CLAIM_FENCE"] = str(fence)
            self._process = self._popen(self.words)
            return
        try:
            os.write(self._go, f"{fence}\n".encode())
        except BrokenPipeError:  # it was ended while it waited, and wait() says how
            pass
        self._close_go()

    def _close_go(self) -> None:
        if self._go is not None:
            os.close(self._go)
            self._go = None

    def wait(self) -> int:
        """Wait for its end and return the exit status, 128 + n if signal n ended it."""
        assert self._process is not None
        code = self._process.wait()
        self._has_ended = True
        return 128 - code if code < 0 else code

    def send(self, number: int) -> None:
        """Hand a signal on to the program itself, as if it had been sent there."""
        if self._process is not None and not self._has_ended:
            self._signal(self._process, number)

    def _signal(self, process: subprocess.Popen[bytes], number: int) -> None:
        try:
            process.send_signal(number)
        except PermissionError:  # it runs as another user, and has no group of its own here
            logger.warning("The program of a claim may not be sent signals pid=%s signal=%s", process.pid, number)

    def end(self, number: int, *, after: bool = False) -> None:
        """End the program and what it has started in its group. `after`: what is left of that once it has ended."""
        if self._process is None or (self._has_ended and not after):
            return
        if self.has_keys or os.name != "posix":
            if not after:
                self._signal(self._process, number)
            return
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # it runs as another user
            logger.warning("The program of a claim may not be sent signals pid=%s signal=%s", self._process.pid, number)

    def close(self) -> None:
        """See to it that nothing goes on: whatever happened, no program outlives the hold."""
        self._close_go()
        if self._process is not None and not self._has_ended:
            if self._process.poll() is None:
                self.end(getattr(signal, "SIGKILL", signal.SIGTERM))
            self._process.wait()


class HandedOn:
    """
    Signals for this process that are the program's. A context manager; does nothing outside the main thread.

    While there is no program, those that end a process end this one by SystemExit, and the others wait.
    """

    def __init__(self, news: queue.SimpleQueue[Any], has_keys: Callable[[], bool]) -> None:
        self._news = news
        self._has_keys = has_keys
        self._before: dict[int, Any] = {}
        self.is_running = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in HANDED_ON:
                number = getattr(signal, name, None)
                # What the caller ignores, as nohup does, stays ignored; the program inherits that.
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
            if os.name == "posix" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
                # The kernel would keep no exit status for us.
                self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if not self.is_running and name in ENDING:
            raise SystemExit(128 + number)
        if self.is_running and self._has_keys() and name in OF_TERMINALS:
            return  # the program has had it from the terminal
        self._news.put(signal.Signals(number))
