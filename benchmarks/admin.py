"""
What the admin's list costs: a page of 100 among ten thousand claims, in a Redis full of other keys.

usage: python benchmarks/admin.py [claims] [foreign keys]     (10000 and 1000000 if left out)

Starts a private redis-server (from PATH, or from a wheel of the `test` extra). For each page it
prints the commands that the client sent, whether the server walked its keys, the time that the
server spent on them (by INFO commandstats, and its processor time), and the time of the whole
request in Django's test client, middleware and templates included: its processor time, and the
median and the worst of 15 by the clock. On a machine that does other things too, look at the
processor times.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.conf import settings

from tests.servers import RedisServer, find_redis

TIMES = 15
SENT = ("cmdstat_evalsha", "cmdstat_zrange")  # what scripts call is within the first
WALKS = ("cmdstat_keys", "cmdstat_scan")


def set_up(url: str, folder: Path) -> None:
    import tests.settings as given

    settings.configure(
        **{name: getattr(given, name) for name in dir(given) if name.isupper() and name not in ("CLAIMS", "DATABASES")},
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "bench.sqlite3")}},
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        CLAIMS={"default": {"BACKEND": "django_claims.backends.redis.RedisBackend", "TTL": 3600}},
        ALLOWED_HOSTS=["testserver"],
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def fill(client: Any, claims: int, foreign: int) -> None:
    """Take the claims as ten thousand jobs of a hundred hosts would, and write other people's keys."""
    from django_claims.backends.base import AcquireRequest
    from django_claims.handler import claim_backends
    from django_claims.holders import Holder

    for start in range(0, foreign, 10_000):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, min(start + 10_000, foreign)):
            pipeline.set(f":1:session:{number:08d}", "x" * 20)
        pipeline.execute()
    backend = claim_backends["default"]
    names = [f"{('import', 'report', 'sync')[number % 3]}:tenant-{number:05d}:{'x' * 18}" for number in range(claims)]
    for number, name in enumerate(names):
        holder = Holder(host=f"worker-{number % 100}", pid=number + 2, label=f"manage.py job_{number % 7}")
        backend.acquire([AcquireRequest(name, f"{number:032x}", 3_600_000, 1_200_000, holder)])


def server_seconds(client: Any) -> float:
    """Return the processor time that the server has used."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


def measure(client: Any, browser: Any, title: str, address: str) -> None:
    from django_claims.backends.wire import Connections

    sent = [0]
    real = Connections.talk

    def counted(self: Any, commands: Any, *how: Any) -> Any:
        sent[0] += len(commands)
        return real(self, commands, *how)

    assert browser.get(address).status_code == 200  # templates are compiled, scripts are loaded
    Connections.talk = counted  # type: ignore[method-assign]
    client.config_resetstat()
    server_before, page_before = server_seconds(client), time.process_time()
    times = []
    try:
        for _ in range(TIMES):
            started = time.perf_counter()
            response = browser.get(address)
            times.append((time.perf_counter() - started) * 1e3)
            assert response.status_code == 200
    finally:
        Connections.talk = real  # type: ignore[method-assign]
    page_cpu = (time.process_time() - page_before) / TIMES * 1e3
    server_cpu = (server_seconds(client) - server_before) / TIMES * 1e3
    stats = client.info("commandstats")
    spent = sum(stats.get(name, {}).get("usec", 0) for name in SENT) / TIMES / 1e3
    walked = sum(stats.get(name, {}).get("calls", 0) for name in WALKS)
    print(
        f"{title:32} {sent[0] / TIMES:8.1f} {walked:6d} {spent:9.2f} {server_cpu:8.2f} {page_cpu:9.1f} "
        f"{statistics.median(times):9.1f} {max(times):9.1f} {len(response.content) / 1024:6.0f}"
    )


def main(claims: int = 10_000, foreign: int = 1_000_000) -> None:
    program = find_redis()
    if program is None:
        sys.exit("No redis-server or valkey-server on PATH, and neither wheel of the 'test' extra that brings one.")
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", program=program)
        try:
            set_up(server.url, Path(folder))
            import redis
            from django.contrib.auth.models import User
            from django.test import Client

            client = redis.Redis.from_url(server.url)
            fill(client, claims, foreign)
            browser = Client()
            browser.force_login(User.objects.create_superuser("bench"))
            print(f"{client.dbsize()} keys, {claims} of them claims; Django {django.get_version()}")
            print(
                f"{'page':32} {'commands':>8} {'walks':>6} {'store ms':>9} {'its cpu':>8} {'page cpu':>9} "
                f"{'page ms':>9} {'worst':>9} {'KiB':>6}"
            )
            base = "/admin/django_claims/liveclaim/"
            measure(client, browser, "unfiltered", base)
            measure(client, browser, "page 50", f"{base}?p=50")
            measure(client, browser, "a group", f"{base}?group=report")
            measure(client, browser, "searched by name", f"{base}?q=tenant-012")
            measure(client, browser, "rows as JSON", f"{base}rows/")
            measure(client, browser, "searched by holder: reads all", f"{base}?q=worker-17")
            measure(client, browser, "sorted by age: reads all", f"{base}?o=-held")
            measure(client, browser, "a host: reads all", f"{base}?host=worker-17")
        finally:
            server.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
