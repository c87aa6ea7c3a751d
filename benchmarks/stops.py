"""
How long a stop takes, from the operator's call to the job's knowledge.

usage: python benchmarks/stops.py [rounds]

Starts a private redis-server. Another process holds a claim and notes, on the machine's one
clock, when it learns; this one asks it to stop, or ends its lease by force. Beside them a
floor from the same run: one PUBLISH to a process that sleeps on its subscription.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.core import set_up
from tests.servers import RedisServer, find_redis


def hold(url: str, folder: str, others: int, pipe: Connection) -> None:
    """Take a claim again and again, and tell when it was asked to stop or was lost."""
    set_up(url, Path(folder))
    logging.disable(logging.CRITICAL)
    from django_claims import claim

    holds = [claim(f"other-{number}").acquire() for number in range(others)]
    while (what := pipe.recv()) != "end":
        with claim("job") as mine:
            time.sleep(0.05)
            pipe.send(mine.fence)
            (mine.stop_event if what == "stop" else mine.lost_event).wait(10)
            pipe.send(time.monotonic())
    for each in holds:
        each.release()


def hear(url: str, pipe: Connection) -> None:
    """Tell when a message comes."""
    import redis

    subscription = redis.Redis.from_url(url).pubsub(ignore_subscribe_messages=True)
    subscription.subscribe("floor")
    subscription.get_message(timeout=1)
    while pipe.recv() != "end":
        pipe.send(0)
        while subscription.get_message(timeout=10) is None:
            pass
        pipe.send(time.monotonic())


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    program = find_redis()
    if program is None:
        sys.exit("No redis-server or valkey-server on PATH, and neither wheel of the 'test' extra that brings one.")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", program=program)
        started = []
        try:
            set_up(server.url, Path(folder))
            logging.disable(logging.CRITICAL)
            import redis

            from django_claims import force_release, request_stop

            client = redis.Redis.from_url(server.url)
            pipes = {}
            for name, target, args in (
                ("floor: PUBLISH", hear, (server.url,)),
                ("stop", hold, (server.url, folder, 0)),
                ("stop, among 1,000 holds", hold, (server.url, folder, 1000)),
            ):
                pipes[name], theirs = context.Pipe()
                started.append(context.Process(target=target, args=(*args, theirs), daemon=True))
                started[-1].start()
            pipes["forced end"] = pipes["stop"]
            times: dict[str, list[float]] = {name: [] for name in pipes}
            for number in range(rounds):
                for name, pipe in pipes.items():
                    pipe.send("stop" if name != "forced end" else "lost")
                    fence = pipe.recv()
                    time.sleep(random.uniform(0.0, 0.03))
                    asked_at = time.monotonic()
                    if name == "floor: PUBLISH":
                        client.publish("floor", "x")
                    elif name == "forced end":
                        assert force_release("job", fence=fence)
                    else:
                        assert request_stop("job", fence=fence) is not None
                    took = (pipe.recv() - asked_at) * 1e3
                    if number > 2:
                        times[name].append(took)
                    while client.exists(":1:{claims}:lease:job"):  # by django-redis's key rule
                        time.sleep(0.001)
            for name in ("floor: PUBLISH", "stop", "stop, among 1,000 holds"):
                pipes[name].send("end")
            print(
                f"{'Redis, another process, ' + str(rounds) + ' rounds':36} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"
            )
            for name, each in times.items():
                cuts = statistics.quantiles(each, n=100)
                print(f"{name:36} {cuts[49]:8.2f} {cuts[98]:8.2f} {max(each):8.2f}")
        finally:
            for process in started:
                process.join(10)
                if process.is_alive():
                    process.kill()
            server.stop()


if __name__ == "__main__":
    main()
