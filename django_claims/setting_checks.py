"""
Settings that are valid each by itself, and go wrong together with something else that is set.

Static, without any network. `problems()` is for every check, `deployment_problems()` for --deploy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from django.conf import settings as django_settings

from django_claims import conf
from django_claims.conf import AliasSettings, Problem
from django_claims.guess import MEMCACHED_CACHES, REDIS_CACHES, cache_is

MEANT_OTHERWISE = {
    1: "a command that fails",
    2: "a mistyped command line",
    69: "a store that gives no answer",
    70: "a claim that was lost",
}
LONG_SECONDS = 3600
SHORT_SECONDS = 1
MISPLACED = ("KEY_PREFIX", "VERSION", "KEY_FUNCTION")
USE_CACHE = (conf.REDIS, conf.CACHE)


def problems(aliases: list[AliasSettings]) -> Iterator[Problem]:
    """Yield what is odd, wherever the site runs."""
    yield from _exit_code()
    for alias in aliases:
        where = f"CLAIMS[{alias.alias!r}]"
        raw = _raw(alias).get("STORE_TIMEOUT")
        if raw is not None and (asked := _seconds(raw)) > alias.store_timeout:
            yield Problem(
                "W015",
                f"{where}['STORE_TIMEOUT'] is {asked:g} s, more than half the heartbeat: {alias.store_timeout:g} s is "
                f"used.",
                "Lower it, or raise TTL: a renewal that fails must leave time for a second one.",
                alias.alias,
                is_error=False,
            )
        if alias.ttl_ms > LONG_SECONDS * 1000:
            yield Problem(
                "W016",
                f"{where}['TTL'] is {alias.ttl_ms / 3_600_000:g} hours: so long is a claim blocked whose holder died "
                f"on another machine.",
                "Leave it at some minutes: a lease is renewed for as long as its holder lives, however long the work.",
                alias.alias,
                is_error=False,
            )
        yield from _misplaced(alias)


def deployment_problems(aliases: list[AliasSettings]) -> Iterator[Problem]:
    """Yield what does for development and tests, and not for a site."""
    for alias in aliases:
        if alias.ttl_ms < SHORT_SECONDS * 1000:
            yield Problem(
                "W113",
                f"CLAIMS[{alias.alias!r}]['TTL'] is {alias.ttl_ms} ms: a busy machine loses such claims.",
                "TTLs under a second are for tests. Use some minutes.",
                alias.alias,
                is_error=False,
            )
        if alias.backend in USE_CACHE:
            yield from _shared(alias)


def _exit_code() -> Iterator[Problem]:
    code = getattr(django_settings, "CLAIMS_EXIT_CODE", conf.DEFAULT_EXIT_CODE)
    if isinstance(code, bool) or not isinstance(code, int):
        return  # another check says so
    meaning = MEANT_OTHERWISE.get(code) or ("death by a signal" if 127 < code < 256 else "")
    if meaning:
        yield Problem(
            "W014",
            f"CLAIMS_EXIT_CODE = {code} cannot be told from {meaning}.",
            "Use 75, which means 'try again later', or 0 if a refused command is a success.",
            "CLAIMS_EXIT_CODE",
            is_error=False,
        )


def _raw(alias: AliasSettings) -> Mapping[str, Any]:
    written = getattr(django_settings, "CLAIMS", None)
    return written.get(alias.alias, {}) if isinstance(written, Mapping) else {}


def _seconds(value: Any) -> float:
    return float(value.total_seconds() if hasattr(value, "total_seconds") else value)


def _cache(alias: AliasSettings) -> tuple[str, Mapping[str, Any]]:
    name = str(alias.options.get("cache", "default"))
    return name, django_settings.CACHES.get(name, {})


def _misplaced(alias: AliasSettings) -> Iterator[Problem]:
    """Django and its Redis clients ignore these where they stand, without a word."""
    if alias.backend not in USE_CACHE:
        return
    name, cache = _cache(alias)
    for key in MISPLACED:
        if key in cache.get("OPTIONS", {}) and key not in cache:
            yield Problem(
                "W017",
                f"CACHES[{name!r}]['OPTIONS'] has {key}, which is ignored there: CLAIMS[{alias.alias!r}] and other "
                f"sites on that server share their names.",
                f"Move {key} out of OPTIONS, beside BACKEND.",
                alias.alias,
                is_error=False,
            )


def _shared(alias: AliasSettings) -> Iterator[Problem]:
    name, cache = _cache(alias)
    mine = places(cache)
    others = [
        other
        for other, params in django_settings.CACHES.items()
        if other != name and name != "default" and mine & places(params)
    ]
    if others:
        yield Problem(
            "W111",
            f"CLAIMS[{alias.alias!r}] keeps its leases where CACHES {', '.join(map(repr, others))} keeps its values: "
            f"clear() of either wipes both, whatever their KEY_PREFIX.",
            "Give claims a database number of their own, or better a server.",
            alias.alias,
            is_error=False,
        )
    users = [
        what
        for what, uses in (
            ("sessions", _sessions_alias()),
            ("the cache middleware", _middleware_alias()),
        )
        if uses == name and name != "default"
    ]
    if users:
        yield Problem(
            "W112",
            f"CLAIMS[{alias.alias!r}] shares the cache {name!r} with {' and '.join(users)}: who clears those, or fills "
            f"the server with them, ends all claims.",
            "Give claims an alias of CACHES of their own.",
            alias.alias,
            is_error=False,
        )


def _sessions_alias() -> str:
    engine = str(getattr(django_settings, "SESSION_ENGINE", ""))
    in_cache = engine.endswith((".cache", ".cached_db"))
    return str(getattr(django_settings, "SESSION_CACHE_ALIAS", "default")) if in_cache else ""


def _middleware_alias() -> str:
    used = any("CacheMiddleware" in path for path in django_settings.MIDDLEWARE)
    return str(getattr(django_settings, "CACHE_MIDDLEWARE_ALIAS", "default")) if used else ""


def places(cache: Mapping[str, Any]) -> set[str]:
    """Return the servers, and databases on them, that an entry of CACHES names: what one clear() wipes together."""
    location = cache.get("LOCATION") or ()
    words = re.split(r"[;,]\s*", location) if isinstance(location, str) else [str(word) for word in location]
    if cache_is(cache, MEMCACHED_CACHES):
        return {f"memcached {word}" for word in words}
    if not cache_is(cache, REDIS_CACHES):
        return set()
    found = set()
    for word in words:
        url = urlsplit(word)
        number = cache.get("OPTIONS", {}).get("db") or parse_qs(url.query).get("db", [""])[0]
        path = url.path if url.scheme == "unix" else ""
        number = number or ("" if url.scheme == "unix" else url.path.strip("/")) or 0
        found.add(f"redis {url.hostname or ''}{path}:{url.port or 6379}/{number}")
    return found
