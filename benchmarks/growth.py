"""How cost grows from 10 to 100,000 leases: acquire, a renewal of all, a page of the list, and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks._contestants import REDIS_PEERS, client_of
from benchmarks._measure import Table, number
from benchmarks._site import Site


def used(client: Any) -> int:
    return int(client.info("memory")["used_memory"])


def server_ms(client: Any, times: int, work: Callable[[], Any]) -> tuple[float, float]:
    """Return the milliseconds by the clock and of the server's processor that one turn takes."""

    def cpu() -> float:
        said = client.info("cpu")
        return float(said["used_cpu_user"] + said["used_cpu_sys"])

    before, walls = cpu(), []
    for _ in range(times):
        began = time.perf_counter()
        work()
        walls.append((time.perf_counter() - began) * 1e3)
    return statistics.median(walls), (cpu() - before) / times * 1e3


def run(site: Site, quick: bool) -> Iterator[Table]:
    from django_claims import list_claims
    from django_claims.backends.base import AcquireRequest, ReleaseRequest, RenewRequest
    from django_claims.handler import claim_backends
    from django_claims.holders import Holder

    client = client_of(site)
    client.flushdb()
    backend = claim_backends["default"]
    columns = ["leases", "acquire + release, server CPU µs", "renew one, server CPU µs", "renew all, ms"]
    columns += ["renew all, server CPU µs each", "page of 100, ms", "page, server CPU ms", "poll, server CPU µs"]
    table = Table("How cost grows with the leases, Redis", [*columns, "server bytes each"])
    base = used(client)
    tokens: list[tuple[str, str, int]] = []
    for size in (10, 100, 1000, 10_000) if quick else (10, 100, 1000, 10_000, 100_000):
        while len(tokens) < size:
            at = len(tokens)
            name, token = f"tenant:{at:06d}:{'x' * 26}", f"{at:022d}"
            holder = Holder(host=f"web-{at % 50}", pid=at % 30_000 + 2, label="y" * 60)
            granted = backend.acquire([AcquireRequest(name, token, 3_600_000, 1_200_000, holder)])
            assert isinstance(granted, list)
            tokens.append((name, token, granted[0].fence))
        each = (used(client) - base) / size
        holder = Holder(host="web-1", pid=2, label="y" * 60)

        def pair(holder: Holder = holder) -> None:
            backend.acquire([AcquireRequest("another", "t" * 22, 180_000, 60_000, holder)])
            backend.release([ReleaseRequest("another", "t" * 22)])

        some = 300 if quick else 2000
        _, pair_cpu = server_ms(client, some, pair)
        requests = [RenewRequest(name, token, fence, 3_600_000) for name, token, fence in tokens]
        one = requests[:1]
        _, one_cpu = server_ms(client, some, lambda one=one: backend.renew(one))
        all_ms, all_cpu = server_ms(client, 3, lambda requests=requests: backend.renew(requests))
        page_ms, page_cpu = server_ms(client, 10, lambda: list_claims(page=1, per_page=100))
        _, poll_cpu = server_ms(client, some, backend.poll)
        table.rows.append(
            [
                f"{size:,}", number(pair_cpu * 1e3), number(one_cpu * 1e3), number(all_ms),
                number(all_cpu * 1e3 / size) if size >= 1000 else "", number(page_ms), number(page_cpu),
                number(poll_cpu * 1e3), number(each) if size >= 100 else "",
            ]
        )  # fmt: skip
        for title, cpu in {
            "acquire + release": pair_cpu,
            "renew one": one_cpu,
            "poll": poll_cpu,
            "page of 100": page_cpu,
        }.items():
            table.lines.setdefault(title, []).append((size, cpu * 1e3))
    table.unit = "µs of the server"
    client.flushdb()
    yield table
    yield memory(site, 200 if quick else 2000)


def memory(site: Site, count: int) -> Table:
    """What a lease takes on the server, of ours and of the peers; names of 40 bytes."""
    from benchmarks._contestants import ours

    client = client_of(site)
    table = Table("Server memory for each lease, Redis", ["", "bytes"])
    for title, make in {"**django-claims**": ours("default"), **REDIS_PEERS}.items():
        if title.endswith("renewing"):
            continue
        client.flushdb()
        few = 50 if "portalocker" in title else count
        releases = []
        try:
            take = make(site)
            for at in range(20):  # what is there once: scripts, connections, the index
                acquire, release = take(f"first-{at}")
                acquire()
                releases.append(release)
            before = used(client)
            for at in range(few):
                acquire, release = take(f"tenant:{at:06d}:{'x' * 26}")
                acquire()
                releases.append(release)
            table.rows.append([title, number((used(client) - before) / few)])
        except Exception as error:
            table.notes.append(f"Could not run: {title}: {type(error).__name__}: {error}"[:200])
        for each in releases:
            each()
    table.notes.append(
        "Ours holds the holder, times, fence, progress and an entry of the index; most peers' a token alone. "
        "portalocker keeps a connection to the server for each lock, which is in here."
    )
    return table
