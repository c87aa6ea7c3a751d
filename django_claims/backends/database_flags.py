"""Stop flags in a table: columns of the row of each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db import Error, IntegrityError, ProgrammingError

from django_claims.backends import tables
from django_claims.backends.base import BaseClaimBackend, Notice
from django_claims.backends.records import flag_words
from django_claims.backends.sql import now_on
from django_claims.backends.sql_pools import Database
from django_claims.exceptions import BackendUnavailable
from django_claims.leases import RESTING, StopFlag
from django_claims.names import digest

T = TypeVar("T")
TRIES = 5
"""Times to look again when others were faster; each time one of them was granted."""


class DatabaseFlags(BaseClaimBackend):
    """The part of DatabaseBackend that asks runs to stop."""

    _database: Database

    def _ask(self, verb: Callable[[Any], T]) -> T:
        try:
            return self._database.talk(verb, self.verb_timeout())
        except ProgrammingError as error:  # most likely there is no such table
            hint = f"has 'manage.py migrate --database={self._database.alias}' been run?"
            raise BackendUnavailable(self.alias, f"{type(error).__name__}: {error}"[:200] + f" ({hint})") from error
        except Error as error:
            raise BackendUnavailable(self.alias, f"{type(error).__name__}: {error}"[:300]) from error

    def _look(self, connection: Any, name: str) -> Any:
        found = tables.LOOK.fetch(connection, digest=digest(name))
        return tables.row_of(found[0]) if found else None

    def _row(self, name: str) -> Any:
        return self._ask(lambda connection: self._look(connection, name))

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        words = flag_words(reason, by)

        def verb(connection: Any) -> StopFlag | None:
            for _ in range(TRIES):
                row = self._look(connection, name)
                if keep:
                    done = self._keep(connection, name, row, words, ttl_ms)
                else:
                    if row is None or not tables.is_live(row) or row.kind == RESTING:
                        return None
                    if fence is not None and row.fence != fence:
                        return None
                    there = tables.flag_of(row, self.alias)
                    if there is not None:
                        return there
                    seen = {"seen_fence": row.fence, "seen_token": row.token}
                    done = tables.ASK_RUN.run(connection, digest=digest(name), words=words, **seen)
                if done and (row := self._look(connection, name)) is not None:  # else the table was emptied meanwhile
                    return tables.flag_of(row, self.alias)
            if keep:
                raise BackendUnavailable(self.alias, f"the row of {name!r} was gone each time that it was written")
            return None

        return self._ask(verb)

    def _keep(self, connection: Any, name: str, row: Any, words: str, ttl_ms: int | None) -> int:
        now = row.now if row is not None else now_on(connection)
        ends = now + ttl_ms * 1000 if ttl_ms else 0
        if row is None:
            try:
                # A row for a name that nobody has: a lease that has ended as it began.
                free = {
                    "token": "",
                    "fence": 0,
                    "acquired_us": now,
                    "holder": "",
                    "ttl_ms": 0,
                    "ttl_us": 0,
                    "heartbeat_ms": 0,
                }
                tables.NEW.run(connection, digest=digest(name), name=name, **free)
            except IntegrityError:
                pass  # somebody was faster: there is a row now, and that is what is needed
        values = {"ends_us": ends, "asked_us": now, "news_until_us": ends or tables.FOREVER, "words": words}
        return tables.KEEP.run(connection, digest=digest(name), **values)

    def flag(self, name: str) -> StopFlag | None:
        row = self._row(name)
        return None if row is None else tables.flag_of(row, self.alias)

    def flags(self) -> list[StopFlag]:
        found = [notice.flag for notice in self.poll() if notice.flag is not None]
        return sorted(found, key=lambda flag: flag.name)

    def clear_flag(self, name: str) -> StopFlag | None:
        def verb(connection: Any) -> StopFlag | None:
            row = self._look(connection, name)
            if row is None or (flag := tables.flag_of(row, self.alias)) is None:
                return None
            values = {"flag_kind": row.flag_kind, "news_until_us": row.now + row.ttl_ms * 1000}
            return flag if tables.CLEAR.run(connection, digest=digest(name), **values) else None

        return self._ask(verb)

    def poll(self) -> list[Notice]:
        notices = []
        for values in self._ask(tables.NEWS.fetch):
            row = tables.row_of(values)
            if tables.is_forced(row, row.forced_fence):
                notices.append(Notice(row.name, forced_fence=row.forced_fence))
            flag = tables.flag_of(row, self.alias)
            if flag is not None:
                notices.append(Notice(row.name, flag))
        return notices
