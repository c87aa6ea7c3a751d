"""
Leases on Redis or Valkey, over a django-redis alias or one of Django's own RedisCache.

One script a verb, one round trip a script (two if the server has forgotten the script).
Values are text of our own, never pickled. All keys of an alias share one cluster slot.

The connection class, its settings (TLS, Sentinel, auth) and the key rule are the cache
alias's; the connections are not: a client that waits or tries again as long as it likes
would hang the holder with its server, so ours are bounded by STORE_TIMEOUT, all steps of
connecting together, and try again only what cannot have been slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from django.core.cache import caches
from django.core.cache.backends.base import InvalidCacheBackendError
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, NoScriptError, ReadOnlyError, RedisError, TimeoutError
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from django_claims import conf
from django_claims.backends import listening
from django_claims.backends.base import Waiter
from django_claims.backends.listening import InLine, Listening
from django_claims.backends.scripts import SCRIPTS, ScriptBackend
from django_claims.backends.wire import Again, Connections, shared
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting


def _is_no_primary(error: Exception) -> bool:
    """Say whether a server has become a copy: what is written there is for another one now."""
    return isinstance(error, ReadOnlyError) or "READONLY" in str(error)[:200]  # before Redis 7 inside a script's error


class RedisBackend(ScriptBackend):
    """OPTIONS: `cache`, `version`, `key_prefix`; see the settings page."""

    known_options = ("cache", "version", "key_prefix")
    poll_interval = (0.02, 0.25)  # of waiters who cannot be told

    def __init__(self, settings: conf.AliasSettings) -> None:
        super().__init__(settings)
        self._cache_alias = settings.options.get("cache", "default")
        try:
            self._cache: Any = caches[self._cache_alias]
        except InvalidCacheBackendError as error:
            raise InvalidClaimsSetting(
                f"CLAIMS[{self.alias!r}]['OPTIONS']['cache'] names no usable alias of CACHES: "
                f"{self._cache_alias!r} ({error}). There is: {', '.join(map(repr, caches.settings))}."
            ) from error
        # By what was written in CACHES, so that an override of it is never served by old connections.
        written = repr(caches.settings[self._cache_alias])
        self._connections = shared.get((self._cache_alias, written), self._connect)
        # Pub/sub knows no databases, so the channels carry the number of ours.
        database = self._connections.pool.connection_kwargs.get("db") or 0
        base = f"{database}:{self._key('')}"
        self._listening = listening.shared.get(
            (self.alias, base, self._connections), lambda: Listening(self._connections.connect, base.__add__)
        )
        self._news_channel = self._listening.news_channel
        self._fence_key = self._key("fence")
        self._index_key = self._key("index")
        self._flags_key = self._key("stops")

    def _connect(self) -> Connections:
        """Return connections like the cache's to its primary, but bounded; opens none yet."""
        where = f"CLAIMS[{self.alias!r}]['OPTIONS']['cache'] = {self._cache_alias!r}"
        try:
            client = (
                self._cache.client.get_client(write=True)
                if hasattr(self._cache, "client")  # django-redis
                else self._cache._cache.get_client(None, write=True)
            )
            theirs = client.connection_pool
        except (AttributeError, NotImplementedError) as error:
            raise InvalidClaimsSetting(
                f"{where} is {type(self._cache).__name__}, which gives no single Redis connection. Use an alias of "
                f"django_redis.cache.RedisCache with its DefaultClient, or of Django's own RedisCache; for a "
                f"site without Redis, {conf.DATABASE!r}."
            ) from error
        settings = {
            **theirs.connection_kwargs,
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "health_check_interval": 0,
            "decode_responses": False,
            "max_connections": 2**31,  # redis-py counts all that were ever made
        }
        pool: Any
        if isinstance(theirs, SentinelConnectionPool):
            settings.pop("connection_pool", None)
            pool = SentinelConnectionPool(  # type: ignore[no-untyped-call]  # redis-py has no types for it
                theirs.service_name,
                theirs.sentinel_manager,
                connection_class=theirs.connection_class,
                **settings,
            )
        else:
            pool = redis.ConnectionPool(connection_class=theirs.connection_class, **settings)
        return Connections(pool, broken=ConnectionError, slow=TimeoutError, is_no_primary=_is_no_primary)

    def _key(self, key: str) -> str:
        """Return a key by the cache's own rule. The braces put all of them into one cluster slot."""
        options, cache, whole = self.settings.options, self._cache, "{claims}:" + key
        if "key_prefix" not in options and "version" not in options:
            return str(cache.make_key(whole))
        prefix = options.get("key_prefix", cache.key_prefix)
        version = options.get("version", cache.version)
        return str(cache.key_func(whole, prefix, version))

    def _lease_key(self, name: str) -> str:
        return self._key("lease:" + name)

    def _run_all(
        self,
        verb: str,
        calls: Sequence[tuple[Sequence[str], Sequence[str | bytes]]],
        then: Sequence[tuple[str, ...]] = (),
        before: tuple[str, ...] | None = None,
    ) -> list[Any]:
        script = SCRIPTS[verb]
        rest = [(str(len(keys)), *keys, *args) for keys, args in calls]
        try:
            commands = [*(("EVALSHA", script.sha, *words) for words in rest), *then]
            if before is not None:
                commands.insert(0, before)
            answers = self._connections.talk(commands, self.verb_timeout(), NoScriptError)
            if before is not None:
                del answers[0]
            # The server was restarted or told to forget. What did run is not run again: it would find its own work.
            again = [at for at, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if again:
                commands = [("EVAL", script.source, *rest[at]) for at in again]
                more = self._connections.talk(commands, self.verb_timeout())
                for at, answer in zip(again, more, strict=True):
                    answers[at] = answer
                answers = Again(answers) if isinstance(more, Again) else answers
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error
        return answers

    def mark(self, names: Sequence[str], ttl_ms: int) -> None:
        # Plain keys: as leases there would be thousands in the index, for nothing.
        self._talk([("SET", self._key("mark:" + name), "1", "PX", str(ttl_ms)) for name in names])

    def marked(self, name: str) -> bool:
        return bool(self._talk([("EXISTS", self._key("mark:" + name))])[0])

    def _talk(self, commands: Sequence[tuple[str, ...]]) -> list[Any]:
        try:
            return self._connections.talk(commands, self.verb_timeout())
        except (RedisError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> BackendUnavailable:
        return BackendUnavailable(self.alias, f"{type(error).__name__}: {error}"[:300])

    @property
    def may_listen(self) -> bool:
        return self._listening.is_wanting or self._listening.is_unheard

    def listen(self, heard: Callable[[str | None], object]) -> bool:
        was_unheard = self._listening.is_unheard  # on, for one who waits, and news were nobody's
        self._listening.heard = heard
        return self._listening.begin(self.verb_timeout()) or was_unheard

    @property
    def _in_a_crowd(self) -> bool:  # type: ignore[override]  # it comes and goes
        return self._listening.has_waited

    def wait(self, names: tuple[str, ...], bell: Callable[[], object]) -> Waiter:
        return InLine(self._listening, names, bell, self.poll_interval)

    def close(self) -> None:
        self._listening.end()
        self._connections.close()

    def check_deployment(self) -> list[conf.Problem]:
        """A cache is cleared at deploys and in despair, and Redis then clears the whole database."""
        if self._cache_alias != "default":
            return []
        return [
            conf.Problem(
                "W110",
                f"CLAIMS[{self.alias!r}] shares the cache 'default': cache.clear() on any alias of that Redis database "
                f"wipes all leases, and an eviction policy may.",
                "Give claims an alias of CACHES with a database of its own, and keep maxmemory-policy at noeviction.",
                self.alias,
                is_error=False,
            )
        ]

    def describe(self) -> str:
        where = self._connections.pool.connection_kwargs
        return f"Redis {where.get('host', where.get('path', ''))}:{where.get('port', '')}/{where.get('db', 0)}"
