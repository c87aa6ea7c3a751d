"""The part of FileBackend that reads its settings, gets to its directory, and asks runs to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django_claims import conf
from django_claims.backends import file_cleaning, file_directory
from django_claims.backends.base import BaseClaimBackend, Notice
from django_claims.backends.file_directory import directory_of
from django_claims.backends.file_handles import Handles
from django_claims.backends.file_news import Flag
from django_claims.backends.file_places import checked_directory, checked_mode
from django_claims.backends.file_records import Record
from django_claims.backends.file_visit import Visit
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting
from django_claims.leases import RESTING, StopFlag


class FileFlags(BaseClaimBackend):
    known_options = ("directory", "mode")

    @property
    def is_machine_local(self) -> bool:
        return True

    def __init__(self, settings: conf.AliasSettings) -> None:
        super().__init__(settings)
        if file_directory.fcntl is None:
            raise InvalidClaimsSetting(
                f"CLAIMS[{self.alias!r}] uses FileBackend, which needs the locks of a Unix system (fcntl). Use "
                f"{conf.DATABASE!r} here, or {conf.REDIS!r}."
            )
        self._path = checked_directory(settings)
        self._directory = directory_of(self._path, checked_mode(settings))

    @contextmanager
    def _locked(self) -> Iterator[Visit]:
        """Visit the directory alone."""
        try:
            with self._directory.locked(self.verb_timeout()) as handles:
                yield Visit(self._directory, handles, self.alias)
        except OSError as error:
            raise self._unavailable(error) from error

    @contextmanager
    def _reading(self) -> Iterator[Visit | None]:
        """Visit the directory beside others, or None if there is none."""
        try:
            handles = self._directory.handles(create=False)
            yield None if handles is None else Visit(self._directory, handles, self.alias)
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> BackendUnavailable:
        if not isinstance(error, TimeoutError):
            self._directory.forget()
        return BackendUnavailable(self.alias, f"directory {self._path}: {type(error).__name__}: {error}"[:300])

    # Stop flags.

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        with self._locked() as visit, visit.look(name) as entry:
            aim = 0
            if not keep:
                record = entry.record
                if record is None or not visit.is_live(entry) or record.kind == RESTING:
                    return None
                if fence is not None and record.fence != fence:
                    return None
                there = visit.flag(name, entry)
                if there is not None:
                    return there
                aim = record.fence
            expires_us = visit.now_us + ttl_ms * 1000 if ttl_ms else 0
            return self._write_flag(visit, name, Flag(aim, visit.now_us, expires_us, 0, reason, by))

    def _write_flag(self, visit: Visit, name: str, flag: Flag) -> StopFlag:
        news = visit.news()
        visit.write_news(news._replace(flags={**news.flags, name: flag}))
        return flag.read(name, self.alias, visit.epoch_us)

    def _see(self, visit: Visit, name: str) -> StopFlag:
        """Mark a living flag as seen by the holder."""
        return self._write_flag(visit, name, visit.news().flags[name]._replace(seen_us=visit.now_us))

    def _leave_word(self, visit: Visit, name: str, record: Record) -> None:
        """Let the holder of a run that an operator ends know."""
        news = visit.news()
        forced = {**news.forced, (name, record.fence): visit.now_us + record.ttl_ms * 1000}
        visit.write_news(news._replace(forced=forced))

    def flag(self, name: str) -> StopFlag | None:
        with self._reading() as visit:
            if visit is None or name not in visit.news().flags:
                return None
            with visit.look(name) as entry:
                return visit.flag(name, entry)

    def flags(self) -> list[StopFlag]:
        with self._reading() as visit:
            return [] if visit is None else self._flags(visit)

    def _flags(self, visit: Visit) -> list[StopFlag]:
        found = []
        for name in sorted(visit.news().flags):
            with visit.look(name) as entry:
                flag = visit.flag(name, entry)
            if flag is not None:
                found.append(flag)
        return found

    def clear_flag(self, name: str) -> StopFlag | None:
        with self._locked() as visit, visit.look(name) as entry:
            flag = visit.flag(name, entry)
            if flag is not None:
                news = visit.news()
                visit.write_news(news._replace(flags={at: other for at, other in news.flags.items() if at != name}))
            return flag

    def poll(self) -> list[Notice]:
        with self._reading() as visit:
            if visit is None:
                return []
            forced = [
                Notice(name, forced_fence=fence)
                for (name, fence), until_us in visit.news().forced.items()
                if until_us > visit.now_us
            ]
            return forced + [Notice(flag.name, flag) for flag in self._flags(visit)]

    # The rest.

    def close(self) -> None:
        try:
            self._directory.close(self._tidy)
        except OSError:
            self._directory.forget()  # it is of no use

    def _tidy(self, handles: Handles) -> bool:
        return file_cleaning.remove_freed(Visit(self._directory, handles, self.alias), all=True)

    def describe(self) -> str:
        return f"files in {self._path}"
