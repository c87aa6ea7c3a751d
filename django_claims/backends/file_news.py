"""
Stop flags, and word of force-released runs: one file for all names.

Written anew and put in the place of the old one; read again only when the number that the
lock file has of it is another one. So a poll that finds no news has read one small file.
"""

from __future__ import annotations

import errno
import json
import os
from typing import Any, NamedTuple

from django_claims.backends.file_handles import Handles
from django_claims.clock import from_microseconds
from django_claims.leases import StopFlag

FORMAT = 1


class Flag(NamedTuple):
    """A stop flag; times by the boot clock, 0 for none. `fence` is 0 if the name is kept stopped."""

    fence: int
    requested_us: int
    expires_us: int
    seen_us: int
    reason: str
    by: str

    def is_over(self, now_us: int) -> bool:
        return bool(self.expires_us and self.expires_us <= now_us)

    def read(self, name: str, alias: str, epoch_us: int) -> StopFlag:
        def date(when_us: int) -> Any:
            return from_microseconds(when_us + epoch_us) if when_us else None

        return StopFlag(
            name=name,
            alias=alias,
            fence=self.fence or None,
            keep=not self.fence,
            reason=self.reason,
            by=self.by,
            requested_at=date(self.requested_us),
            expires_at=date(self.expires_us),
            seen_at=date(self.seen_us),
        )


class News(NamedTuple):
    """All of it. Never changed in place."""

    number: int = 0
    flags: dict[str, Flag] = {}
    forced: dict[tuple[str, int], int] = {}  # name and fence: until when there is word of it


def read_news(handles: Handles, boot: str, epoch_us: int) -> News:
    """Return the news, with times of another boot as this boot's clock has them. Raises OSError."""
    try:
        fd = handles.open_file("news", handles.top, write=False)
    except FileNotFoundError:
        return News()
    with os.fdopen(fd, "rb") as file:
        raw = file.read()
    try:
        found = json.loads(raw)
        if found["format"] > FORMAT:
            raise ValueError("it is of a newer version")
        by = 0 if found["boot"] == boot else found["epoch_us"] - epoch_us
        flags = {}
        for name, fence, requested, expires, seen, reason, who in found["flags"]:
            # Never 0, which means none; a time before the boot is negative.
            times = [int(when) and ((int(when) + by) or -1) for when in (requested, expires, seen)]
            flags[str(name)] = Flag(int(fence), times[0], times[1], times[2], str(reason), str(who))
        forced = {(str(name), int(fence)): int(until) + by for name, fence, until in found["forced"]}
        return News(int(found["number"]), flags, forced)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        # A flag that cannot be read is not "no flag".
        raise OSError(
            errno.EINVAL, f"'news' in it, which has the stop flags, cannot be read ({error}); move it away to go on"
        ) from error


def write_news(handles: Handles, news: News, boot: str, epoch_us: int) -> None:
    """Put other news in the place of what there is, whole or not at all. Under the lock. Raises OSError."""
    text = json.dumps(
        {
            "format": FORMAT,
            "number": news.number,
            "boot": boot,
            "epoch_us": epoch_us,
            "flags": [[name, *flag] for name, flag in news.flags.items()],
            "forced": [[name, fence, until] for (name, fence), until in news.forced.items()],
        }
    )
    try:
        os.unlink("news.new", dir_fd=handles.top)  # of one who died over it
    except FileNotFoundError:
        pass
    fd = handles.open_file("news.new", handles.top, write=True, new=True)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(fd)  # a name that is kept stopped should be so after a power cut
        os.rename("news.new", "news", src_dir_fd=handles.top, dst_dir_fd=handles.top)
    except BaseException:
        os.unlink("news.new", dir_fd=handles.top)
        raise
