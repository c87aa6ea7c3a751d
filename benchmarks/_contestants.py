"""
Everybody who takes part: the floors, ours on each store, and the peers that are installed.

A contestant is `make(site)`, which returns `take(name)`, which returns a pair: acquire() as it
waits, and release(). Made anew in each process; what cannot be made raises.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._site import Site

Pair = tuple[Callable[[], Any], Callable[[], Any]]
Take = Callable[..., Pair]
Make = Callable[[Site], Take]

TTL = 180
WAIT = 60
RELEASE = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"


def client_of(site: Site, **options: Any) -> Any:
    """A client without the bound of connections that redis-py 8 has: a peer's thread for each lock wants one each."""
    import redis

    return redis.Redis.from_url(site.redis_url, **{"max_connections": 2**31, **options})


# Floors: what no lock on that store can beat. They do not wait.


def redis_floor(site: Site) -> Take:
    client = client_of(site)
    sha = client.script_load(RELEASE)

    def take(name: str) -> Pair:
        token = os.urandom(16)
        return lambda: client.set(name, token, nx=True, px=TTL * 1000), lambda: client.evalsha(sha, 1, name, token)

    return take


def memcached_floor(site: Site) -> Take:
    from pymemcache.client.base import Client

    host, _, port = site.memcached.partition(":")
    client = Client((host, int(port)), no_delay=True, default_noreply=False)
    return lambda name: (lambda: client.add(name, b"x" * 260, TTL), lambda: client.delete(name))


def file_floor(*, leave: bool) -> Make:
    """A file that is there, or one that is made and removed each time: who leaves nothing behind pays that."""

    def make(site: Site) -> Take:
        fds: list[int] = []
        path = Path(site.folder) / f"floor-{leave}"

        def acquire() -> None:
            fds.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(fds[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fds[-1], b"x" * 300)

        def release() -> None:
            os.close(fds.pop())
            if not leave:
                path.unlink()

        return lambda name: (acquire, release)

    return make


def sql_floor(alias: str) -> Make:
    """One INSERT and one DELETE, in autocommit, on a connection of Django's with our settings."""

    def make(site: Site) -> Take:
        from django.db import connections

        from django_claims.backends.sql_connections import database_of
        from django_claims.backends.sql_servers import DatabaseServer

        own: Any = database_of(alias)
        link = own._new()
        link.ensure_connection()
        if isinstance(own, DatabaseServer):
            own._session(link, 4.0)

        def run(statement: str, *params: object) -> None:
            with link.cursor() as cursor:
                cursor.execute(statement, params)

        if "floor" not in connections[alias].introspection.table_names():
            run("CREATE TABLE floor (digest varchar(64) PRIMARY KEY, token varchar(64), note varchar(300), at bigint)")
        note = "x" * 250
        return lambda name: (
            lambda: run("INSERT INTO floor VALUES (%s, %s, %s, %s)", name, "t1", note, 1),
            lambda: run("DELETE FROM floor WHERE digest = %s AND token = %s", name, "t1"),
        )

    return make


# Ours.


def ours(alias: str) -> Make:
    def make(site: Site) -> Take:
        from django_claims import claim

        def take(name: str, timeout: float = WAIT) -> Pair:
            held: list[Any] = []

            def acquire() -> bool:
                hold = claim(name, using=alias, timeout=timeout).acquire()
                assert hold, "not granted"
                held.append(hold)
                return True

            return acquire, lambda: held.pop().release()

        return take

    return make


def ours_in_with(alias: str) -> Make:
    def make(site: Site) -> Take:
        from django_claims import claim

        def take(name: str) -> Pair:
            block = claim(name, using=alias)
            return block.__enter__, lambda: block.__exit__(None, None, None)

        return take

    return make


# Peers.


def redis_py(sleep: float) -> Make:
    def make(site: Site) -> Take:
        client = client_of(site)

        def take(name: str) -> Pair:
            lock = client.lock(name, timeout=TTL, sleep=sleep, blocking_timeout=WAIT)
            return lock.acquire, lock.release

        return take

    return make


def django_redis(site: Site) -> Take:
    from django.core.cache import caches

    def take(name: str) -> Pair:
        lock = caches["default"].lock(name, timeout=TTL, blocking_timeout=WAIT)
        return lock.acquire, lock.release

    return take


def python_redis_lock(**options: Any) -> Make:
    def make(site: Site) -> Take:
        import redis_lock

        client = client_of(site, socket_timeout=None)  # it blocks in the server, for longer than redis-py 8 waits

        def take(name: str) -> Pair:
            lock = redis_lock.Lock(client, name, **{"expire": TTL, **options})
            return (lambda: lock.acquire(timeout=WAIT)), lock.release

        return take

    return make


def pottery(site: Site) -> Take:
    from pottery import Redlock

    client = client_of(site)

    def take(name: str) -> Pair:
        lock = Redlock(key=name, masters={client}, auto_release_time=TTL)
        return (lambda: lock.acquire(timeout=WAIT)), lock.release

    return take


def portalocker(site: Site) -> Take:
    from portalocker import RedisLock

    client = client_of(site)

    def take(name: str) -> Pair:
        lock = RedisLock(name, connection=client, timeout=WAIT)
        return lock.acquire, lock.release

    return take


def sherlock(site: Site) -> Take:
    import sherlock as package

    client = client_of(site)

    def take(name: str) -> Pair:
        lock = package.RedisLock(name, expire=TTL, timeout=WAIT, client=client)
        return lock.acquire, lock.release

    return take


def mithril(site: Site, **options: Any) -> Take:
    import structlog
    from mithril import Lock
    from mithril.backends import RedisBackend

    # It logs each step; a site of many locks would not.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    backend = RedisBackend(client_of(site, socket_timeout=5))

    def take(name: str) -> Pair:
        held: list[Any] = []

        def acquire() -> None:
            held.append(Lock(name, backend=backend, **{"ttl": float(TTL), **options}))  # each is good for once
            held[-1].acquire(timeout=WAIT)

        return acquire, lambda: held.pop().release()

    return take


def filelock(site: Site) -> Take:
    import filelock as package

    folder = Path(site.folder) / "filelock"
    folder.mkdir(exist_ok=True)

    def take(name: str) -> Pair:
        lock = package.FileLock(folder / name)
        return (lambda: lock.acquire(timeout=WAIT)), lock.release

    return take


def django_pglock(site: Site) -> Take:
    import pglock

    if not site.has_postgresql:
        raise LookupError("no PostgreSQL")

    def take(name: str) -> Pair:
        lock = pglock.advisory(name)
        return lock.acquire, lock.release

    return take


def django_db_mutex(site: Site) -> Take:
    """It does not wait."""
    from db_mutex.db_mutex import db_mutex

    def take(name: str) -> Pair:
        mutex = db_mutex(name)
        return mutex.start, mutex.stop

    return take


FLOORS: dict[str, Make] = {
    "Redis": redis_floor,
    "memcached": memcached_floor,
    "files": file_floor(leave=True),
    "SQLite": sql_floor("sqlite"),
    "PostgreSQL": sql_floor("default"),
    "MariaDB": sql_floor("mariadb"),
}
FLOOR_WORDS = {
    "Redis": "floor: SET NX PX, EVALSHA",
    "memcached": "floor: add, delete",
    "files": "floor: open, flock, write, close",
    "SQLite": "floor: INSERT, DELETE",
    "PostgreSQL": "floor: INSERT, DELETE",
    "MariaDB": "floor: INSERT, DELETE",
    "memory": "",
}

REDIS_PEERS: dict[str, Make] = {
    "redis-py Lock": redis_py(0.1),
    "django-redis cache.lock": django_redis,
    "python-redis-lock": python_redis_lock(),
    "python-redis-lock, renewing": python_redis_lock(auto_renewal=True),
    "pottery Redlock": pottery,
    "portalocker RedisLock": portalocker,
    "sherlock": sherlock,
    "mithril-locks": mithril,
}
OTHER_PEERS: dict[str, dict[str, Make]] = {
    "files": {"a file made and removed": file_floor(leave=False), "filelock": filelock},
    "PostgreSQL": {"django-pglock": django_pglock, "django-db-mutex": django_db_mutex},
}


def present(site: Site, makers: dict[str, Make], failed: list[str]) -> dict[str, Take]:
    """Make those that can be made and used once; tell of the others in `failed`."""
    found = {}
    for title, make in makers.items():
        try:
            take = make(site)
            acquire, release = take(f"try-{title.replace(' ', '-')}")
            acquire()
            release()
        except Exception as error:
            failed.append(f"{title}: {type(error).__name__}: {error}"[:200].replace("\n", " "))
        else:
            found[title] = take
    return found
