"""Handing over in files: the lease then names no process, and nobody's death ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django_claims.backends.base import Adopted, AdoptRequest, HandOverRequest
from django_claims.backends.file_flags import FileFlags
from django_claims.backends.file_records import Record
from django_claims.backends.file_visit import Entry, Visit
from django_claims.leases import HANDED_OVER, HELD

OPEN = 50
"""Files that one request keeps open."""


class FileHanding(FileFlags):
    """The part of FileBackend that hands over and adopts."""

    supports_hand_over = True

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        before = {(HELD, requests[0].token), (HANDED_OVER, requests[0].ticket)}
        with self._locked() as visit, entries_closed() as entries:
            if not self._look_at_all(visit, [request.name for request in requests], before, entries):
                return False
            for request, entry in zip(requests, entries, strict=True):
                self._write_over(
                    visit,
                    entries,
                    entry,
                    request.valid_ms,
                    process="",  # nobody's death ends it
                    token=request.ticket,
                    kind=HANDED_OVER,
                )
            visit.directory.tokens.discard(requests[0].token)
            return True

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        before = {(HANDED_OVER, requests[0].ticket), (HELD, requests[0].token)}
        with self._locked() as visit, entries_closed() as entries:
            if not self._look_at_all(visit, [request.name for request in requests], before, entries):
                return None
            process, found = visit.directory.this_process(visit.handles), []
            for request, entry in zip(requests, entries, strict=True):
                record = self._write_over(
                    visit,
                    entries,
                    entry,
                    request.ttl_ms,
                    process=process,
                    token=request.token,
                    kind=HELD,
                    holder=request.holder.packed,
                    heartbeat_ms=request.heartbeat_ms,
                )
                flag = visit.flag(request.name, entry)
                since, now = record.acquired_us + visit.epoch_us, visit.now_us + visit.epoch_us
                found.append(Adopted(record.fence, since, now, record.progress, flag))
            visit.directory.tokens.add(requests[0].token)
            return found

    def _look_at_all(
        self, visit: Visit, names: Sequence[str], before: set[tuple[str, str]], entries: list[Entry]
    ) -> bool:
        """Look at the files of all names; say whether each has a live lease of one of the kinds and tokens."""
        for name in names:
            entry = visit.look(name, write=True)
            entries.append(entry)
            if len(names) > OPEN:
                entry.close()
            record = entry.record
            if record is None or not visit.is_live(entry) or (record.kind, record.token) not in before:
                return False
        return True

    def _write_over(self, visit: Visit, entries: list[Entry], entry: Entry, ttl_ms: int, **changes: Any) -> Record:
        """Change one of several leases; if that fails, take all of them back."""
        record = entry.record
        assert record is not None
        record = record._replace(renewed_us=visit.now_us, ttl_ms=ttl_ms, **changes)
        try:
            visit.write(entry, record, visit.now_us + ttl_ms * 1000)
            if len(entries) > OPEN:
                entry.close()
        except BaseException:
            for other in entries:
                visit.unwrite(other)
                other.close()
            raise
        return record


@contextmanager
def entries_closed() -> Iterator[list[Entry]]:
    """Close what is in the list at the end."""
    entries: list[Entry] = []
    try:
        yield entries
    finally:
        for entry in entries:
            entry.close()
