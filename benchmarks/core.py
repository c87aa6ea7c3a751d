"""
What a claim costs, as ratios to a floor measured in the same run.

usage: python benchmarks/core.py [redis | sqlite | memory | holds | all]

Starts a private redis-server (from PATH, or from a wheel of the `test` extra). The floor on
Redis is what no lock can beat: one SET NX PX and one EVALSHA compare-and-delete, on one warm
connection of redis-py. On SQLite: one INSERT and one DELETE, in autocommit, in WAL mode.
Rounds of floor and ours take turns, and the ratio is the median over the rounds.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.conf import settings

from tests.servers import RedisServer, find_redis

RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
SENT = [0]


def set_up(url: str, folder: Path) -> None:
    path = "django_claims.backends"
    settings.configure(
        INSTALLED_APPS=["django_claims", "django_claims.database"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "bench.sqlite3")}},
        CACHES={
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url},
            "django": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": url},
        },
        CLAIMS={
            "default": {"BACKEND": f"{path}.redis.RedisBackend"},
            "django": {"BACKEND": f"{path}.redis.RedisBackend", "OPTIONS": {"cache": "django"}},
            "sqlite": {"BACKEND": f"{path}.database.DatabaseBackend"},
            "memory": {"BACKEND": f"{path}.memory.MemoryBackend"},
        },
    )
    django.setup()


def count_round_trips() -> None:
    """Count what redis-py connections put on the wire: one send is one round trip."""
    from redis.connection import AbstractConnection

    real = AbstractConnection.send_packed_command

    def counted(self: object, *args: object, **kwargs: object) -> object:
        SENT[0] += 1
        return real(self, *args, **kwargs)

    AbstractConnection.send_packed_command = counted


def redis_floor(url: str) -> Callable[[str], None]:
    import redis

    client = redis.Redis.from_url(url)
    sha = client.script_load(RELEASE)

    def once(name: str) -> None:
        token = os.urandom(16)
        assert client.set(name, token, nx=True, px=180_000)
        assert client.evalsha(sha, 1, name, token) == 1

    return once


def sqlite_floor(folder: Path) -> Callable[[str], None]:
    database = sqlite3.connect(folder / "floor.sqlite3", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE lease (name TEXT PRIMARY KEY, token TEXT, expires INTEGER)")

    def once(name: str) -> None:
        token = os.urandom(16).hex()
        database.execute("INSERT INTO lease VALUES (?, ?, ?)", (name, token, 180))
        assert database.execute("DELETE FROM lease WHERE name = ? AND token = ?", (name, token)).rowcount == 1

    return once


def acquire_and_release(alias: str) -> Callable[[str], None]:
    from django_claims import claim

    def once(name: str) -> None:
        hold = claim(name, using=alias).acquire()
        assert hold.release()

    return once


def with_block(alias: str) -> Callable[[str], None]:
    from django_claims import claim

    def once(name: str) -> None:
        with claim(name, using=alias):
            pass

    return once


def compare(title: str, contestants: dict[str, Callable[[str], None]], rounds: int = 15, turns: int = 1000) -> None:
    """Print each contestant's time, and its ratio to the first one's."""
    for once in contestants.values():
        once("warm")
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, once in contestants.items():
            started = time.perf_counter()
            for number in range(turns):
                once(f"bench-{number}")
            times[name].append((time.perf_counter() - started) / turns * 1e6)
    floor = next(iter(times.values()))
    print(f"{title:52} {'us':>8} {'x floor':>8} {'trips':>6}")
    for name, once in contestants.items():
        before = SENT[0]
        for number in range(20):
            once(f"count-{number}")
        trips = (SENT[0] - before) / 20
        ratio = statistics.median(mine / base for mine, base in zip(times[name], floor, strict=True))
        print(f"{name:52} {statistics.median(times[name]):8.1f} {ratio:8.2f} {trips:6.2f}")
    print()


def many_holds(url: str, count: int = 10_000) -> None:
    """Ten thousand holds in one process: threads, memory, and one beat against the pipelined floor."""
    import tracemalloc

    import redis

    from django_claims import claim, release_all
    from django_claims.handler import claim_backends

    client = redis.Redis.from_url(url)
    memory_before = client.info("memory")["used_memory"]
    tracemalloc.start()
    holds = [claim(f"tenant:{number:05d}:{'x' * 27}", label="y" * 60).acquire() for number in range(count // 10)]
    python_bytes = tracemalloc.get_traced_memory()[0] / len(holds)
    tracemalloc.stop()
    times = []
    for number in range(len(holds), count):
        started = time.perf_counter()
        holds.append(claim(f"tenant:{number:05d}:{'x' * 27}", label="y" * 60).acquire())
        times.append((time.perf_counter() - started) * 1e6)
    server_bytes = (client.info("memory")["used_memory"] - memory_before) / count
    threads = sum(thread.name.startswith("django-claims") for thread in threading.enumerate())
    requests = [request for hold in holds for request in hold.renew_requests()]
    backend = claim_backends["default"]
    sha = client.script_load(
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
    )
    pipeline = client.pipeline(transaction=False)
    for hold in holds:
        pipeline.set(f"floor:{hold.name}", hold.token, px=180_000)
    pipeline.execute()
    ratios, beats = [], []
    for _ in range(5):
        started = time.perf_counter()
        pipeline = client.pipeline(transaction=False)
        for hold in holds:
            pipeline.evalsha(sha, 1, f"floor:{hold.name}", hold.token, 180_000)
        assert all(pipeline.execute())
        floor = time.perf_counter() - started
        started = time.perf_counter()
        backend.renew(requests)
        beats.append(time.perf_counter() - started)
        ratios.append(beats[-1] / floor)
    started = time.perf_counter()
    released = release_all("benchmark")
    released_in = time.perf_counter() - started
    print(f"{count} holds in one process")
    print(f"  threads of ours                  {threads:10d} (aliases used before included: two of one's own each)")
    print(f"  acquire, the first thousand      {statistics.median(times[:1000]):10.0f} us each")
    print(f"  acquire, the last thousand       {statistics.median(times[-1000:]):10.0f} us each")
    print(f"  python memory, each              {python_bytes:10.0f} bytes")
    print(
        f"  server memory, each              {server_bytes:10.0f} bytes (40-byte name, 60-byte label, index included)"
    )
    print(f"  one beat of all                  {statistics.median(beats) * 1e3:10.0f} ms")
    print(f"  one beat of all / pipelined floor{statistics.median(ratios):10.2f} x")
    print(f"  release_all                      {released_in:10.2f} s for {released}")
    print()


def looks() -> None:
    """What the guarded code pays to look."""
    from django_claims import claim

    with claim("looks", using="memory") as hold:
        print("looking, without news")
        for name, look in {
            "hold.held": lambda: hold.held,
            "hold.stop_requested": lambda: hold.stop_requested,
            "hold.checkpoint()": hold.checkpoint,
        }.items():
            started = time.perf_counter()
            for _ in range(100_000):
                look()
            print(f"  {name:24} {(time.perf_counter() - started) * 10:8.2f} us")
    print()


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "all"
    program = find_redis()
    if program is None:
        sys.exit("No redis-server or valkey-server on PATH, and neither wheel of the 'test' extra that brings one.")
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", program=program)
        try:
            set_up(server.url, Path(folder))
            count_round_trips()
            if what in ("all", "redis"):
                contestants = {"floor: SET NX PX + EVALSHA": redis_floor(server.url)}
                contestants["acquire + release, django-redis alias"] = acquire_and_release("default")
                contestants["acquire + release, Django's RedisCache alias"] = acquire_and_release("django")
                contestants["with claim(…), django-redis alias"] = with_block("default")
                compare("Redis, uncontended", contestants)
            if what in ("all", "sqlite"):
                contestants = {"floor: INSERT + DELETE": sqlite_floor(Path(folder))}
                contestants["acquire + release"] = acquire_and_release("sqlite")
                compare("SQLite, uncontended", contestants, rounds=7, turns=300)
            if what in ("all", "memory"):
                compare("memory, uncontended", {"with claim(…)": with_block("memory")}, rounds=7)
                looks()
            if what in ("all", "holds"):
                many_holds(server.url)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
