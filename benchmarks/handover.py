"""
How fast, how fairly and at what cost a claim goes from hand to hand among waiting processes.

So many processes want one name, again and again, and note on the machine's one clock when they
got it and when they let go. Contestants take turns in the same processes.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from benchmarks._contestants import (
    OTHER_PEERS,
    REDIS_PEERS,
    Make,
    client_of,
    ours,
    redis_py,
)
from benchmarks._measure import Table, number
from benchmarks._site import Site

PEER = "python-redis-lock"
OURS = "**django-claims**, Redis"
BODY = 0.0005
SLOW = 10.0
"""Seconds. Who takes longer for a round of two has no second one."""
UNSUITED = ("python-redis-lock, renewing", "django-db-mutex", "a file made and removed")
"""The first waits as the other of its name does, and the others not at all."""


def contestants(site: Site, *, all_stores: bool = True) -> dict[str, Make]:
    found = {OURS: ours("default"), **REDIS_PEERS, "redis-py Lock, sleep=0.01": redis_py(0.01)}
    found = {title: make for title, make in found.items() if title not in UNSUITED}
    if not all_stores:
        return found
    for alias, title in site.aliases().items():
        if alias not in ("default", "django", "memory"):
            found[f"**django-claims**, {title}"] = ours(alias)
    for peers in OTHER_PEERS.values():
        found |= peers
    return {title: make for title, make in found.items() if title not in UNSUITED}


def work(site: Site, pipe: Connection) -> None:
    """Take part in rounds until told to end."""
    site.configure()
    made: dict[str, Any] = {}
    while (told := pipe.recv()) is not None:
        who, name, turns, seconds = told
        try:
            made[who] = made.get(who) or contestants(site)[who](site)
            acquire, release = made[who](name)
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}"[:200].replace("\n", " "))
            continue
        pipe.send("")
        if not pipe.recv():
            continue
        spans, ends = [], time.monotonic() + seconds
        try:
            while len(spans) < turns and time.monotonic() < ends:
                asked = time.monotonic()
                if acquire() is False:
                    raise TimeoutError("it was not granted in a minute")
                got = time.monotonic()
                while time.monotonic() < got + BODY:
                    pass
                let_go = time.monotonic()
                release()
                spans.append((got, let_go, asked))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}"[:200].replace("\n", " "))
        else:
            pipe.send(spans)


def work_done(client: Any) -> tuple[int, int]:
    """Return what the server read from its clients, and the commands that it ran, those of scripts included."""
    commands = sum(each["calls"] for each in client.info("commandstats").values())
    return client.info("stats")["total_reads_processed"], commands


def one_round(
    who: str, name: str, turns: int, seconds: float, pipes: list[Connection], client: Any
) -> dict[str, float] | str:
    for pipe in pipes:
        pipe.send((who, name, turns, seconds))
    problem = max([pipe.recv() for pipe in pipes])
    before = work_done(client)
    for pipe in pipes:
        if not problem:
            pipe.send(True)
    if problem:
        for pipe in pipes:
            pipe.send(False)
        return str(problem)
    answers = [pipe.recv() if pipe.poll(seconds + 90) else "it did not end" for pipe in pipes]
    reads, commands = (after - first for after, first in zip(work_done(client), before, strict=True))
    problems = [answer for answer in answers if isinstance(answer, str)]
    if problems:
        return problems[0]
    spans = sorted((*span, at) for at, answer in enumerate(answers) for span in answer)
    # While all of them take part: in the end the slow ones are among themselves.
    lasts = {span[3]: at for at, span in enumerate(spans)}
    part = spans[: max(min(lasts.values()) + 1, 3)] if len(lasts) == len(pipes) else spans
    pairs = list(itertools.pairwise(part))
    changed = [(new[0] - old[1]) * 1e3 for old, new in pairs if old[3] != new[3]] or [math.nan]
    cuts = statistics.quantiles(changed, n=100) if len(changed) > 1 else changed * 99
    return {
        "p50": cuts[49],
        "p99": cuts[98],
        "worst": max(span[0] - span[2] for span in spans) * 1e3,
        "changes": sum(old[3] != new[3] for old, new in pairs) / max(len(pairs), 1),
        "overlaps": sum(new[0] < old[1] for old, new in itertools.pairwise(spans)),
        "reads": max(reads - 2, 0) / len(spans),
        "commands": max(commands - 2, 0) / len(spans),
        "turns": len(spans),
    }


def among(site: Site, processes: int, rounds: int, seconds: float, *, all_stores: bool = True) -> Table:
    client = client_of(site)
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for _ in range(processes):
        mine, theirs = context.Pipe()
        pipes.append(mine)
        workers.append(context.Process(target=work, args=(site, theirs), daemon=True))
        workers[-1].start()
    names = list(contestants(site, all_stores=all_stores))
    redis_names = contestants(site, all_stores=False)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    slowest = dict.fromkeys(names, 0.0)
    try:
        for count in range(rounds + 1):
            at = count % len(names)
            for name in names[at:] + names[:at]:
                if name in failed or slowest[name] > SLOW:
                    continue
                turns = max(400 // processes, 10) if count else 2
                word = "".join(letter for letter in name if letter.isalnum())
                began = time.monotonic()
                said = one_round(name, f"{word}-{count}", turns, seconds if count else 0.1, pipes, client)
                slowest[name] = time.monotonic() - began if count else 0.0
                if isinstance(said, str):
                    failed[name] = said
                elif count:  # the first one warms up
                    found[name].append(said)
    finally:
        for pipe in pipes:
            pipe.send(None)
        for worker in workers:
            worker.join(10)
            if worker.is_alive():
                worker.kill()
    if slow := [name for name, each in found.items() if 0 < len(each) < rounds and name not in failed]:
        said_of_slow = f" One round alone of what took over {SLOW:.0f} s for it: {', '.join(slow)}."
    else:
        said_of_slow = ""
    words = ["", "p50 ms", "p99 ms", "x p50", "x p99", "worst wait ms", "changed hands", "overlaps"]
    table = Table(f"Hand-over among {processes} waiting processes", [*words, "requests a turn", "commands a turn"])
    table.unit = "ms"
    for name, each in found.items():
        if not each or name in failed:
            table.notes.append(f"Could not run: {name}: {failed.get(name, 'no round')}")
            continue
        middle: dict[str, float] = {key: statistics.median(one[key] for one in each) for key in each[0]}
        ratios = ["", ""]
        if found[PEER] and PEER not in failed:
            ratios = [
                number(statistics.median(a[key] / (b[key] or 1) for a, b in zip(each, found[PEER], strict=False)))
                for key in ("p50", "p99")
            ]
        on_redis = name in redis_names
        table.rows.append(
            [
                name, number(middle["p50"]), number(middle["p99"]), *ratios, number(middle["worst"]),
                f"{middle['changes']:.0%}", f"{sum(one['overlaps'] for one in each):.0f}",
                *([number(middle["reads"]), number(middle["commands"])] if on_redis else ["", ""]),
            ]
        )  # fmt: skip
        if middle["p50"] > 0:
            table.bars[name.replace("*", "")] = middle["p50"]
    table.notes.append(
        f"p50 and p99: from before one process lets go until another has it; the ratios are to {PEER}. "
        f"Medians of {rounds} rounds. Changed hands: of the turns after which it could.{said_of_slow}"
    )
    return table


def stand_waiting(site: Site, who: str, pipe: Connection) -> None:
    site.configure()
    acquire, _ = contestants(site)[who](site)("idle")
    pipe.send("ready")
    try:
        acquire()
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}"[:200].replace("\n", " "))


def idle(site: Site, seconds: float) -> Table:
    """What one waiter costs the server while nothing happens: with it, less without it."""
    client = client_of(site)
    context = multiprocessing.get_context("spawn")
    table = Table("One waiter while nothing happens, Redis", ["", "requests a second", "commands a second"])
    for who, make in contestants(site, all_stores=False).items():
        client.flushdb()
        try:
            acquire, release = make(site)("idle")
            acquire()
        except Exception as error:
            table.notes.append(f"Could not run: {who}: {type(error).__name__}: {error}"[:200])
            continue
        rates = []
        mine, theirs = context.Pipe()
        waiter = context.Process(target=stand_waiting, args=(site, who, theirs), daemon=True)
        for waiting in (False, True):
            if waiting:
                waiter.start()
                if mine.poll(30):
                    mine.recv()
            time.sleep(1.5)
            before = work_done(client)
            time.sleep(seconds)
            rates.append([(b - a) / seconds for a, b in zip(before, work_done(client), strict=True)])
        if mine.poll(0):
            table.notes.append(f"Waited no more before the end: {who}: {mine.recv()}")
        reads, commands = (max(there - alone, 0.0) for alone, there in zip(*rates, strict=True))
        table.rows.append([who, number(reads), number(commands)])
        waiter.kill()
        waiter.join(10)
        release()
    return table


def run(site: Site, quick: bool) -> Iterator[Table]:
    if quick:
        yield among(site, 4, 1, 0.8, all_stores=False)
    else:
        for processes in (2, 8, 32):
            yield among(site, processes, 3, 1.7, all_stores=processes == 8)
    yield idle(site, 1.5 if quick else 6.0)
