"""
One directory of claims, as all threads of this process share it.

Changes are made one at a time, under a lock that the kernel frees if the process dies. The
process that holds something keeps one more lock, on a file of its own, for as long as it
lives: a lease whose process has lost that lock is over, whatever its TTL says.
"""

from __future__ import annotations

import errno
import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django_claims.backends.file_handles import Handles
from django_claims.backends.shared import OnePerKey
from django_claims.clock import clock

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: the backend says so
    fcntl = None

PROCESSES_CLEANED = 50
_FORK_WAITS = 2.0


class Directory:
    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self._mode = mode
        self._lock_path = f"{path}/lock"
        self.freed: dict[str, None] = {}  # files that this process has emptied, and may remove; the last one last
        self.clean_at = clock()  # when to look for what dead processes left
        self.news: Any = None  # the last that was read, for those who find it unchanged
        self._start_anew()

    def _start_anew(self) -> None:
        self._lock = threading.RLock()  # which knows its thread: see locked()
        self._user = 0  # the thread that is inside
        self._handles: Handles | None = None
        self._process: tuple[str, int, tuple[int, int]] | None = None  # name, descriptor, of which directory
        self.tokens: set[str] = set()  # granted to this process, and not known to have ended
        self.freed.clear()

    # What is open.

    def handles(self, *, create: bool) -> Handles | None:
        """Return what is open of the directory that the path leads to now; None if there is none."""
        handles = self._handles
        if handles is not None and handles.is_current(self._lock_path):
            return handles
        try:
            self._handles = handles = Handles(self.path, self._mode, create=create)
        except FileNotFoundError:
            self._handles = None
            if create or not Path(self.path).parent.is_dir():
                raise
            return None
        return handles

    def forget(self) -> None:
        """Open everything anew the next time: something was not as it should be."""
        self._handles = None

    @contextmanager
    def locked(self, seconds: float) -> Iterator[Handles]:
        """Keep all others out, threads and processes. Raises TimeoutError, or another OSError."""
        ends = clock() + seconds
        me = threading.get_ident()
        if "gevent.monkey" in sys.modules and type(self._lock) is not type(threading.RLock()):
            self._lock = threading.RLock()  # threads have become greenlets, all of which are one to a lock of threads
        if self._user == me:  # a signal handler came in
            raise OSError(errno.EDEADLK, "this very thread is in the middle of another request")
        handles = None
        try:
            if not self._lock.acquire(timeout=max(seconds, 0.0)):
                raise TimeoutError(errno.ETIMEDOUT, f"other threads of this process kept it busy for {seconds:.1f} s")
            self._user = me
            handles = self._lock_file(ends, seconds)
            yield handles
        finally:
            # A signal handler may raise after any call, also after one that has just locked. So no call comes
            # before the release but in a try of its own, and the lock itself says whether this thread has it.
            try:
                used = handles if handles is not None else self._handles
                if self._user == me and used is not None:
                    fcntl.flock(used.lock, fcntl.LOCK_UN)
            finally:
                if self._user == me:
                    self._user = 0
                try:
                    self._lock.release()
                except RuntimeError:  # it was not had
                    pass

    def _lock_file(self, ends: float, seconds: float) -> Handles:
        pause = 0.0002
        while True:
            handles = self._handles or self.handles(create=True)
            assert handles is not None
            try:
                fcntl.flock(handles.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left = ends - clock()
                if left <= 0:
                    raise TimeoutError(
                        errno.ETIMEDOUT, f"another process kept it locked for {seconds:.1f} s; is one stopped?"
                    ) from None
                time.sleep(min(pause, left))
                pause = min(pause * 1.5, 0.005)
                continue
            if handles.is_current(self._lock_path):
                return handles
            self._handles = None  # it was removed, and this is the lock of a ghost

    # Who lives.

    def this_process(self, handles: Handles) -> str:
        """Return the name of the file that this process keeps locked. Under the lock. Raises OSError."""
        if self._process is not None and self._process[2] == handles.identity:
            return self._process[0]
        self._drop_process()
        clean_processes(handles)
        name = secrets.token_hex(8)
        fd = handles.open_file(name, handles.processes, write=True, new=True)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        self._process = (name, fd, handles.identity)
        return name

    def is_alive(self, handles: Handles, process: str) -> bool:
        """Say whether the process that a lease names still has its lock."""
        if self._process is not None and self._process[0] == process:
            return self._process[2] == handles.identity
        return is_locked(handles, process)

    def _drop_process(self) -> None:
        """Let go of the lock that says that this process lives."""
        if self._process is not None:
            os.close(self._process[1])
            self._process = None

    def close(self, tidy: Callable[[Handles], bool]) -> None:
        """Tidy up, a part at a time; close what nobody needs now. What this process holds needs its lock."""
        if self._handles is None or self._user == threading.get_ident():
            return
        more = True
        while more and Path(self._lock_path).exists():
            with self.locked(0.5) as handles:
                more = tidy(handles)
                if not more and self._process is not None and not self.tokens:
                    if self._process[2] == handles.identity:
                        remove(self._process[0], handles.processes)
                    self._drop_process()
        self._handles = None

    # Fork.

    def before_fork(self) -> bool:
        """Wait for the end of a request of another thread, so that no child inherits its lock."""
        return self._user != threading.get_ident() and self._lock.acquire(timeout=_FORK_WAITS)

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Close what is the parent's: the kernel frees its locks once no process has them open."""
        handles = self._handles
        if handles is not None:
            handles.close()
        self._drop_process()
        self._start_anew()


def is_locked(handles: Handles, process: str) -> bool:
    try:
        fd = handles.open_file(process, handles.processes, write=False)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove(name: str, below: int) -> None:
    try:
        os.unlink(name, dir_fd=below)
    except FileNotFoundError:
        pass


def clean_processes(handles: Handles) -> None:
    """Remove the files of processes that have ended: each new one removes more than it adds."""
    names = handles.names(handles.processes)
    for name in random.sample(names, min(len(names), PROCESSES_CLEANED)):
        if not is_locked(handles, name):
            remove(name, handles.processes)


_directories: OnePerKey[Directory] = OnePerKey()
_paused: list[Directory] = []


def directory_of(path: str, mode: int) -> Directory:
    """Return a directory, of which this process has one object."""
    return _directories.get((path, mode), lambda: Directory(path, mode))


def _before_fork() -> None:
    _paused.extend([directory for directory in _directories.all() if directory.before_fork()])


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    _paused.clear()
    for directory in _directories.all():
        directory.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
