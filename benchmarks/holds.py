"""What 1, 100 and 10,000 renewing holds cost a process: threads, memory, and processor time per beat."""

from __future__ import annotations

import logging
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from benchmarks._contestants import client_of, mithril, python_redis_lock
from benchmarks._measure import Table, number, rss
from benchmarks._site import Site

TTL = 6
THREADS = 1000  # the locks of one process, of peers that start a thread for each
OURS = "**django-claims**"
PIPELINED = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"


def take_all(site: Site, who: str, count: int) -> Callable[[], Any]:
    """Take the holds; return what lets go of them."""
    if who == OURS:
        from django_claims import claim, release_all

        kept = [claim(f"tenant:{at:05d}:{'x' * 27}", label="y" * 60).acquire() for at in range(count)]
        return lambda: (release_all("benchmark"), kept)
    if who == "mithril-locks":
        take = mithril(site, ttl=float(TTL), auto_renewal=True)
    else:
        take = python_redis_lock(expire=TTL, auto_renewal=True)(site)
    pairs = [take(f"tenant:{at:05d}:{'x' * 27}") for at in range(count)]
    for acquire, _ in pairs:
        acquire()
    return lambda: [release() for _, release in pairs]


def keep(site: Site, who: str, count: int, beat: float, pipe: Connection) -> None:
    """Be a process with so many holds, and say what they cost it."""
    site.configure(TTL=TTL)
    logging.disable(logging.CRITICAL)
    # Peers' threads die by the thousand where they fail. Counted, and said in the table; not each on the screen.
    died: list[str] = []
    threading.excepthook = lambda args: died.append(f"{args.exc_type.__name__}: {args.exc_value}")
    client = client_of(site)
    take_all(site, who, 1)()  # whatever is made once
    before = rss()
    began = time.perf_counter()
    try:
        let_go = take_all(site, who, count)
        taken = time.perf_counter() - began
        there, threads = rss() - before, threading.active_count() - 1
        server = client.info("cpu")
        cpu, began = time.process_time(), time.perf_counter()
        time.sleep(2 * beat)
        beats = (time.perf_counter() - began) / beat
        cpu = (time.process_time() - cpu) / beats
        after = client.info("cpu")
        server_cpu = sum(after[key] - server[key] for key in ("used_cpu_user", "used_cpu_sys")) / beats
        began = time.perf_counter()
        let_go()
        gone = time.perf_counter() - began
        pipe.send((threads, there / count, taken / count, cpu, server_cpu, gone, said_of(died)))
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}"[:150] + said_of(died))


def said_of(died: list[str]) -> str:
    """Return what became of a peer's threads, if any died."""
    return f" ({len(died)} of its threads died, the first by {died[0][:150]})" if died else ""


def run(site: Site, quick: bool) -> Iterator[Table]:
    context = multiprocessing.get_context("spawn")
    columns = [
        "",
        "threads",
        "KiB each",
        "µs to acquire each",
        "CPU ms a beat of all",
        "server CPU ms",
        "release all, s",
    ]
    for count in (1, 100, 1000) if quick else (1, 100, 1000, 10_000):
        table = Table(f"{count:,} renewing hold{'s' * (count > 1)} in one process", columns)
        for who, beat in ((OURS, TTL / 3), ("python-redis-lock, renewing", TTL * 2 / 3), ("mithril-locks", TTL / 3)):
            if who != OURS and count > THREADS:
                table.notes.append(f"Not run: {who}: a thread for each lock, which no machine should be put to.")
                continue
            client_of(site).flushdb()
            mine, theirs = context.Pipe()
            process = context.Process(target=keep, args=(site, who, count, beat, theirs), daemon=True)
            process.start()
            theirs.close()
            try:
                said = mine.recv() if mine.poll(150) else "not done in 150 s"
            except EOFError:
                said = "the process died"
            if isinstance(said, str):
                table.notes.append(f"Could not run: {who}: {said}")
            else:
                threads, memory, taken, cpu, server_cpu, gone, problem = said
                if problem:
                    table.notes.append(f"In trouble: {who}{problem}")
                table.rows.append(
                    [
                        who, str(threads), number(memory / 1024) if count > 1 else "", number(taken * 1e6),
                        number(cpu * 1e3), number(server_cpu * 1e3), f"{gone:.2f}",
                    ]
                )  # fmt: skip
            process.kill()
            process.join(10)
        table.notes.append(
            f"Leases of {TTL} s: ours are renewed each {TTL / 3:.0f} s, as mithril's, python-redis-lock's each "
            f"{TTL * 2 / 3:.0f} s. KiB each: growth of the process."
        )
        yield table
    yield against_the_floor(site, 1000 if quick else 10_000)


def against_the_floor(site: Site, count: int) -> Table:
    """One beat of all, against as many compare-and-expire scripts in one pipeline."""
    import tracemalloc

    from django_claims import claim, release_all
    from django_claims.handler import claim_backends

    client = client_of(site)
    client.flushdb()
    claim("warm").acquire().release()
    used = client.info("memory")["used_memory"]
    some = count // 10
    tracemalloc.start()
    holds: list[Any] = [claim(f"tenant:{at:05d}:{'x' * 27}", label="y" * 60).acquire() for at in range(some)]
    memory = tracemalloc.get_traced_memory()[0] / some
    tracemalloc.stop()
    times = []
    for at in range(some, count):
        began = time.process_time()
        holds.append(claim(f"tenant:{at:05d}:{'x' * 27}", label="y" * 60).acquire())
        times.append((time.process_time() - began) * 1e6)
    server = (client.info("memory")["used_memory"] - used) / count
    requests = [request for hold in holds for request in hold.renew_requests()]
    sha = client.script_load(PIPELINED)
    pipeline = client.pipeline(transaction=False)
    for hold in holds:
        pipeline.set(f"floor:{hold.name}", hold.token, px=180_000)
    pipeline.execute()
    walls, cpus = [], []
    for _ in range(5):
        wall, cpu = time.perf_counter(), time.process_time()
        pipeline = client.pipeline(transaction=False)
        for hold in holds:
            pipeline.evalsha(sha, 1, f"floor:{hold.name}", hold.token, 180_000)
        assert all(pipeline.execute())
        floor, floor_cpu = time.perf_counter() - wall, time.process_time() - cpu
        wall, cpu = time.perf_counter(), time.process_time()
        claim_backends["default"].renew(requests)
        walls.append((time.perf_counter() - wall, floor))
        cpus.append((time.process_time() - cpu, floor_cpu))
    began = time.perf_counter()
    released = release_all("benchmark")
    gone = time.perf_counter() - began
    tenth = len(times) // 9
    table = Table(f"One beat of {count:,} holds against the pipelined floor", ["", ""])
    table.rows += [
        ["one beat, ms", number(statistics.median(one for one, _ in walls) * 1e3)],
        ["x the floor, by the clock", number(statistics.median(one / floor for one, floor in walls))],
        ["x the floor, processor time of the process", number(statistics.median(one / floor for one, floor in cpus))],
        [f"acquire, the first {tenth:,}, CPU µs each", number(statistics.mean(times[:tenth]))],
        [f"acquire, the last {tenth:,}, CPU µs each", number(statistics.mean(times[-tenth:]))],
        ["memory of Python, bytes each", number(memory)],
        ["memory of the server, bytes each (40-byte name, 60-byte label)", number(server)],
        [f"`release_all()` of {released:,}, s", f"{gone:.2f}"],
    ]
    table.notes.append("The floor: one compare-and-expire script a lease, all in one pipeline of redis-py.")
    return table
