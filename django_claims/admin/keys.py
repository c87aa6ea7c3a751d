"""
What a claim is called in addresses, forms and the admin's log: 'alias:name'.

A name of 500 characters can take 9 letters each in an address, more than servers let pass:
a long one is called by its digest there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import quote as url_quote

from django.contrib.admin.utils import quote

from django_claims import conf
from django_claims.names import digest

LONGEST = 600
"""Letters of a key in an address."""

_DIGEST = re.compile(r"sha256=([0-9a-f]{64})")


def key_of(alias: str, name: str) -> str:
    """Return the key of a claim, short enough for an address."""
    if _DIGEST.fullmatch(name) or (len(name) > 60 and len(url_quote(quote(name))) > LONGEST):
        return f"{alias}:sha256={digest(name)}"
    return f"{alias}:{name}"


def split(key: str) -> tuple[str, str] | None:
    """Return alias and name (or what stands for it) of a key, or None if there is no such alias."""
    for alias in sorted(conf.aliases(), key=len, reverse=True):  # an alias may hold a colon
        if key.startswith(f"{alias}:"):
            return alias, key[len(alias) + 1 :]
    return None


def find(key: str, known_names: Callable[[str], Iterable[str]]) -> tuple[str, str] | None:
    """Return alias and name of a key; known_names(alias) is asked for what a digest may stand for."""
    parts = split(key)
    if parts is None:
        return None
    alias, name = parts
    by_digest = _DIGEST.fullmatch(name)
    if by_digest:
        name = next((known for known in known_names(alias) if digest(known) == by_digest[1]), "")
    return (alias, name) if name else None
