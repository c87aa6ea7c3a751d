"""
Leases on several Redis servers, each name on one of them by a hash of it.

A name's lease, fence, stop flag and line are all on its server, and follow the rules there. What
concerns many names is asked of each server in turn: never in one step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from django_claims import conf
from django_claims.backends import base
from django_claims.backends.redis import RedisBackend
from django_claims.clock import clock
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting, UnsupportedFeature
from django_claims.leases import Lease, StopFlag

AWAY_SECONDS = 10.0
_GROUP = re.compile(r"\{([^{}]+)\}")


def _by_name(verb: str) -> Any:
    return lambda self, name, *args, **about: getattr(self._of(name), verb)(name, *args, **about)


def _together(verb: str) -> Any:
    return lambda self, requests: getattr(self._of(*(each.name for each in requests)), verb)(requests)


class ShardedBackend(base.BaseClaimBackend):
    """OPTIONS: `caches`, aliases of CACHES, a server each; `version`, `key_prefix` as of RedisBackend."""

    known_options = ("caches", "version", "key_prefix")
    supports_hand_over = True

    def __init__(self, settings: conf.AliasSettings) -> None:
        super().__init__(settings)
        rest = dict(settings.options)
        caches, where = rest.pop("caches", None), f"CLAIMS[{self.alias!r}]['OPTIONS']['caches']"
        if not isinstance(caches, list | tuple) or not caches or not all(isinstance(cache, str) for cache in caches):
            raise InvalidClaimsSetting(f"{where} should be a list of aliases of CACHES, not {caches!r}.")
        made = [RedisBackend(replace(settings, options={**rest, "cache": cache})) for cache in caches]
        if len({shard.describe() for shard in made}) < len(made):
            raise InvalidClaimsSetting(f"{where} names one Redis database twice: {caches!r}.")
        self._shards: dict[str, RedisBackend] = dict(zip(caches, made, strict=True))
        self._notices: dict[str, list[base.Notice]] = {}
        self._away: dict[str, float] = {}

    @property
    def parts(self) -> Sequence[base.BaseClaimBackend]:
        return tuple(self._shards.values())

    def _place(self, name: str) -> str:
        """Return the cache of a name. One more takes over its share of names, and the others keep theirs."""
        found = _GROUP.search(name)
        word = found[1] if found else name
        return max(self._shards, key=lambda cache: blake2b(f"{cache} {word}".encode(), digest_size=8).digest())

    def _of(self, *names: str) -> RedisBackend:
        places = {self._place(name) for name in names}
        if len(places) > 1:
            raise UnsupportedFeature("names on several servers in one claim, without {a common part}", self.alias)
        return self._shards[places.pop()]

    def _each(self, verb: str, items: Sequence[Any], away: Any = None) -> list[Any]:
        """Ask each server about its items, and return the answers in order: `away` for those of one that is away."""
        places = [self._place(getattr(item, "name", item)) for item in items]
        found: dict[str, Any] = {}
        error = BackendUnavailable(self.alias)
        for cache in [cache for cache in self._shards if cache in places]:
            mine = [item for item, place in zip(items, places, strict=True) if place == cache]
            try:
                found[cache] = iter(getattr(self._shards[cache], verb)(mine))
                self._away.pop(cache, None)
            except BackendUnavailable as caught:
                # Last from now on: a frozen one should not use up the others' time.
                self._shards[cache], self._away[cache], error = self._shards.pop(cache), clock(), caught
        if len(found) < len(set(places)) and (away is None or not found):
            raise error
        return [next(found[place]) if place in found else away for place in places]

    acquire, hand_over, adopt = map(_together, ("acquire", "hand_over", "adopt"))
    held, lease, promised, marked = map(_by_name, ("held", "lease", "promised", "marked"))
    force_release, set_flag, flag, clear_flag = map(_by_name, ("force_release", "set_flag", "flag", "clear_flag"))

    def renew(self, requests: Sequence[base.RenewRequest]) -> list[base.RenewAnswer]:
        return self._each("renew", requests, base.RenewAnswer(base.Renewal.UNKNOWN))

    def release(self, requests: Sequence[base.ReleaseRequest]) -> list[base.Released]:
        return self._each("release", requests)

    def overview(self) -> tuple[list[str], list[StopFlag]]:
        all_of = [shard.overview() for shard in self._shards.values()]
        flags = [flag for _, some in all_of for flag in some]
        return sorted(name for names, _ in all_of for name in names), sorted(flags, key=lambda flag: flag.name)

    def leases_of(self, names: Sequence[str]) -> list[Lease]:
        found: dict[str, Lease] = {}
        for cache, shard in self._shards.items():
            mine = [name for name in names if self._place(name) == cache]
            found |= {lease.name: lease for lease in shard.leases_of(mine)}
        return [found[name] for name in names if name in found]

    def flags(self) -> list[StopFlag]:
        return self.overview()[1]

    def _present(self) -> dict[str, RedisBackend]:
        """Return the servers but those that gave no answer a moment ago: of hints, nobody should wait for them."""
        since = clock() - AWAY_SECONDS
        here = {cache: shard for cache, shard in self._shards.items() if self._away.get(cache, 0.0) <= since}
        return here or dict(self._shards)

    def poll(self) -> list[base.Notice]:
        """Of a server that is away the last answer stands, unless all of them are."""
        answered, error = False, BackendUnavailable(self.alias)
        for cache, shard in self._present().items():
            try:
                self._notices[cache], answered = shard.poll(), True
            except BackendUnavailable as caught:
                self._away[cache], error = clock(), caught
        if not answered:
            raise error
        return [notice for notices in self._notices.values() for notice in notices]

    def mark(self, names: Sequence[str], ttl_ms: int) -> None:
        for name in names:
            self._of(name).mark([name], ttl_ms)

    @property
    def may_listen(self) -> bool:
        return any(shard.may_listen for shard in self._present().values())

    def listen(self, heard: Callable[[str | None], object]) -> bool:
        begun = [shard.listen(heard) for shard in self._present().values()]  # each of them
        return any(begun)

    def wait(self, names: tuple[str, ...], bell: Callable[[], object]) -> base.Waiter:
        return self._of(*names).wait(names, bell)

    def close(self) -> None:
        for shard in self._shards.values():
            shard.close()

    def check_deployment(self) -> list[conf.Problem]:
        return [problem for shard in self._shards.values() for problem in shard.check_deployment()]

    def describe(self) -> str:
        return ", ".join(sorted(shard.describe() for shard in self._shards.values()))
