"""
How long a stop takes, from the operator's call to the job's knowledge.

Another process holds a claim and notes, on the machine's one clock, when it learns; this one
asks it to stop, or ends its lease by force. Beside them a floor from the same run: one PUBLISH
to a process that sleeps on its subscription.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

from benchmarks._contestants import client_of
from benchmarks._measure import Table, number
from benchmarks._site import Site

FLOOR = "floor: PUBLISH"
FORCED = "forced end"


def hold(site: Site, others: int, pipe: Connection) -> None:
    """Take a claim again and again, and tell when it was asked to stop or was lost."""
    site.configure()
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


def hear(site: Site, pipe: Connection) -> None:
    """Tell when a message comes."""
    subscription = client_of(site).pubsub(ignore_subscribe_messages=True)
    subscription.subscribe("floor")
    subscription.get_message(timeout=1)
    while pipe.recv() != "end":
        pipe.send(0)
        while subscription.get_message(timeout=10) is None:
            pass
        pipe.send(time.monotonic())


def run(site: Site, quick: bool) -> Iterator[Table]:
    from django_claims import force_release, request_stop
    from django_claims.handler import claim_backends

    rounds = 40 if quick else 300
    context = multiprocessing.get_context("spawn")
    client = client_of(site)
    pipes, started = {}, []
    for name, target, args in (
        (FLOOR, hear, (site,)),
        ("stop", hold, (site, 0)),
        ("stop, among 1,000 holds of the process", hold, (site, 1000)),
    ):
        pipes[name], theirs = context.Pipe()
        started.append(context.Process(target=target, args=(*args, theirs), daemon=True))
        started[-1].start()
    pipes[FORCED] = pipes["stop"]
    times: dict[str, list[float]] = {name: [] for name in pipes}
    try:
        for count in range(rounds):
            for name, pipe in pipes.items():
                pipe.send("lost" if name == FORCED else "stop")
                fence = pipe.recv()
                time.sleep(random.uniform(0.0, 0.03))
                asked_at = time.monotonic()
                if name == FLOOR:
                    client.publish("floor", "x")
                elif name == FORCED:
                    assert force_release("job", fence=fence)
                else:
                    assert request_stop("job", fence=fence) is not None
                took = (pipe.recv() - asked_at) * 1e3
                if count > 2:
                    times[name].append(took)
                ends = time.monotonic() + 10
                while claim_backends["default"].lease("job") is not None and time.monotonic() < ends:
                    time.sleep(0.001)
        for name in pipes:
            if name != FORCED:
                pipes[name].send("end")
    finally:
        for process in started:
            process.join(10)
            if process.is_alive():
                process.kill()
    table = Table("From a stop to the job's knowledge, Redis", ["", "p50 ms", "p99 ms", "worst ms"])
    for name, each in times.items():
        cuts = statistics.quantiles(each, n=100)
        table.rows.append([name, number(cuts[49]), number(min(cuts[98], max(each))), number(max(each))])
    table.notes.append(f"{rounds} rounds, another process.")
    yield table
