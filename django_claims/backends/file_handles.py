"""
The open directory: descriptors by which everything in it is reached, and nothing outside.

    lock         locked for the moment of each change; holds what all names share
    news         stop flags, and word of force-released runs
    leases/      one file a name, called by the name's digest
    processes/   one file a process that holds, locked as long as that lives

Links are not followed, and what belongs to a stranger is not believed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class Handles:
    """Descriptors of one directory. Closed when nobody uses them any more, or by close()."""

    def __init__(self, path: str, mode: int, *, create: bool) -> None:
        """Open the directory. Raises OSError; FileNotFoundError if it is not there and should not be made."""
        self._fds: list[int] = []
        try:
            if create:
                _make(path, mode)
            self.top = self._keep(os.open(path, _DIRECTORY | _SAFE))
            about = os.fstat(self.top)
            self._owner, self._group, self._mode = about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)
            self._check_directory()
            self.leases = self._open_below("leases", create)
            self.processes = self._open_below("processes", create)
            self.lock = self._keep(self.open_file("lock", self.top, write=True, create=create))
            about = os.fstat(self.lock)
            self.identity = (about.st_dev, about.st_ino)
        except BaseException:
            self.close()
            raise

    def _keep(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def _check_directory(self) -> None:
        if self._mode & 0o002:
            raise PermissionError(errno.EPERM, f"everybody may write there ({oct(self._mode)})")
        is_ours = self._owner in (os.geteuid(), 0) or os.geteuid() == 0 or self._mode & 0o020
        if not is_ours:
            raise PermissionError(errno.EPERM, f"it belongs to another user (uid {self._owner})")

    def _open_below(self, name: str, create: bool) -> int:
        if create:
            try:
                os.mkdir(name, self._mode, dir_fd=self.top)
            except FileExistsError:
                pass
            else:
                fd = os.open(name, _DIRECTORY | _SAFE, dir_fd=self.top)
                try:
                    self._adopt(fd, self._mode)
                finally:
                    os.close(fd)
        fd = self._keep(os.open(name, _DIRECTORY | _SAFE, dir_fd=self.top))
        self._check(fd, name, stat.S_ISDIR)
        return fd

    def open_file(self, name: str, below: int, *, write: bool, create: bool = False, new: bool = False) -> int:
        """Return a descriptor of a file that is what it seems to be. Raises OSError."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | _SAFE
        fd = -1
        try:
            if not new:
                fd = os.open(name, flags, dir_fd=below)
        except FileNotFoundError:
            if not create:
                raise
        if fd < 0:
            try:
                fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, self._mode & 0o600, dir_fd=below)
            except FileExistsError:
                if new:
                    raise
                fd = os.open(name, flags, dir_fd=below)
            else:
                self._adopt(fd, self._mode & 0o666)
        try:
            self._check(fd, name, stat.S_ISREG)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def names(self, below: int) -> list[str]:
        """Return what is in the directory or below. Each listing has a place of its own to be at."""
        fd = os.open(".", _DIRECTORY | _SAFE, dir_fd=below)
        try:
            with os.scandir(fd) as found:
                return [entry.name for entry in found]
        finally:
            os.close(fd)

    def _adopt(self, fd: int, mode: int) -> None:
        """Give a new file what the directory has: whoever may use that may use all of it, whatever the umask."""
        if os.geteuid() == 0 and self._owner != 0:
            os.fchown(fd, self._owner, self._group)
        if self._mode & 0o070 or stat.S_ISDIR(os.fstat(fd).st_mode):
            os.fchmod(fd, mode)

    def _check(self, fd: int, name: str, is_right_kind: object) -> None:
        about = os.fstat(fd)
        kind_is_right = stat.S_ISREG(about.st_mode) if is_right_kind is stat.S_ISREG else stat.S_ISDIR(about.st_mode)
        if not kind_is_right:
            raise OSError(errno.EINVAL, f"{name!r} in it is not what it should be ({stat.filemode(about.st_mode)})")
        if about.st_uid not in (self._owner, os.geteuid(), 0) and not self._mode & 0o020:
            raise PermissionError(errno.EPERM, f"{name!r} in it belongs to another user (uid {about.st_uid})")
        if is_right_kind is stat.S_ISREG and about.st_nlink > 1:
            raise OSError(errno.EMLINK, f"{name!r} in it has another name somewhere else")

    def is_current(self, lock_path: str) -> bool:
        """Say whether the path still leads here."""
        try:
            about = os.lstat(lock_path)
        except FileNotFoundError:
            return False
        return (about.st_dev, about.st_ino) == self.identity

    def close(self) -> None:
        fds, self._fds = self._fds, []
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _make(path: str, mode: int) -> None:
    """Make the directory if it is not there; only itself, since what should be above may be a disk not mounted yet."""
    try:
        Path(path).mkdir(mode)
    except FileExistsError:
        return
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "the directory above it does not exist: make that first") from error
    Path(path).chmod(mode)  # whatever the umask
