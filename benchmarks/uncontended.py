"""What acquire and release cost when nobody else wants the name, on each store, as ratios to its floor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks._contestants import FLOOR_WORDS, FLOORS, OTHER_PEERS, REDIS_PEERS, Take, ours, ours_in_with, present
from benchmarks._measure import SENT, Table, count_round_trips, interleave, number, round_trips, spread
from benchmarks._site import Site

STORES = {
    "Redis": ["default", "django"],
    "memory": ["memory"],
    "files": ["file"],
    "memcached": ["memcached"],
    "SQLite": ["sqlite"],
    "PostgreSQL": ["postgresql"],
    "MariaDB": ["mariadb"],
}


def contestants(site: Site, store: str, failed: list[str]) -> dict[str, Take]:
    there, makers = site.aliases(), {}
    if store in FLOORS:
        makers[FLOOR_WORDS[store]] = FLOORS[store]
    for alias in STORES[store]:
        by = ", Django's RedisCache" if alias == "django" else ""
        if alias in there:
            makers[f"**django-claims**{by}"] = ours(alias)
    makers["**django-claims**, `with`"] = ours_in_with(STORES[store][0])
    makers |= REDIS_PEERS if store == "Redis" else OTHER_PEERS.get(store, {})
    return present(site, makers, failed)


def once_of(take: Take) -> Callable[[int], Any]:
    def once(count: int) -> None:
        acquire, release = take(f"bench-{count % 1000}")
        acquire()
        release()

    return once


def run(site: Site, quick: bool) -> Iterator[Table]:
    count_round_trips()
    for store, aliases in STORES.items():
        if aliases[0] not in site.aliases():
            continue
        failed: list[str] = []
        found = {title: once_of(take) for title, take in contestants(site, store, failed).items()}
        # Few rounds for what takes a quarter of a second each time.
        series = interleave(found, 3 if quick else 15, 0.05 if quick else 0.2)
        base = series[next(iter(found))]
        table = Table(
            f"Acquire and release, uncontended: {store}", ["", "µs (middle half)", "x floor", "CPU µs", "x its CPU"]
        )
        table.unit = "µs"
        if store == "Redis":
            table.columns = [*table.columns, "round trips"]
        for title, once in found.items():
            mine = series[title]
            ratio = number(mine.ratio(base)) if store in FLOORS else ""
            cpu_ratio = number(mine.cpu_ratio(base)) if store in FLOORS else ""
            row = [title, spread(mine.wall), ratio, number(sorted(mine.cpu)[len(mine.cpu) // 2]), cpu_ratio]
            if store == "Redis":
                row.append(number(round_trips(once)))
            table.rows.append(row)
            table.bars[title.replace("*", "").replace("`", "")] = sorted(mine.wall)[len(mine.wall) // 2]
        table.notes += [f"Could not run: {each}" for each in failed]
        yield table
    assert SENT[0]
    yield looks()


def looks() -> Table:
    """What the guarded code pays to look, without news."""
    from django_claims import claim

    table = Table("Looking, without news", ["", "µs", "round trips of it", "of the heartbeat meanwhile"])
    with claim("looks") as hold:
        hold.checkpoint()
        for title, look in {
            "`hold.held`": lambda: hold.held,
            "`hold.stop_requested`": lambda: hold.stop_requested,
            "`hold.checkpoint()`": hold.checkpoint,
        }.items():
            (all_before, before), rounds = SENT, []
            for _ in range(5):
                began = time.process_time()
                for _ in range(20_000):
                    look()
                rounds.append((time.process_time() - began) * 50)
            mine = SENT[1] - before
            table.rows.append([title, f"{sorted(rounds)[2]:.2f}", f"{mine}", f"{SENT[0] - all_before - mine}"])
    table.notes.append("Processor time of one; round trips of the 100,000 calls together.")
    return table
