"""A private memcached, or the one that CLAIMS_TEST_MEMCACHED names."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from django_claims.clock import clock
from tests.servers import free_port, freeze


def find_memcached() -> str | None:
    return shutil.which("memcached") or shutil.which("memcached", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")


class MemcachedServer:
    """A server on 127.0.0.1 that can be stopped, frozen and started again, always without its data."""

    def __init__(self, *options: str, program: str | None = None, ready: Path | None = None) -> None:
        self.program = program or find_memcached()
        assert self.program, "no memcached"
        self.options = options
        self.ready = ready  # the socket's path, where it is not to listen on a port
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
        while not (self.ready.exists() if self.ready else self.ask("version").startswith("VERSION")):
            if self._process.poll() is not None or clock() > ends:
                self.stop()
                raise RuntimeError(f"{self.program} does not start on port {self.port}")
            time.sleep(0.01)

    def ask(self, line: str, seconds: float = 2.0) -> str:
        """Return the first line that the server says to a command; '' if it says nothing."""
        return ask(self.address, line, seconds)

    def stat(self, name: str) -> int:
        """Return one of the numbers that the server keeps."""
        with socket.create_connection(("127.0.0.1", self.port), 2) as link:
            link.sendall(b"stats\r\n")
            for line in link.makefile("r"):
                if line.startswith(f"STAT {name} "):
                    return int(line.split()[2])
        raise LookupError(name)

    def stop(self, by: signal.Signals = signal.SIGKILL) -> None:
        """End it and wait for that: at once, since it has nothing to keep. Does nothing if it has ended."""
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
        freeze(self.pid)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


class GivenMemcached:
    """A server that was given in the environment, and is left running."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.port = int(address.rpartition(":")[2])

    def ask(self, line: str, seconds: float = 2.0) -> str:
        return ask(self.address, line, seconds)


def ask(address: str, line: str, seconds: float) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), seconds) as link:
            link.sendall(line.encode() + b"\r\n")
            return link.makefile("rb").readline().decode(errors="replace").strip()
    except OSError:
        return ""


class LosesReplies:
    """What stands before a server and, once told a word, ends the connection on which it was said, unanswered."""

    def __init__(self, port: int) -> None:
        self.word: bytes | None = None
        self.lost = 0
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target), 5) as server, contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
                answer = server.recv(65536)  # of a request that fits into one packet, as ours do
                if self.word and self.word in data:
                    self.lost += 1
                    return
                client.sendall(answer)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
