"""Stop flags in the memory of this process, and what a row is worth now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.module_loading import import_string

from django_claims.backends.base import BaseClaimBackend, Notice
from django_claims.backends.memory_store import Row, Store, stores
from django_claims.clock import clock, from_microseconds
from django_claims.conf import AliasSettings
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.leases import RESTING, StopFlag


class MemoryFlags(BaseClaimBackend):
    known_options = ("clock",)

    def __init__(self, settings: AliasSettings) -> None:
        super().__init__(settings)
        chosen: Any = settings.options.get("clock", clock)
        if isinstance(chosen, str):
            chosen = import_string(chosen)
        if not callable(chosen):
            raise InvalidClaimsSetting(
                f"CLAIMS[{self.alias!r}]['OPTIONS']['clock'] should be a callable that returns seconds, not {chosen!r}."
            )
        self._clock: Callable[[], float] = chosen  # pyright: ignore[reportAttributeAccessIssue]  # seen above

    @property
    def _store(self) -> Store:
        key = (self.alias, self._clock)
        return stores.get(key) or stores.setdefault(key, Store(self._clock))

    def _live(self, store: Store, name: str, now: int) -> Row | None:
        row = store.rows.get(name)
        if row is not None and row.expires_us <= now:
            self._end(store, name, row)
            return None
        return row

    def _end(self, store: Store, name: str, row: Row) -> None:
        """Remove a lease with all that lives as long as it does."""
        del store.rows[name]
        flag = store.flags.get(name)
        if flag is not None and flag.fence == row.fence:
            del store.flags[name]
        store.ring()

    def _flag(self, store: Store, name: str, now: int) -> StopFlag | None:
        flag = store.flags.get(name)
        if flag is None:
            return None
        if flag.expires_at is not None and flag.expires_at <= from_microseconds(now):
            del store.flags[name]
            return None
        if not flag.keep:
            row = self._live(store, name, now)
            if row is None or row.fence != flag.fence:
                return None
        return flag

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        store = self._store
        with store.lock:
            now = store.now()
            if not keep:
                row = self._live(store, name, now)
                if row is None or row.kind == RESTING or (fence is not None and row.fence != fence):
                    return None
                there = self._flag(store, name, now)
                if there is not None:
                    return there
                fence = row.fence
            flag = StopFlag(
                name=name,
                alias=self.alias,
                fence=None if keep else fence,
                keep=keep,
                reason=reason,
                by=by,
                requested_at=from_microseconds(now),
                expires_at=from_microseconds(now + ttl_ms * 1000) if ttl_ms else None,
            )
            store.flags[name] = flag
            store.ring()
            return flag

    def flag(self, name: str) -> StopFlag | None:
        store = self._store
        with store.lock:
            now = store.now()
            return self._flag(store, name, now)

    def flags(self) -> list[StopFlag]:
        store = self._store
        with store.lock:
            now = store.now()
            found = [self._flag(store, name, now) for name in sorted(store.flags)]
        return [flag for flag in found if flag is not None]

    def clear_flag(self, name: str) -> StopFlag | None:
        store = self._store
        with store.lock:
            now = store.now()
            flag = self._flag(store, name, now)
            store.flags.pop(name, None)
            return flag

    def poll(self) -> list[Notice]:
        store = self._store
        with store.lock:
            now = store.now()
            forced = [Notice(name, forced_fence=fence) for (name, fence), until in store.forced.items() if until > now]
        return forced + [Notice(flag.name, flag) for flag in self.flags()]
