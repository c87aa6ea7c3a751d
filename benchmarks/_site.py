"""The servers of a run, and the settings over them: made once, and joined by other processes."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import RedisServer, find_redis

REDIS_CACHES = {
    "default": "django_redis.cache.RedisCache",
    "django": "django.core.cache.backends.redis.RedisCache",
}
BACKENDS = "django_claims.backends"


@dataclass
class Site:
    """Where everything is; goes to other processes as it is."""

    folder: str
    redis_url: str
    memcached: str = ""
    databases: dict[str, dict[str, Any]] = field(default_factory=dict)  # SQLite, and those of servers
    servers: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def has_postgresql(self) -> bool:
        return "postgresql" in self.databases["default"]["ENGINE"]

    def aliases(self) -> dict[str, str]:
        """Return the aliases of CLAIMS that are there, each with what to call it."""
        found = {"default": "Redis", "django": "Redis, by Django's RedisCache"}
        found |= {"memory": "memory", "file": "files", "sqlite": "SQLite"}
        if self.has_postgresql:
            found["postgresql"] = "PostgreSQL"
        if "mariadb" in self.databases:
            found["mariadb"] = "MariaDB"
        if self.memcached:
            found["memcached"] = "memcached"
        return found

    def settings(self, **claims: Any) -> dict[str, Any]:
        """Return Django's settings. What is given goes into each alias of CLAIMS, such as TTL=6."""
        database = f"{BACKENDS}.database.DatabaseBackend"
        redis = f"{BACKENDS}.redis.RedisBackend"
        stores: dict[str, dict[str, Any]] = {
            "default": {"BACKEND": redis},
            "django": {"BACKEND": redis, "OPTIONS": {"cache": "django"}},
            "memory": {"BACKEND": f"{BACKENDS}.memory.MemoryBackend"},
            "file": {"BACKEND": f"{BACKENDS}.file.FileBackend", "OPTIONS": {"directory": f"{self.folder}/claims"}},
            "sqlite": {"BACKEND": database, "OPTIONS": {"database": "sqlite"}},
            "postgresql": {"BACKEND": database, "OPTIONS": {"database": "default"}},
            "mariadb": {"BACKEND": database, "OPTIONS": {"database": "mariadb"}},
            "memcached": {"BACKEND": f"{BACKENDS}.cache.CacheBackend", "OPTIONS": {"cache": "memcached"}},
        }
        caches = {name: {"BACKEND": path, "LOCATION": self.redis_url} for name, path in REDIS_CACHES.items()}
        if self.memcached:
            path = "django.core.cache.backends.memcached.PyMemcacheCache"
            caches["memcached"] = {"BACKEND": path, "LOCATION": self.memcached}
        apps = ["django_claims", "django_claims.database"]
        apps += [app for app in ("pgactivity", "pglock", "db_mutex") if importlib.util.find_spec(app)]
        return {
            "INSTALLED_APPS": ["django.contrib.contenttypes", "django.contrib.auth", *apps],
            "DATABASES": self.databases,
            "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
            "USE_TZ": True,
            "CACHES": caches,
            "CLAIMS": {alias: {**stores[alias], **claims} for alias in self.aliases()},
        }

    def configure(self, **claims: Any) -> None:
        """Set Django up in this process."""
        import django
        from django.conf import settings

        from django_claims.backends import file_places

        file_places.temporary_places = list  # a benchmark's claims may be in a temporary directory
        settings.configure(**self.settings(**claims))
        django.setup()
        logging.disable(logging.CRITICAL)

    def configure_again(self) -> None:
        """Have this process know the databases that were started since."""
        from django.conf import settings
        from django.db import connections

        from django_claims.handler import claim_backends

        for name, value in self.settings().items():
            setattr(settings, name, value)
        for alias in connections:
            connections[alias].close()
            del connections[alias]
        connections.settings = connections.configure_settings(self.databases)
        claim_backends.reset()


@contextlib.contextmanager
def site(*, whole: bool) -> Iterator[Site]:
    """Start what servers there are (the whole lot, or Redis alone), and end them."""
    program = find_redis()
    if program is None:
        sys.exit("No redis-server or valkey-server on PATH, and neither wheel of the 'test' extra that brings one.")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="claims-bench-", ignore_cleanup_errors=True))
        redis = RedisServer(Path(folder) / "redis", program=program)
        stack.callback(redis.stop)
        with contextlib.closing(redis.client()) as client:
            about = client.info("server")
        name = "Valkey" if "valkey_version" in about else "Redis"
        there = Site(folder, redis.url, servers=[f"{name} {about.get('valkey_version', about['redis_version'])}"])
        sqlite: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/bench.sqlite3"}
        there.databases = {"default": sqlite, "sqlite": sqlite}
        if whole:
            _start_memcached(stack, there)
        there.configure()
        if whole:
            _start_databases(stack, there)
            there.configure_again()
        from django.core.management import call_command
        from django.db import connections

        for alias in there.databases:
            call_command("migrate", database=alias, verbosity=0)
            connections[alias].close()
        yield there


def _start_memcached(stack: contextlib.ExitStack, there: Site) -> None:
    from tests.backends.memcached_server import GivenMemcached, MemcachedServer, find_memcached

    given = os.environ.get("CLAIMS_TEST_MEMCACHED")
    if given or find_memcached():
        memcached = GivenMemcached(given) if given else MemcachedServer()
        if isinstance(memcached, MemcachedServer):
            stack.callback(memcached.stop)
            there.servers.append(memcached.ask("version").replace("VERSION", "memcached").strip())
        there.memcached = memcached.address
    else:
        there.missing.append("memcached: no such server here")


def _start_databases(stack: contextlib.ExitStack, there: Site) -> None:
    try:  # what is in there knows models, so that Django has to be set up
        from tests.backends.sql_servers import MariaDBServer, PostgreSQLServer
    except ImportError as error:
        there.missing.append(f"PostgreSQL, MariaDB: {error}")
        return
    for alias, kind in (("default", PostgreSQLServer), ("mariadb", MariaDBServer)):
        title = kind.__name__.removesuffix("Server")
        try:
            if not kind.find():
                raise LookupError("no such server here")
            server = kind()
            stack.callback(server.end)
            with contextlib.closing(server.connect()) as raw:
                cursor = raw.cursor()
                cursor.execute("SHOW server_version" if alias == "default" else "SELECT version()")
                there.servers.append(f"{title} {str(cursor.fetchone()[0]).split('-')[0].split(' ')[0]}")
                cursor.execute("CREATE DATABASE bench")
        except Exception as error:
            there.missing.append(f"{title}: {type(error).__name__}: {error}")
            continue
        there.databases = {**there.databases, alias: {**server.settings, "NAME": "bench"}}
