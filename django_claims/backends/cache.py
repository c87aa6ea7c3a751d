"""
Leases on memcached, through Django's PyMemcacheCache or PyLibMCCache, or on a cache that is trusted.

What memcached gives: `add`, which only one can win, and compare-and-set. Each write of ours
is one of the two, so nobody's lease is ever overwritten or ended unseen.

    acquire   read lease, fence and news; add the lease; set the fence, if it is still what was read
    renew     read; cas with a new expiry          release   read; cas with an expiry in the past

What it does not give: its time (a lease's times are by the clock of the machine that wrote
them, and for display; the store alone decides whether it lives, by whole seconds, up to two
longer than the TTL), a list of its keys (the index here may miss some), and any promise to
keep what it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache, InvalidCacheBackendError, default_key_func
from django.core.cache.backends.db import DatabaseCache
from django.core.cache.backends.dummy import DummyCache
from django.core.cache.backends.filebased import FileBasedCache
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.memcached import PyLibMCCache, PyMemcacheCache

from django_claims import conf
from django_claims.backends.cache_handing import CacheHanding
from django_claims.backends.cache_keys import Keys
from django_claims.backends.cache_links import CacheLink, Link, Links, shared
from django_claims.backends.cache_memcached import PylibmcLink, PymemcacheLink
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.guess import REDIS_CACHES

FILE = "django_claims.backends.file.FileBackend"

UNFIT: tuple[tuple[type, str, str], ...] = (
    (DummyCache, "stores nothing, so that everybody would hold everything", f"In tests use {conf.MEMORY!r}"),
    (LocMemCache, "is of one process and throws live leases away", f"Use {conf.MEMORY!r} for a single process"),
    (FileBasedCache, "lets two in at once and throws live leases away", f"Use {FILE!r} for a single machine"),
    (DatabaseCache, "lets two take over an expired lease and throws live ones away", f"Use {conf.DATABASE!r}"),
)


class CacheBackend(CacheHanding):
    """OPTIONS: `cache`, `version`, `key_prefix`, `trust_add`; see the settings page."""

    supports_complete_listing = False
    known_options = ("cache", "version", "key_prefix", "trust_add")

    def __init__(self, settings: conf.AliasSettings) -> None:
        super().__init__(settings)
        self._cache_alias = settings.options.get("cache", "default")
        where = f"CLAIMS[{self.alias!r}]['OPTIONS']['cache']"
        try:
            cache: Any = caches[self._cache_alias]
        except (InvalidCacheBackendError, ImportError) as error:
            raise InvalidClaimsSetting(
                f"{where} names no usable alias of CACHES: "
                f"{self._cache_alias!r} ({error}). There is: {', '.join(map(repr, caches.settings))}."
            ) from error
        problem = _unfit(cache, settings.options.get("trust_add", False))
        if problem:
            raise InvalidClaimsSetting(f"{where} = {self._cache_alias!r} is {type(cache).__name__}, which {problem}.")
        written = (self._cache_alias, repr(caches.settings[self._cache_alias]))
        self._links: Links | None = None
        if isinstance(cache, PyMemcacheCache | PyLibMCCache):
            self._links = shared.get(written, lambda: _memcached_links(cache))
        elif "version" in settings.options or "key_prefix" in settings.options:
            cache = caches.create_connection(self._cache_alias)  # ours alone, so that it can be told otherwise
            cache.version = settings.options.get("version", cache.version)
            cache.key_prefix = settings.options.get("key_prefix", cache.key_prefix)
        self._cache = cache
        plain = self._links is None or (
            cache.key_func is default_key_func and type(cache).make_key is BaseCache.make_key
        )
        self._keys = Keys(self._key, self._key("") if plain else None)

    def _key(self, key: str) -> str:
        """Return a key by the cache's own rule."""
        options, cache = self.settings.options, self._cache
        if self._links is None:
            return key  # the cache makes it itself
        if "key_prefix" not in options and "version" not in options:
            return str(cache.make_key(key))
        prefix = options.get("key_prefix", cache.key_prefix)
        return str(cache.key_func(key, prefix, options.get("version", cache.version)))

    @contextmanager
    def _link(self) -> Iterator[Link]:
        """Give a way to the store for one verb. Raises BackendUnavailable for whatever goes wrong with it."""
        links = self._links or Links(lambda: CacheLink(self._cache), ())
        link = links.take(self.verb_timeout())
        whole = False
        try:
            yield link
            whole = True
        except links.errors as error:
            raise BackendUnavailable(self.alias, f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            # Left in the middle (a signal, a thread killed): the next answer would be someone else's.
            if not whole:
                link.close()
        links.give(link)

    def close(self) -> None:
        if self._links is not None:
            self._links.close()

    def check_deployment(self) -> list[conf.Problem]:
        """A cache is cleared at deploys and in despair, and memcached then forgets all it has."""
        if self._cache_alias != "default":
            return []
        return [
            conf.Problem(
                "W110",
                f"CLAIMS[{self.alias!r}] shares the cache 'default': cache.clear() wipes all leases, and so may "
                f"a memory that is full.",
                "Give claims an alias of CACHES with a server of its own.",
                self.alias,
                is_error=False,
            )
        ]

    def describe(self) -> str:
        if self._links is None:
            return f"{type(self._cache).__name__} {self._cache_alias!r}"
        return "memcached " + ", ".join(map(str, self._cache.client_servers))


def _unfit(cache: Any, trusted: bool) -> str:
    """Return why a cache cannot hold leases and what to use instead, or ''."""
    for cls, why, instead in UNFIT:
        if isinstance(cache, cls):
            return f"{why}. {instead}"
    if trusted or isinstance(cache, PyMemcacheCache | PyLibMCCache):
        return ""
    if any(f"{base.__module__}.{base.__qualname__}" in REDIS_CACHES for base in type(cache).__mro__):
        return f"has a backend of its own here. Use {conf.REDIS!r}"
    return (
        "is not known to have an add() that only one can win. If it has, also for a key that has just expired, "
        'and keeps what it was given, say so with OPTIONS = {"trust_add": True}; else use '
        f"{conf.REDIS!r} or {conf.DATABASE!r}"
    )


def _memcached_links(cache: Any) -> Links:
    servers, options = cache.client_servers, dict(cache._options)
    servers = [servers] if isinstance(servers, str) or _is_pair(servers) else list(servers)
    if isinstance(cache, PyLibMCCache):
        return Links(lambda: PylibmcLink(servers, options), (import_module("pylibmc").Error, OSError))
    error = import_module("pymemcache.exceptions").MemcacheError
    return Links(lambda: PymemcacheLink(servers, options), (error, OSError))


def _is_pair(servers: Any) -> bool:
    return isinstance(servers, tuple) and len(servers) == 2 and isinstance(servers[1], int)
