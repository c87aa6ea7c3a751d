"""What one request finds in the directory: the time, what all names share, and the leases that it looks at."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from django_claims.backends.file_directory import Directory, remove
from django_claims.backends.file_handles import Handles
from django_claims.backends.file_news import News, read_news, write_news
from django_claims.backends.file_records import (
    FREE,
    Garbage,
    Record,
    Slot,
    overwrite_slot,
    read_slots,
    unwrite_slot,
    write_slot,
)
from django_claims.backends.file_state import BOOT, STEP_US, State, epoch, now, read_state
from django_claims.holders import Holder
from django_claims.leases import HANDED_OVER, HELD, RESTING, Lease, StopFlag, read_lease, unreadable_lease
from django_claims.names import digest


class Entry:
    """The file of one name, as it was found. `record` is None in an empty file, and in an unreadable one."""

    __slots__ = ("expires_us", "fd", "file", "is_readable", "name", "record", "slot", "written")

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.file = file
        self.fd = -1
        self.slot: Slot | None = None
        self.record: Record | None = None
        self.is_readable = True
        self.expires_us: int | None = None  # None in an unreadable one: nobody can tell
        self.written: Slot | None = None

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Visit:
    """One request's look at the directory. What writes is for those who have the lock."""

    def __init__(self, directory: Directory, handles: Handles, alias: str) -> None:
        self.directory = directory
        self.handles = handles
        self.alias = alias
        self.state = read_state(handles)
        self.now_us = now()
        self._alive: dict[str, bool] = {}

    @property
    def epoch_us(self) -> int:
        return self.state.epoch_us

    # Leases.

    def look(self, name: str, *, write: bool = False) -> Entry:
        """Return the file of a name; its descriptor is open for who closes it."""
        entry = Entry(name, digest(name))
        self._read(entry, write=write)
        if entry.record is not None and entry.record.name != name:
            entry.record, entry.is_readable = None, False
        return entry

    def look_into(self, file: str) -> Entry | None:
        """Return a file by what it is called; None if it does not say which name it is for."""
        with Entry("", file) as entry:
            self._read(entry, write=False)
        if entry.slot is None:
            return None
        entry.name = entry.slot.text.partition(b"\n")[0].decode(errors="surrogateescape")
        return entry if digest(entry.name) == file else None

    def _read(self, entry: Entry, *, write: bool) -> None:
        try:
            entry.fd = self.handles.open_file(entry.file, self.handles.leases, write=write)
        except FileNotFoundError:
            return
        try:
            entry.slot = slot = read_slots(entry.fd)
            if slot is not None:
                entry.expires_us = slot.expires_us
                entry.is_readable = not slot.is_newer
                if entry.is_readable:
                    entry.record = Record.unpack(slot.text)
        except (Garbage, ValueError):
            entry.is_readable = False
        except BaseException:
            entry.close()
            raise

    def is_live(self, entry: Entry) -> bool:
        """Say whether a file holds a lease that shuts others out."""
        slot, record = entry.slot, entry.record
        if record is None or slot is None:
            if entry.is_readable:
                return False  # empty
            if slot is None:
                return True  # garbage, for as long as nobody forces it
            return slot.boot == BOOT and slot.expires_us > self.now_us
        if record.kind == FREE or slot.boot != BOOT or slot.expires_us <= self.now_us:
            return False
        if record.acquired_us > self.now_us:
            return False  # of another boot, where the platform does not tell boots apart
        return record.kind in (RESTING, HANDED_OVER) or self._is_kept(record)

    def _is_kept(self, record: Record) -> bool:
        """Say whether a process lives that a lease stands for."""
        alive = self._alive.get(record.process)
        if alive is None:
            alive = self._alive[record.process] = self.directory.is_alive(self.handles, record.process)
        if alive:
            return True
        try:
            holder = Holder.unpack(record.holder)
        except ValueError:
            return True
        # The one that acquired is dead. A program that runs under it may not be.
        return len(holder.processes) > 1 and not holder.is_dead()

    def all(self) -> Iterator[Entry]:
        """Look at all live leases of which a file tells the name."""
        for file in self.handles.names(self.handles.leases):
            entry = self.look_into(file)
            if entry is not None and self.is_live(entry):
                yield entry

    def lease(self, entry: Entry) -> Lease:
        """Return what a file says of a live lease."""
        slot, record, epoch = entry.slot, entry.record, self.state.epoch_us
        now_us = self.now_us + epoch
        expires_us = None if entry.expires_us is None else entry.expires_us + epoch
        try:
            if record is not None and slot is not None:
                flag = self.flag(entry.name, entry)
                return read_lease(
                    name=entry.name,
                    alias=self.alias,
                    fence=record.fence,
                    kind=record.kind,
                    holder=record.holder,
                    progress=record.progress,
                    flag=flag,
                    acquired_us=record.acquired_us + epoch,
                    renewed_us=record.renewed_us + epoch,
                    expires_us=slot.expires_us + epoch,
                    now_us=now_us,
                    ttl_ms=record.ttl_ms,
                    heartbeat_ms=record.heartbeat_ms,
                )
            return unreadable_lease(name=entry.name, alias=self.alias, now_us=now_us, expires_us=expires_us)
        except (ValueError, OverflowError):  # numbers that are no dates
            return unreadable_lease(name=entry.name, alias=self.alias, now_us=now_us, expires_us=None)

    def write(self, entry: Entry, record: Record, expires_us: int) -> None:
        """Put a record in the place of what was found."""
        if entry.fd < 0:
            leases = self.handles.leases
            entry.fd = self.handles.open_file(entry.file, leases, write=True, create=True)
        if entry.slot is None and not entry.is_readable:
            os.ftruncate(entry.fd, 0)
        entry.written = write_slot(entry.fd, entry.slot, BOOT, expires_us, record.packed())

    def push_back(self, entry: Entry, record: Record, expires_us: int) -> None:
        """Put a record in the place of the same run's. On a full disk too: what is held can be kept."""
        try:
            self.write(entry, record, expires_us)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or entry.slot is None:
                raise
            overwrite_slot(entry.fd, entry.slot, BOOT, expires_us, record.packed())

    def unwrite(self, entry: Entry) -> None:
        """Take a write back, as far as that can be done."""
        if entry.written is None:
            return
        try:
            if entry.fd < 0:
                entry.fd = self.handles.open_file(entry.file, self.handles.leases, write=True)
            unwrite_slot(entry.fd, entry.written)
        except OSError:
            pass  # its token is deleted later, or it ends with its TTL

    def end(self, entry: Entry) -> None:
        """Empty the file of a name. It is removed later: the next run may be near."""
        if entry.record is None:
            remove(entry.file, self.handles.leases)
            return
        gone = entry.record._replace(kind=FREE, process="", token="", holder="", progress="")
        try:
            self.write(entry, gone, 0)
        except OSError:  # no room
            remove(entry.file, self.handles.leases)
        else:
            freed = self.directory.freed
            freed.pop(entry.file, None)
            freed[entry.file] = None

    # What all names share.

    def next_fence(self) -> int:
        """Return a number above all that were given out, and see to it that it stays the last."""
        epoch_us, by_the_day = self.state.epoch_us, epoch()
        if abs(by_the_day - epoch_us) > STEP_US:
            epoch_us = by_the_day
        fence = max(self.state.fence + 1, self.now_us + epoch_us)
        self._write_state(epoch_us, fence, self.state.news)
        return fence

    def _write_state(self, epoch_us: int, fence: int, news: int) -> None:
        text = b"%d %d %d" % (epoch_us, fence, news)
        slot = write_slot(self.handles.lock, self.state.slot, BOOT, 0, text)
        self.state = State(epoch_us, fence, news, slot)

    def news(self) -> News:
        """Return the news. Read from the disk only if they are not those that this process has read last."""
        if not self.state.news:
            return News()
        known = self.directory.news
        key = (self.handles.identity, self.state.news)
        if known is not None and known[0] == key:
            news: News = known[1]
            return news
        news = read_news(self.handles, BOOT, self.state.epoch_us)
        if news.number == self.state.news:  # else they are of one who died before he had written them
            self.directory.news = (key, news)
        return news

    def flag(self, name: str, entry: Entry) -> StopFlag | None:
        """Return the live stop flag of a name whose file was looked at."""
        flag = self.news().flags.get(name)
        if flag is None or flag.is_over(self.now_us):
            return None
        record = entry.record
        if flag.fence and (
            record is None
            or record.fence != flag.fence
            or record.kind not in (HELD, HANDED_OVER)
            or not self.is_live(entry)
        ):
            return None
        return flag.read(name, self.alias, self.state.epoch_us)

    def write_news(self, news: News) -> None:
        """Let other news count. What is over is left out."""
        flags = {}
        for name, flag in news.flags.items():
            if flag.fence:
                with self.look(name) as entry:
                    record = entry.record
                    if record is None or record.fence != flag.fence or not self.is_live(entry):
                        continue
            if not flag.is_over(self.now_us):
                flags[name] = flag
        forced = {run: until for run, until in news.forced.items() if until > self.now_us}
        number = max(self.state.news, news.number) + 1
        # The number first: whoever finds it without its news reads the old ones, and again the next time.
        self._write_state(self.state.epoch_us, self.state.fence, number)
        write_news(self.handles, News(number, flags, forced), BOOT, self.state.epoch_us)
