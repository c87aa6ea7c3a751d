"""
The checks of a Redis or Valkey, asked by raw commands.

What an account may not ask is no fault of the server's: the doctor then says that it cannot tell.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings as django_settings

from django_claims.backends.base import FORMAT, BaseClaimBackend
from django_claims.backends.scripts import ScriptBackend
from django_claims.cli.findings import Finding, Level, StoreRefused
from django_claims.clock import ago
from django_claims.exceptions import BackendUnavailable

FINGERPRINTS = "{claims}:fingerprints"
"""One key for all prefixes and versions: how else would two sites see that theirs differ?"""
FINGERPRINT_SECONDS = 3_600
TESTED_SINCE = (6, 2)
NO_SCRIPT = "NOSCRIPT"


def is_redis(backend: BaseClaimBackend) -> bool:
    return isinstance(backend, ScriptBackend) and hasattr(backend, "_connections")


def ask(backend: Any, *command: Any) -> Any:
    """Return the answer to one command. Raises StoreRefused if it is an error, BackendUnavailable if none came."""
    connections = backend._connections
    try:
        return connections.talk([command], backend.verb_timeout())[0]
    except (connections._broken, connections._slow, OSError) as error:
        raise BackendUnavailable(backend.alias, f"{type(error).__name__}: {error}"[:300]) from error
    except Exception as error:
        raise StoreRefused(f"{type(error).__name__}: {error}"[:300]) from error


def info(backend: Any, section: str) -> dict[str, str]:
    said = ask(backend, "INFO", section).decode(errors="replace")
    return dict(line.split(":", 1) for line in said.splitlines() if ":" in line)


def pairs(answer: Any) -> list[tuple[Any, Any]]:
    """Return the pairs of an answer that is a map: RESP3 says so, RESP2 makes it a list."""
    return list(answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True))


def examine(backend: Any) -> Iterator[Finding]:
    for check in (version, role, eviction, persistence, scripts, shared, fingerprint):
        yield _asked(backend, check)


def _asked(backend: Any, check: Callable[[Any], tuple[Level, str, str]]) -> Finding:
    try:
        level, fact, advice = check(backend)
    except StoreRefused as error:
        level, fact = Level.WARN, f"Cannot tell: {error}"
        advice = "Let the account ask, or ask the server's owner."
    name = "settings" if check is fingerprint else check.__name__
    return Finding(id=name, alias=backend.alias, level=level, fact=fact, advice=advice)


def version(backend: Any) -> tuple[Level, str, str]:
    said = info(backend, "server")
    name = "Valkey" if "valkey_version" in said else "Redis"
    number = said.get("valkey_version") or said.get("redis_version", "?")
    parts = tuple(int(part) for part in number.split(".")[:2] if part.isdecimal())
    if parts < TESTED_SINCE:
        return Level.WARN, f"{name} {number} is older than what is tested.", "Use 6.2 or later."
    return Level.OK, f"{name} {number}.", ""


def role(backend: Any) -> tuple[Level, str, str]:
    said = info(backend, "replication")
    if said.get("role") != "master":
        return (
            Level.FAIL,
            f"Is a replica of {said.get('master_host')}:{said.get('master_port')}: nothing can be acquired here.",
            "Point the cache alias at the primary, or at Sentinel.",
        )
    copies = said.get("connected_slaves", "0")
    if copies == "0":
        return Level.OK, "Is the primary, without replicas.", ""
    return Level.OK, f"Is the primary; replicas: {copies} (a failover may forget the last leases).", ""


def eviction(backend: Any) -> tuple[Level, str, str]:
    said = info(backend, "memory")
    policy, limit = said.get("maxmemory_policy", "?"), int(said.get("maxmemory", "0"))
    if policy == "?":
        return Level.WARN, "Does not say its maxmemory-policy.", "See to it that it is noeviction."
    if policy != "noeviction":
        now = f"at {limit} bytes" if limit else "once maxmemory is set (it is not now)"
        return (
            Level.FAIL,
            f"maxmemory-policy is {policy}: {now} it throws leases away, and a second holder is let in.",
            "Set 'maxmemory-policy noeviction', or give claims a server of their own. volatile-* is no protection.",
        )
    used = int(said.get("used_memory", "0"))
    if limit and used > limit * 0.9:
        return (
            Level.WARN,
            f"maxmemory-policy is noeviction, and {used / limit:.0%} of maxmemory is used: when full, nobody acquires.",
            "Raise maxmemory, or remove what fills it.",
        )
    return Level.OK, "maxmemory-policy is noeviction.", ""


def persistence(backend: Any) -> tuple[Level, str, str]:
    if info(backend, "persistence").get("aof_enabled") == "1":
        return Level.OK, "Keeps an append-only file.", ""
    if any(value for _, value in pairs(ask(backend, "CONFIG", "GET", "save"))):
        return Level.OK, "Keeps snapshots only: a restart brings back leases as they were at the last one.", ""
    return (
        Level.WARN,
        "Keeps nothing on disk: a restart forgets all leases. Holders are told within one heartbeat.",
        "Set 'appendonly yes', unless you can live with a second holder after a restart.",
    )


def scripts(backend: Any) -> tuple[Level, str, str]:
    try:
        ask(backend, "EVAL", "return 1", 0)
        try:
            ask(backend, "EVALSHA", "0" * 40, 0)
        except StoreRefused as error:
            if not str(error).startswith("NoScriptError") and NO_SCRIPT not in str(error):
                raise
    except StoreRefused as error:
        return (
            Level.FAIL,
            f"The account may not run scripts ({error}), so nothing can be acquired.",
            "Allow it +@scripting (EVAL and EVALSHA), and the commands that scripts use on keys.",
        )
    return Level.OK, "Runs scripts.", ""


def shared(backend: Any) -> tuple[Level, str, str]:
    """Count what others keep in this database, without KEYS or SCAN."""
    own = ask(backend, "ZCARD", backend._index_key)
    own += ask(backend, "EXISTS", backend._index_key, backend._fence_key, backend._flags_key)
    others = ask(backend, "DBSIZE") - own - ask(backend, "EXISTS", FINGERPRINTS)
    if others <= 0:
        return Level.OK, "No keys of others are in this database.", ""
    return (
        Level.WARN,
        f"About {others} keys of others are in this database: cache.clear() on any alias of it wipes all leases.",
        "Give claims an alias of CACHES with a database number, or better a server, of its own.",
    )


def fingerprint(backend: Any) -> tuple[Level, str, str]:
    """Leave word of how this process is set, and compare it with what others left within the hour."""
    now = int(ask(backend, "TIME")[0])
    settings = backend.settings
    mine = {
        "format": FORMAT,
        "keys": backend._index_key,
        "ttl": settings.ttl_ms,
        "heartbeat": settings.heartbeat_ms,
        "renew_deadline": settings.renew_deadline_ms,
    }
    site = [str(getattr(django_settings, "SETTINGS_MODULE", None) or "?"), backend.alias]
    field = json.dumps([socket.gethostname(), *site, mine], sort_keys=True)
    said = pairs(ask(backend, "HGETALL", FINGERPRINTS))
    ask(backend, "HSET", FINGERPRINTS, field, now)
    ask(backend, "EXPIRE", FINGERPRINTS, FINGERPRINT_SECONDS)
    agree, differ = 0, []
    for text, at in said:
        try:
            (host, *their_site, theirs), age = json.loads(text), now - int(at)
            unlike = [
                f"{key} {theirs.get(key)} there, {mine[key]} here" for key in mine if theirs.get(key) != mine[key]
            ]
        except (ValueError, TypeError, AttributeError):
            continue  # of another version
        is_other = theirs.get("keys") != mine["keys"] and their_site != site  # another site on the same server
        if is_other or age > FINGERPRINT_SECONDS:
            continue
        if unlike:
            differ.append(f"{host} ({', '.join(their_site)}), {ago(age)} ago: {', '.join(unlike)}")
        else:
            agree += 1
    if differ:
        return (
            Level.WARN,  # it may be another site after all: the doctor knows it by the name of its settings only
            f"Doctor ran within the hour with other settings on {'; '.join(differ)}.",
            "If that is the same site: with other keys or another format its processes do not see each other's claims.",
        )
    if agree > (field.encode() in [text for text, _ in said]):
        return Level.OK, "Agree with those of all other machines where doctor ran within the hour.", ""
    return Level.OK, "Doctor ran nowhere else within the hour; run it on each machine, and it compares settings.", ""
