"""
Which directories can hold claims: judged by the path and the mount table, before anything is opened.

A directory that not all processes of the project see as one, or that is emptied or replaced
beside them, would let two of them hold one claim.
"""

from __future__ import annotations

import os
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from django_claims.conf import AliasSettings
from django_claims.exceptions import InvalidClaimsSetting

MOUNTS = Path("/proc/self/mountinfo")

NETWORK = frozenset(
    [
        "9p",
        "acfs",
        "afs",
        "auristorfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fakeowner",
        "fuse",
        "fuseblk",
        "gfs2",
        "glusterfs",
        "gpfs",
        "grpcfuse",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "osxfs",
        "panfs",
        "prl_fs",
        "pvfs2",
        "shfs",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "vmhgfs",
    ]
)
"""File systems whose locks other machines, or a program in between, may answer for."""


def temporary_places() -> list[str]:
    """Return the directories that are cleaned up by others, or differ by service. Tests that need one patch this."""
    return [tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"]


def checked_directory(settings: AliasSettings) -> str:
    """Return the real path of OPTIONS['directory']. Raises InvalidClaimsSetting."""
    where = f"CLAIMS[{settings.alias!r}]['OPTIONS']['directory']"
    given = settings.options.get("directory")
    if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str) or not os.fspath(given):
        raise InvalidClaimsSetting(
            f"{where} should be an absolute path that is the same for all processes, not {given!r}. "
            f"For example '/var/lib/myproject/claims'."
        )
    path = os.fspath(given)
    if not Path(path).is_absolute() or "\0" in path:
        raise InvalidClaimsSetting(
            f"{where} should be an absolute path, not {path!r}: a relative one would differ by working directory."
        )
    # By its mount first: a look at links below a file system that does not answer would hang.
    for form in (os.path.normpath(path), real := os.path.realpath(path)):
        problem = _mount_problem(form) or _path_problem(form)
        if problem:
            raise InvalidClaimsSetting(
                f"{where} should not be {path!r}{'' if form == path else f' ({form!r})'}: {problem} "
                f"Choose a fixed directory on a local disk, for example '/var/lib/myproject/claims'; for several "
                f"machines use the Redis or the database backend."
            )
    return real


def checked_mode(settings: AliasSettings) -> int:
    """Return OPTIONS['mode']. Raises InvalidClaimsSetting."""
    mode: Any = settings.options.get("mode", 0o700)
    is_number = isinstance(mode, int) and not isinstance(mode, bool)
    if is_number and 0 <= mode <= 0o7777 and mode & 0o700 == 0o700 and not mode & 0o002:
        return int(mode)
    shown = oct(mode) if is_number else repr(mode)
    raise InvalidClaimsSetting(
        f"CLAIMS[{settings.alias!r}]['OPTIONS']['mode'] should be permissions of a directory with all rights for its "
        f"owner and no right to write for everybody, such as 0o700 or 0o770, not {shown}."
    )


def _path_problem(path: str) -> str:
    for place in temporary_places():
        if any(_is_within(path, form) for form in (os.path.normpath(place), os.path.realpath(place))):
            return (
                f"{place!r} is for temporary files, is cleaned up by others, and may be another one for each service."
            )
    parts = Path(path).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return "it is part of an installed package, which the next install replaces."
    for above, below in pairwise(parts):
        if above == "releases" and re.fullmatch(r"\d{8,}[\d._-]*|[0-9a-f]{7,40}", below):
            return f"'releases/{below}' is one release, and during a deploy two of them would not see each other."
    return ""


def _mount_problem(path: str) -> str:
    kind, point = _mount_of(path)
    if kind in NETWORK or kind.startswith("fuse."):
        return f"it lies on {point!r}, a network or FUSE file system ({kind}), whose locks cannot be relied on."
    return ""


def _mount_of(path: str) -> tuple[str, str]:
    """Return the type and the mount point of the file system that a path lies on; '' if nobody can tell."""
    found = ("", "")
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return found
    for line in lines:
        words, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words.split(" ")[4])
        if _is_within(path, point) and len(point) >= len(found[1]):  # of two on one point the later covers the first
            found = (after.split(" ")[0], point)
    return found


def _is_within(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")
