"""
A file of two slots, and the lease that stands in one of them.

A write goes to the slot that does not count, and makes it count once it is whole. Cut short
(a full disk, a process killed in the middle) it leaves what was there before.

    slot:   1 crc32 length sequence boot expires_us
            text
    lease:  name
            process token fence acquired_us renewed_us ttl_ms heartbeat_ms kind
            holder, one line of JSON
            progress, one line of JSON or nothing

Times are microseconds of a clock that begins with the boot. In a newer
format the first line of slot and lease keep their meaning, whatever follows: whose lease it
is and until when it lives can be read.
"""

from __future__ import annotations

import errno
import os
import zlib
from typing import NamedTuple

SLOT = 65536
"""The most bytes in a slot. The second one begins there: the hole between them takes no room."""

READ = 2048
FREE = "f"
"""The kind of a record that holds nothing: the file is kept for the next run, and cleaned up later."""


class Garbage(Exception):
    """A file that holds something, and no slot of ours."""


class Slot(NamedTuple):
    """What counts in a file."""

    number: int
    sequence: int
    boot: str
    expires_us: int
    text: bytes
    is_newer: bool = False  # of a newer format: nobody here can read the text


def read_slots(fd: int) -> Slot | None:
    """Return the slot that counts, or None in an empty file. Raises Garbage."""
    for _ in range(3):  # a reader without the lock may come upon two writes in a row
        heads = [(0, os.pread(fd, READ, 0)), (1, os.pread(fd, READ, SLOT))]
        written = [(number, head) for number, head in heads if head and (head[0] or head.strip(b"\0"))]
        if len(written) == 2 and _sequence(heads[1][1]) > _sequence(heads[0][1]):
            written.reverse()
        for number, head in written:
            slot = _parse(fd, number, head)
            if slot is not None:
                return slot
        if not written:
            return None
    raise Garbage


def _sequence(head: bytes) -> int:
    try:
        return int(head.split(b" ", 4)[3])
    except (ValueError, IndexError):
        return -1


def _parse(fd: int, number: int, head: bytes) -> Slot | None:
    line, _, text = head.partition(b"\n")
    try:
        kind, crc, length, sequence, boot, expires = line.split(b" ")[:6]
        if kind != b"1":
            newer = kind.isdigit() and int(kind) > 1
            return Slot(number, int(sequence), boot.decode(), int(expires), text, True) if newer else None
        missing = int(length) - len(text)
        if missing > 0 and len(head) == READ:
            text += os.pread(fd, min(missing, SLOT), number * SLOT + READ)
        text = text[: int(length)]
        about = zlib.crc32(b"%b %b %b" % (sequence, boot, expires))
        if len(text) == int(length) and int(crc, 16) == zlib.crc32(text, about):
            return Slot(number, int(sequence), boot.decode(), int(expires), text)
    except ValueError:
        pass
    return None


def write_slot(fd: int, over: Slot | None, boot: str, expires_us: int, text: bytes) -> Slot:
    """Write what counts from now on, and return it. Raises OSError, and then nothing has changed."""
    number, sequence = (0, 1) if over is None else (1 - over.number, over.sequence + 1)
    return _write(fd, number, sequence, boot, expires_us, text)


def overwrite_slot(fd: int, over: Slot, boot: str, expires_us: int, text: bytes) -> Slot:
    """Write over the slot that counts, which has its room on the disk. Cut short, it is lost: a last resort."""
    return _write(fd, over.number, over.sequence + 1, boot, expires_us, text)


def _write(fd: int, number: int, sequence: int, boot: str, expires_us: int, text: bytes) -> Slot:
    about = b"%d %b %d" % (sequence, boot.encode(), expires_us)
    data = b"1 %08x %d %b\n%b" % (zlib.crc32(text, zlib.crc32(about)), len(text), about, text)
    if len(data) > SLOT:
        raise OSError(errno.EFBIG, f"a record should have at most {SLOT} bytes, not {len(data)}")
    if os.pwrite(fd, data, number * SLOT) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return Slot(number, sequence, boot, expires_us, text)


def unwrite_slot(fd: int, slot: Slot) -> None:
    """Take a write back. It needs no room on the disk: the slot has it."""
    os.pwrite(fd, bytes(READ), slot.number * SLOT)


class Record(NamedTuple):
    """One run of one name, or that nobody runs."""

    name: str
    process: str  # the file that the holder's process keeps locked as long as it lives
    token: str
    fence: int
    acquired_us: int
    renewed_us: int
    ttl_ms: int
    heartbeat_ms: int
    kind: str
    holder: str
    progress: str

    def __repr__(self) -> str:
        return f"Record({self.name!r}, fence={self.fence}, kind={self.kind!r})"  # an owner token is a password

    def packed(self) -> bytes:
        return (
            f"{self.name}\n{self.process or '-'} {self.token or '-'} {self.fence} {self.acquired_us} {self.renewed_us} "
            f"{self.ttl_ms} {self.heartbeat_ms} {self.kind}\n{self.holder}\n{self.progress}"
        ).encode(errors="surrogatepass")

    @classmethod
    def unpack(cls, text: bytes) -> Record:
        """Read what packed() wrote. Raises ValueError for anything else."""
        name, about, holder, progress = text.decode(errors="surrogatepass").split("\n", 3)
        process, token, fence, acquired, renewed, ttl, heartbeat, kind = about.split(" ")[:8]
        if not process.isalnum() and process != "-":  # it names a file
            raise ValueError("not a process")
        return cls(
            name,
            "" if process == "-" else process,
            "" if token == "-" else token,
            int(fence),
            int(acquired),
            int(renewed),
            int(ttl),
            int(heartbeat),
            kind,
            holder,
            progress,
        )
