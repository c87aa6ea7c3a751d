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
        best, broken = None, False
        for number in (0, 1):
            head = os.pread(fd, READ, number * SLOT)
            if not head or (not head[0] and not head.strip(b"\0")):
                continue
            slot = _parse(fd, number, head)
            if slot is None:
                broken = True
            elif best is None or slot.sequence > best.sequence:
                best = slot
        if best is not None or not broken:
            return best
    raise Garbage


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
