"""
Leases in files: one machine, no server.

The record with its TTL is the truth. A lock that the kernel keeps for the holder's process,
and frees when that dies, ends the lease early; its scope is the processes that see the same
directory, in whatever container.

    A  holds, is killed             B  the kernel freed A's lock: granted at once
    A  holds, is stopped            B  A's lock is still there: refused until the TTL is over
    A  forks, dies; the child lives B  the child has closed what it inherited: granted at once
"""

from __future__ import annotations

from collections.abc import Sequence

from django_claims.backends import file_cleaning
from django_claims.backends.base import (
    AcquireRequest,
    Grant,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
)
from django_claims.backends.file_handing import OPEN, FileHanding, entries_closed
from django_claims.backends.file_records import Record
from django_claims.backends.file_visit import Entry, Visit
from django_claims.leases import HANDED_OVER, HELD, RESTING, Lease, LeasePage
from django_claims.names import matches

BATCH = 200
"""Leases that are renewed or released in one go, so that ten thousand do not keep others waiting."""


class FileBackend(FileHanding):
    """OPTIONS: `directory`, absolute, on a local disk, made at first use; `mode`, its permissions (0o700)."""

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        with self._locked() as visit, entries_closed() as entries:
            own = 0
            for request in requests:
                entry = visit.look(request.name, write=True)
                entries.append(entry)
                if len(requests) > OPEN:
                    entry.close()
                flag = visit.flag(request.name, entry)
                if flag is not None and flag.keep:
                    return Refusal(request.name, flag=flag)
                if not visit.is_live(entry):
                    continue
                record = entry.record
                if record is not None and record.kind == HELD and record.token == request.token:
                    own += 1
                    continue
                lease = visit.lease(entry)
                if record is None or record.kind != HELD or lease.fence != request.over_fence:
                    return Refusal(request.name, lease=lease)
            if own == len(requests):
                return self._grant_again(visit, requests, entries)
            grants = self._grant(visit, requests, entries)
            file_cleaning.clean_sometimes(visit)
            return grants

    def _grant(self, visit: Visit, requests: Sequence[AcquireRequest], entries: Sequence[Entry]) -> list[Grant]:
        process = visit.directory.this_process(visit.handles)
        fence, now = visit.next_fence(), visit.now_us
        try:
            for request, entry in zip(requests, entries, strict=True):
                record = Record(
                    name=request.name,
                    process=process,
                    token=request.token,
                    fence=fence,
                    acquired_us=now,
                    renewed_us=now,
                    ttl_ms=request.ttl_ms,
                    heartbeat_ms=request.heartbeat_ms,
                    kind=HELD,
                    holder=request.holder.packed,
                    progress="",
                )
                visit.write(entry, record, now + request.ttl_ms * 1000)
                if len(requests) > OPEN:
                    entry.close()
        except BaseException:
            for entry in entries:
                visit.unwrite(entry)
                entry.close()
            raise
        visit.directory.tokens.add(requests[0].token)
        return [Grant(fence, now + visit.epoch_us)] * len(requests)

    def _grant_again(self, visit: Visit, requests: Sequence[AcquireRequest], entries: Sequence[Entry]) -> list[Grant]:
        grants = []
        for request, entry in zip(requests, entries, strict=True):
            record = entry.record
            assert record is not None
            visit.write(entry, record._replace(renewed_us=visit.now_us), visit.now_us + request.ttl_ms * 1000)
            entry.close()
            grants.append(Grant(record.fence, record.acquired_us + visit.epoch_us))
        return grants

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        answers = []
        for at in range(0, len(requests), BATCH):
            with self._locked() as visit:
                for request in requests[at : at + BATCH]:
                    with visit.look(request.name, write=True) as entry:
                        answers.append(self._renew(visit, request, entry))
        return answers

    def _renew(self, visit: Visit, request: RenewRequest, entry: Entry) -> RenewAnswer:
        record, now = entry.record, visit.now_us
        is_live = visit.is_live(entry)
        if record is None or not is_live or record.token != request.token or record.kind != HELD:
            visit.directory.tokens.discard(request.token)
            if visit.news().forced.get((request.name, request.fence), 0) > now:
                return RenewAnswer(Renewal.FORCED)
            return RenewAnswer(Renewal.TAKEN if is_live else Renewal.GONE)
        progress = record.progress if request.progress is None else request.progress
        record = record._replace(renewed_us=now, ttl_ms=request.ttl_ms, progress=progress)
        visit.push_back(entry, record, now + request.ttl_ms * 1000)
        flag = visit.flag(request.name, entry)
        if flag is not None and request.seen and flag.seen_at is None:
            flag = self._see(visit, request.name)
        return RenewAnswer(Renewal.RENEWED, flag, now + visit.epoch_us)

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        answers = []
        for at in range(0, len(requests), BATCH):
            with self._locked() as visit:
                for request in requests[at : at + BATCH]:
                    with visit.look(request.name, write=True) as entry:
                        answers.append(self._release(visit, request, entry))
                file_cleaning.remove_freed(visit)
        return answers

    def _release(self, visit: Visit, request: ReleaseRequest, entry: Entry) -> Released:
        record = entry.record
        if not visit.is_live(entry):
            visit.directory.tokens.discard(request.token)
            return Released.GONE
        if record is None or record.token != request.token or record.kind not in (HELD, HANDED_OVER):
            return Released.NOT_OWNER
        if request.rest_ms:
            resting = record._replace(kind=RESTING, process="", token="", progress="")
            visit.write(entry, resting, visit.now_us + request.rest_ms * 1000)
        else:
            visit.end(entry)
        visit.directory.tokens.discard(request.token)
        return Released.RELEASED

    def held(self, name: str, token: str) -> bool:
        with self._reading() as visit:
            if visit is None or not token:
                return False
            with visit.look(name) as entry:
                return entry.record is not None and entry.record.token == token and visit.is_live(entry)

    def lease(self, name: str) -> Lease | None:
        with self._reading() as visit:
            if visit is None:
                return None
            with visit.look(name) as entry:
                return visit.lease(entry) if visit.is_live(entry) else None

    def leases(self, *, match: str, page: int, per_page: int) -> LeasePage:
        with self._reading() as visit:
            found = [] if visit is None else [entry for entry in visit.all() if matches(entry.name, match)]
            found.sort(key=lambda entry: entry.name)
            wanted = found[(page - 1) * per_page : page * per_page]
            leases = [] if visit is None else [visit.lease(entry) for entry in wanted]
        return LeasePage(leases=leases, total=len(found), page=page, per_page=per_page)

    def force_release(self, name: str, fence: int) -> bool:
        with self._locked() as visit, visit.look(name, write=True) as entry:
            if not visit.is_live(entry) or visit.lease(entry).fence != fence:
                return False
            if entry.record is not None:
                self._leave_word(visit, name, entry.record)
            visit.end(entry)
            return True
