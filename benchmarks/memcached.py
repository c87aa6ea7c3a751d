"""
What a claim costs on memcached, as a ratio to a floor measured in the same run.

usage: python benchmarks/memcached.py [pymemcache | pylibmc | all]

Starts a private memcached (from PATH), or uses the one that CLAIMS_TEST_MEMCACHED names. The
floor is one add and one delete on a warm client of the same package, of a value as long as
ours. Rounds of floor and ours take turns, and the ratio is the median over the rounds.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.conf import settings

from tests.backends.memcached_server import GivenMemcached, MemcachedServer

CACHES = "django.core.cache.backends.memcached"
CLIENTS = {"pymemcache": "PyMemcacheCache", "pylibmc": "PyLibMCCache"}
ROUNDS, TIMES = 15, 400
VALUE = b"x" * 260


def set_up(address: str, clients: list[str]) -> None:
    settings.configure(
        CACHES={
            "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
            **{client: {"BACKEND": f"{CACHES}.{CLIENTS[client]}", "LOCATION": address} for client in clients},
        },
        CLAIMS={
            "default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"},
            **{
                client: {"BACKEND": "django_claims.backends.cache.CacheBackend", "OPTIONS": {"cache": client}}
                for client in clients
            },
        },
    )
    django.setup()


def floor_of(client: str, address: str) -> Callable[[], None]:
    raw: Any
    if client == "pymemcache":
        from pymemcache.client.base import Client

        raw = Client(address, no_delay=True, default_noreply=False)
    else:
        import pylibmc

        raw = pylibmc.Client([address], behaviors={"tcp_nodelay": True})

    def floor() -> None:
        assert raw.add("floor", VALUE, 180)
        assert raw.delete("floor")

    return floor


def microseconds(once: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(TIMES):
        once()
    return (time.perf_counter() - started) / TIMES * 1e6


def main(chosen: str) -> None:
    clients = [client for client in CLIENTS if chosen in (client, "all") and importlib.util.find_spec(client)]
    given = os.environ.get("CLAIMS_TEST_MEMCACHED")
    server = GivenMemcached(given) if given else MemcachedServer()
    try:
        set_up(server.address, clients)
        from django_claims import claim

        for client in clients:
            recipe = claim("benchmark", using=client)

            def ours(recipe: Any = recipe) -> None:
                hold = recipe.acquire()
                assert hold
                outcome = hold.release()
                assert outcome, outcome

            floor = floor_of(client, server.address)
            microseconds(floor), microseconds(ours)  # warm
            rounds = [(microseconds(floor), microseconds(ours)) for _ in range(ROUNDS)]
            low, high = statistics.median(f for f, _ in rounds), statistics.median(o for _, o in rounds)
            ratio = statistics.median(o / f for f, o in rounds)
            print(f"{client:<10} add+delete {low:4.0f} µs  acquire+release {high:4.0f} µs  ratio {ratio:.2f} (bar 4)")
    finally:
        if isinstance(server, MemcachedServer):
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "all")
