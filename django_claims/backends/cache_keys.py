"""Which key of a cache holds what. Names are digested: memcached takes 250 bytes without blanks."""

from __future__ import annotations

import functools
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from zlib import crc32

INDEX_PARTS = 64
_FIT = re.compile(r"[!-~]{1,180}")
"""What every memcached takes, and every client, with some room for a prefix of the client's own."""


@functools.lru_cache(2048)
def digest(text: str) -> str:
    """Return a name in 43 letters. No two names that anybody will ever find have the same."""
    return urlsafe_b64encode(sha256(text.encode(errors="surrogatepass")).digest()).decode().rstrip("=")


class Keys:
    """The keys of one alias; `rule` is the cache's, and if it only puts something before a key, `head` is that."""

    def __init__(self, rule: Callable[[str], str], head: str | None = None) -> None:
        self._rule = rule
        self._head = f"{head}claims:" if head is not None and _FIT.fullmatch(head + "claims:" + "x" * 50) else None

    def _make(self, key: str) -> str:
        if self._head is not None:
            return self._head + key
        made = self._rule("claims:" + key)
        # A long prefix, or one with blanks: its digest is as good, for memcached and for nobody's eyes.
        return made if _FIT.fullmatch(made) else "claims:" + digest(made)

    def lease(self, name: str) -> str:
        return self._make("lease:" + digest(name))

    def fence(self, name: str) -> str:
        return self._make("fence:" + digest(name))

    def part(self, name: str) -> str:
        """Return the part of the index that has the name."""
        return self._make(f"index:{crc32(name.encode(errors='surrogatepass')) % INDEX_PARTS}")

    @property
    def parts(self) -> list[str]:
        return [self._make(f"index:{number}") for number in range(INDEX_PARTS)]

    @property
    def news(self) -> str:
        return self._make("news")
