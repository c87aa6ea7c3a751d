"""
How fast, how fairly and at what cost a claim goes from hand to hand among waiting processes.

usage: python benchmarks/handover.py [processes …] [--turns N] [--rounds N]

Starts a private redis-server. So many processes want one name, again and again, and note on the
machine's one clock when they got it and when they let go. Contestants take turns in the same
processes; a ratio is to python-redis-lock in the same round, the median over the rounds.

- p50, p99: from before one process lets go until another has it (milliseconds)
- changes: the times that the name changed hands, of those that it could
- overlaps: two had it at once
- worst wait: the longest that a process stood waiting
- sends: what the server read from its clients, for each turn

Then: what a waiter costs the server while nothing happens.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.core import set_up
from tests.servers import RedisServer, find_redis

PEER = "python-redis-lock"
OURS = "django-claims"
BODY = 0.0005


def contestants(url: str) -> dict[str, Callable[[str], tuple[Callable[[], Any], Callable[[], Any]]]]:
    """Return for each a function that makes acquire() and release() of a name."""
    import redis

    from django_claims import claim

    client = redis.Redis.from_url(url)

    def ours(name: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        recipe, held = claim(name, timeout=60), []

        def acquire() -> None:
            hold = recipe.acquire()
            assert hold
            held.append(hold)

        return acquire, lambda: held.pop().release()

    def peer(name: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        import redis_lock

        lock = redis_lock.Lock(client, name, expire=60)
        return lambda: lock.acquire(timeout=60), lock.release

    def redis_py(name: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
        lock = client.lock(name, timeout=60, sleep=0.01)
        return lambda: lock.acquire(blocking_timeout=60), lock.release

    return {OURS: ours, PEER: peer, "redis-py Lock, sleep=0.01": redis_py}


def work(url: str, folder: str, pipe: Connection) -> None:
    """Take part in rounds until told to end."""
    set_up(url, Path(folder))
    logging.disable(logging.CRITICAL)
    all_of = contestants(url)
    while (told := pipe.recv()) is not None:
        who, name, turns = told
        acquire, release = all_of[who](name)
        pipe.send("ready")
        pipe.recv()
        spans = []
        for _ in range(turns):
            asked = time.monotonic()
            acquire()
            got = time.monotonic()
            ends = got + BODY
            while time.monotonic() < ends:
                pass
            let_go = time.monotonic()
            release()
            spans.append((got, let_go, asked))
        pipe.send(spans)


def one_round(who: str, name: str, turns: int, pipes: list[Connection], client: Any) -> dict[str, float]:
    for pipe in pipes:
        pipe.send((who, name, turns))
    for pipe in pipes:
        pipe.recv()
    before = client.info("stats")["total_reads_processed"]
    for pipe in pipes:
        pipe.send("go")
    spans = sorted((*span, number) for number, pipe in enumerate(pipes) for span in pipe.recv())
    reads = client.info("stats")["total_reads_processed"] - before - 1
    # While all of them take part: in the end the slow ones are among themselves.
    some, last = set(), 0
    for at in range(len(spans) - 1, -1, -1):
        some.add(spans[at][3])
        if len(some) == len(pipes):
            last = at
            break
    part = spans[: max(last, 2)]
    pairs = list(itertools.pairwise(part))
    changed = [(new[0] - old[1]) * 1e3 for old, new in pairs if old[3] != new[3]]
    cuts = statistics.quantiles(changed, n=100) if len(changed) > 1 else [0.0] * 99
    return {
        "p50": cuts[49],
        "p99": cuts[98],
        "changes": len(changed) / len(pairs),
        "overlaps": sum(new[0] < old[1] for old, new in pairs),
        "worst": max(span[0] - span[2] for span in part) * 1e3,
        "sends": reads / len(spans),
    }


def compare(url: str, folder: str, processes: int, turns: int, rounds: int) -> None:
    import redis

    client = redis.Redis.from_url(url)
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for _ in range(processes):
        mine, theirs = context.Pipe()
        pipes.append(mine)
        workers.append(context.Process(target=work, args=(url, folder, theirs), daemon=True))
        workers[-1].start()
    try:
        names = list(contestants(url))
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for number in range(rounds + 1):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                said = one_round(name, f"{name}-{number}", turns, pipes, client)
                if number:  # the first one warms up
                    found[name].append(said)
        title = f"{processes} processes, {turns} turns each, {rounds} rounds"
        print(f"{title:42} {'p50':>7} {'p99':>7} {'x p50':>6} {'x p99':>6} {'changes':>8} {'overlaps':>8} ", end="")
        print(f"{'worst wait':>10} {'sends':>6}")
        for name, each in found.items():
            middle = {key: statistics.median(one[key] for one in each) for key in each[0]}
            ratio = {
                key: statistics.median(a[key] / b[key] for a, b in zip(each, found[PEER], strict=True))
                for key in ("p50", "p99")
            }
            print(
                f"{name:42} {middle['p50']:7.2f} {middle['p99']:7.2f} {ratio['p50']:6.2f} {ratio['p99']:6.2f} "
                f"{middle['changes']:8.0%} {sum(one['overlaps'] for one in each):8.0f} {middle['worst']:10.0f} "
                f"{middle['sends']:6.2f}"
            )
        print()
    finally:
        for pipe in pipes:
            pipe.send(None)
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()


def idle_waiters(url: str, count: int = 20, seconds: float = 10.0) -> None:
    """What waiters cost the server while nothing happens."""
    import redis

    from django_claims import claim

    client = redis.Redis.from_url(url)
    with claim("busy"):
        threads = [
            threading.Thread(target=lambda: claim("busy", timeout=seconds + 3).acquire(), daemon=True)
            for _ in range(count)
        ]
        before = len(client.client_list())
        for thread in threads:
            thread.start()
        time.sleep(2)
        reads = client.info("stats")["total_reads_processed"]
        connections = len(client.client_list()) - before
        time.sleep(seconds)
        reads = client.info("stats")["total_reads_processed"] - reads - 2
        # The holder's own look at stop flags, once a second, is not theirs.
        print(f"{count} waiters of one process, for {seconds:.0f} s while nothing happens")
        print(f"  sends to the server for each, in a second  {(reads - seconds) / seconds / count:8.2f}")
        print(f"  connections more                           {connections:8d}")
    for thread in threads:
        thread.join(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("processes", nargs="*", type=int, default=[2, 8, 32])
    parser.add_argument("--turns", type=int, default=0, help="of each process (default: 400 in all)")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    program = find_redis()
    if program is None:
        sys.exit("No redis-server or valkey-server on PATH, and neither wheel of the 'test' extra that brings one.")
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", program=program)
        try:
            set_up(server.url, Path(folder))
            logging.disable(logging.CRITICAL)
            for processes in given.processes:
                compare(server.url, folder, processes, given.turns or max(400 // processes, 10), given.rounds)
            idle_waiters(server.url)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
