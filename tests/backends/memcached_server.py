"""A private memcached, or the one that CLAIMS_TEST_MEMCACHED names."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

from django_claims.clock import clock
from tests.servers import free_port


def find_memcached() -> str | None:
    return shutil.which("memcached") or shutil.which("memcached", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")


class MemcachedServer:
    """A server on 127.0.0.1 that can be stopped, frozen and started again, always without its data."""

    def __init__(self, *options: str, program: str | None = None) -> None:
        self.program = program or find_memcached()
        assert self.program, "no memcached"
        self.options = options
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and return when it answers."""
        assert self._process is None and self.program
        user = ("-u", "nobody") if os.getuid() == 0 else ()
        self._process = subprocess.Popen(
            [self.program, "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "2", *user, *self.options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends = clock() + 20
        while not self.ask("version").startswith("VERSION"):
            if self._process.poll() is not None or clock() > ends:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self.program} does not start on port {self.port}")
            time.sleep(0.01)

    def ask(self, line: str) -> str:
        """Return the first line that the server says to a command; '' if it says nothing."""
        return ask(self.address, line)

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait for that. Does nothing if it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(by)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def restart(self) -> None:
        self.stop()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it live without doing anything: connections are made, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


class GivenMemcached:
    """A server that was given in the environment, and is left running."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.port = int(address.rpartition(":")[2])

    def ask(self, line: str) -> str:
        return ask(self.address, line)


def ask(address: str, line: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 2) as link:
            link.sendall(line.encode() + b"\r\n")
            return link.makefile("rb").readline().decode(errors="replace").strip()
    except OSError:
        return ""
