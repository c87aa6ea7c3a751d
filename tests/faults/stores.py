"""The stores that are put to the test: how to start one, how workers reach it, and how it can be hurt."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import time
from pathlib import Path
from random import Random
from typing import Any

from django_claims.clock import clock
from tests.backends.memcached_server import MemcachedServer, find_memcached
from tests.servers import Proxy, RedisServer, find_redis

SECRET = "for tests only"


class Store:
    """One store. Without a server of its own there is nothing to hurt but the processes."""

    name: str
    kind: str  # of recording.BACKENDS
    overrun = 0.1  # it may keep a lease so much longer than its TTL
    has_server = False
    keeps_data = True  # over a restart
    shares = True  # with other processes
    has_clock = True  # else clients say what time it is
    together = True  # else several names are taken one after the other
    expires_by_wall_clock = False  # of its clients, which are on one machine
    wipes_for = 0.0  # data may still vanish for so long after it was wiped

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.directory = directory
        self.seed = seed
        self.directory.mkdir(parents=True, exist_ok=True)
        self.proxy: Proxy | None = None
        self.server: Any = None
        self.start()
        if self.has_server:
            self.proxy = Proxy(self.server.port)

    @classmethod
    def missing(cls) -> str:
        """Return what is not installed here, or ''."""
        return ""

    def start(self) -> None:
        """Start what there is to start."""

    def settings(self, *, proxied: bool = False) -> dict[str, Any]:
        """Return the settings of a worker, which may reach the server by way of the proxy."""
        port = self.proxy.port if proxied and self.proxy else self.server.port if self.server else 0
        # The guarded table is in a file of its own, whatever the store is.
        guard = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(self.directory / "guard.sqlite3")}
        found: dict[str, Any] = {
            "SECRET_KEY": SECRET,
            "USE_TZ": True,
            "INSTALLED_APPS": ["django_claims", "django_claims.database"],
            "DATABASES": {"default": {**guard, "OPTIONS": {"timeout": 5}}},
            "CLAIMS": {"default": {"BACKEND": "tests.faults.recording.Backend", "OPTIONS": {}}},
        }
        self.fill(found, port)
        return found

    def fill(self, settings: dict[str, Any], port: int) -> None:
        """Write into a worker's settings what is this store's."""

    def wipe(self) -> None:
        """Lose all data, at once."""
        raise NotImplementedError

    def restart(self, *, keep: bool) -> None:
        raise NotImplementedError

    def be_short_of_memory(self) -> None:
        """Have little room from now on, and throw away what is old."""

    def fill_up(self, chance: Random) -> int:
        """Write until data is thrown away; return how many keys were."""
        raise NotImplementedError

    def have_enough_memory(self) -> None:
        """Take that back."""

    def close(self) -> None:
        if self.proxy:
            self.proxy.close()
        if self.server:
            self.server.stop()


class RedisStore(Store):
    name = kind = "redis"
    has_server = True

    @classmethod
    def missing(cls) -> str:
        return "" if find_redis() else "no redis-server or valkey-server"

    def start(self) -> None:
        self.server = RedisServer(self.directory / "redis", persistent=True)

    def fill(self, settings: dict[str, Any], port: int) -> None:
        # The two kinds of alias in turn.
        cache = "django_redis.cache.RedisCache" if self.seed % 2 else "django.core.cache.backends.redis.RedisCache"
        settings["CACHES"] = {"default": {"BACKEND": cache, "LOCATION": f"redis://127.0.0.1:{port}/0"}}

    def wipe(self) -> None:
        with contextlib.closing(self.server.client(socket_timeout=5)) as client:
            client.flushall()

    def restart(self, *, keep: bool) -> None:
        self.server.stop(9)
        if not keep:
            for path in (self.directory / "redis").glob("appendonlydir/*"):
                path.unlink()
        self.server.start()

    def fill_up(self, chance: Random) -> int:
        from redis.exceptions import OutOfMemoryError

        with contextlib.closing(self.server.client(socket_timeout=5)) as client:
            before = client.info()
            client.config_set("maxmemory-policy", chance.choice(("allkeys-lru", "allkeys-random")))
            client.config_set("maxmemory", before["used_memory"] + 2_000_000)
            names = [f"of others {number}" for number in range(400)]
            with contextlib.suppress(OutOfMemoryError):  # what it needs for itself has grown, and no key is left
                for name in names:
                    client.set(name, b"x" * 20_000)
            client.config_set("maxmemory", 0)
            client.config_set("maxmemory-policy", "noeviction")
            client.unlink(*names)
            return int(client.info()["evicted_keys"]) - int(before["evicted_keys"])


class MemcachedStore(Store):
    name = "memcached"
    kind = "cache"
    has_server = True
    keeps_data = False
    wipes_for = 1.1  # flush_all() is about whole seconds, and what others wrote lives for one
    overrun = 2.2
    has_clock = False
    together = False

    @classmethod
    def missing(cls) -> str:
        if not importlib.util.find_spec("pymemcache"):
            return "no pymemcache"
        return "" if find_memcached() else "no memcached"

    def start(self) -> None:
        self.server = MemcachedServer()

    def fill(self, settings: dict[str, Any], port: int) -> None:
        cache = "django.core.cache.backends.memcached.PyMemcacheCache"
        settings["CACHES"] = {"default": {"BACKEND": cache, "LOCATION": f"127.0.0.1:{port}"}}

    def wipe(self) -> None:
        assert self.server.ask("flush_all") == "OK"

    def restart(self, *, keep: bool) -> None:
        self.server.restart()

    def be_short_of_memory(self) -> None:
        self.server.options = ("-m", "2")
        self.server.restart()

    def fill_up(self, chance: Random) -> int:
        """Of each size that a lease may have, more than there is room for."""
        before = self.server.stat("evictions")
        with socket.create_connection(("127.0.0.1", self.server.port), 5) as link:
            for size in (60, 120, 200, 300, 400, 500, 700):
                value = b"x" * size
                link.sendall(
                    b"".join(
                        b"set others-%d-%d 0 1 %d noreply\r\n%s\r\n" % (size, number, size, value)
                        for number in range(1_500_000 // (size + 60))
                    )
                )
            link.sendall(b"version\r\n")
            assert link.recv(100).startswith(b"VERSION")
        return self.server.stat("evictions") - before

    def have_enough_memory(self) -> None:
        self.server.options = ()
        self.server.restart()


class SQLStore(Store):
    kind = "database"
    has_server = True
    server_class: str
    driver: str

    @classmethod
    def missing(cls) -> str:
        from tests.backends import sql_servers

        if not importlib.util.find_spec(cls.driver):
            return f"no {cls.driver}"
        return "" if getattr(sql_servers, cls.server_class).find() else f"no {cls.server_class.removesuffix('Server')}"

    def start(self) -> None:
        from tests.backends import sql_servers

        self.server = sql_servers.shared_server(getattr(sql_servers, self.server_class))
        self.site = sql_servers.Site(self.server, f"faults_{os.urandom(3).hex()}")
        self.site.migrate()

    def fill(self, settings: dict[str, Any], port: int) -> None:
        entry = {key: self.site.entry[key] for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST")}
        settings["DATABASES"]["claims"] = {**entry, "PORT": str(port)}
        settings["CLAIMS"]["default"]["OPTIONS"] = {"database": "claims"}

    def wipe(self) -> None:
        self.site.ask("DELETE FROM django_claims_lease")

    def restart(self, *, keep: bool) -> None:
        assert keep
        self.server.restart()

    def close(self) -> None:
        if self.proxy:
            self.proxy.close()
        self.site.drop()


class PostgreSQLStore(SQLStore):
    name = "postgresql"
    server_class = "PostgreSQLServer"
    driver = "psycopg"


class MariaDBStore(SQLStore):
    name = "mariadb"
    server_class = "MariaDBServer"
    driver = "MySQLdb"


class SQLiteStore(Store):
    name = "sqlite"
    kind = "database"
    expires_by_wall_clock = True

    def fill(self, settings: dict[str, Any], port: int) -> None:
        path = str(self.directory / "site.sqlite3")
        settings["DATABASES"]["claims"] = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
        settings["CLAIMS"]["default"]["OPTIONS"] = {"database": "claims"}

    def wipe(self) -> None:
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.directory / "site.sqlite3-claims", timeout=10)) as raw:
            raw.execute("DELETE FROM django_claims_lease")
            raw.commit()


class FileStore(Store):
    name = kind = "file"

    def fill(self, settings: dict[str, Any], port: int) -> None:
        settings["CLAIMS"]["default"]["OPTIONS"] = {"directory": str(self.directory / "claims")}


class MemoryStore(Store):
    name = kind = "memory"
    shares = False


STORES: dict[str, type[Store]] = {
    store.name: store
    for store in (RedisStore, PostgreSQLStore, MariaDBStore, SQLiteStore, MemcachedStore, FileStore, MemoryStore)
}


def make_guard(directory: Path, names: list[str]) -> None:
    """Make the guarded table, with a row of 0 for each name."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(directory / "guard.sqlite3", timeout=10)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute(
            "CREATE TABLE IF NOT EXISTS fencing_app_stock (id integer PRIMARY KEY, code varchar(20) UNIQUE, "
            "shelf varchar(20) DEFAULT '', count integer DEFAULT 0, changed datetime DEFAULT '2026-01-01 00:00:00', "
            "supplier_id integer NULL, fence bigint DEFAULT 0)"
        )
        raw.executemany("INSERT INTO fencing_app_stock (code) VALUES (?)", [(name,) for name in names])
        raw.commit()


def wait_for(condition: Any, seconds: float) -> bool:
    """Say whether it came true in time."""
    ends = clock() + seconds
    while clock() < ends:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())
