"""Servers of our own: started in a directory of their own, and ended by their own process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django_claims.clock import clock
from django_claims.test.redis_server import REDIS_PROGRAMS, find_redis
from django_claims.test.redis_server import free_port as free_port

if TYPE_CHECKING:
    import redis


def freeze(pid: int) -> None:
    """Stop a process, and return when all of its threads have stopped: the signal alone is only on its way."""
    os.kill(pid, signal.SIGSTOP)
    ends = clock() + 5
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError):
            while stat.read_bytes().rpartition(b")")[2].split()[0] not in (b"T", b"t", b"Z"):
                assert clock() < ends, f"process {pid} does not stop"
                time.sleep(0.001)


class RedisServer:
    """A private server that can be stopped, frozen and started again, with its data or without."""

    def __init__(self, directory: Path, *options: str, program: str | None = None, persistent: bool = False) -> None:
        self.program = program or find_redis()
        assert self.program, f"no server program: {', '.join(REDIS_PROGRAMS)}"
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.persistent = persistent
        self.env: dict[str, str] = {}  # more of it, from its next start on
        self.port = free_port()
        self.socket_path = str(directory / "redis.sock")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, and return when it answers."""
        assert self._process is None
        self._process = subprocess.Popen(
            [
                self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.socket_path,
                "--dir", str(self.directory), "--logfile", str(self.directory / "redis.log"),
                "--save", "", "--appendonly", "yes" if self.persistent else "no", "--appendfsync", "always",
                *self.options,
            ],
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        ends = clock() + 20
        while not self.answers():
            if self._process.poll() is not None or clock() > ends:
                log = self.directory / "redis.log"
                said = log.read_text()[-2000:] if log.exists() else ""
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self.program} does not start on port {self.port}: {said}")
            time.sleep(0.01)

    def answers(self) -> bool:
        import redis

        with contextlib.closing(self.client(socket_timeout=2, socket_connect_timeout=2)) as client:
            try:
                return bool(client.ping())
            except redis.exceptions.AuthenticationError:
                return True
            except redis.exceptions.RedisError:
                return False

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

    def restart(self, by: signal.Signals = signal.SIGTERM) -> None:
        """Stop and start it: with its data if it is `persistent`, else without."""
        self.stop(by)
        self.start()

    def freeze(self) -> None:
        """Let it live without doing anything: connections are made, and nobody answers."""
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def client(self, **options: Any) -> redis.Redis:
        """Return a client for the test itself, that never tries twice; close it."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis(host="127.0.0.1", port=self.port, retry=Retry(NoBackoff(), 0), **options)


class GivenServer:
    """A server that was given in the environment, and is left running."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self, **options: Any) -> redis.Redis:
        import redis

        return redis.Redis.from_url(self.url, **options)


class CommandLog:
    """What a server is asked, while it is: `asked` by clients, `done` by scripts too."""

    def __init__(self, server: RedisServer | GivenServer) -> None:
        self._server = server
        self.asked: list[str] = []
        self.done: list[str] = []
        self.lines: list[str] = []

    def __enter__(self) -> CommandLog:
        self._client = self._server.client(socket_timeout=10)
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        marker = f"end-{os.urandom(8).hex()}"
        try:
            with contextlib.closing(self._server.client()) as client:
                client.echo(marker)
            while True:
                line = self._monitor.next_command()
                if marker in line["command"]:
                    break
                verb = line["command"].split(" ")[0].upper()
                if verb in ("HELLO", "CLIENT", "SELECT", "AUTH", "ECHO"):
                    continue  # of the handshake
                self.done.append(verb)
                self.lines.append(line["command"])
                if line["client_type"] != "lua":
                    self.asked.append(verb)
        finally:
            self._monitor.__exit__(*error)
            self._client.close()


class Proxy:
    """What stands between a client and a server: it can cut, swallow, slow down, redirect, and lose a reply."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port  # for connections that are made from now on
        self.drip: tuple[int, float] | None = None  # what the server says comes so many bytes at a time, so slowly
        self.delay = 0.0  # what the server says comes so many seconds late
        self.swallows: str | None = None  # "requests" or "replies": they go nowhere, and no connection ends
        self.loses: bytes | None = None  # who says that word is served, and then cut off without an answer
        self.loses_once = False  # only the first who says it
        self.refused = 0
        self.lost = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.address}/0"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), 5)
            except OSError:
                self.refused += 1
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((client, server))
            doomed = threading.Event()  # the next reply on this connection is lost
            threading.Thread(target=self._requests, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._replies, args=(server, client, doomed), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.swallows == "requests":
                    continue
                if self.loses and self.loses in data:
                    doomed.set()
                    self.loses = None if self.loses_once else self.loses
                server.sendall(data)
        self._end(client, server)

    def _replies(self, server: socket.socket, client: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if doomed.is_set():
                    self.lost += 1
                    break
                if self.swallows == "replies":
                    continue
                if self.delay:
                    time.sleep(self.delay)
                size, seconds = self.drip or (len(data), 0.0)
                for at in range(0, len(data), size):
                    if seconds:
                        time.sleep(seconds)
                    client.sendall(data[at : at + size])
        self._end(client, server)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Be a plain wire again, for connections that are made from now on: what was swallowed is not made up for."""
        self.drip, self.delay, self.swallows, self.loses = None, 0.0, None, None
        self.loses_once = False

    def cut(self) -> None:
        """End all connections."""
        pairs, self._pairs = self._pairs, []
        for end in [end for pair in pairs for end in pair]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
