"""
The index of names, for listing: in parts, each a record that is compared and set.

It may miss names: a part may be evicted, or full. A name is noted when it is granted after a
while without a grant, and now and then besides; what has no lease and was not granted for an
hour is forgotten when another name of its part is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django_claims.backends.cache_keys import Keys
from django_claims.backends.cache_links import Item, Link, Write
from django_claims.backends.cache_records import pack_index, read_index
from django_claims.logs import get_logger

logger = get_logger(__name__)

MOST_BYTES = 500_000
"""In one part. Memcached takes a million, whatever its client adds to them."""
NOTE_AFTER_US = 1800 * 1_000_000
FORGET_AFTER_S = 3600
_LOOK_AT = 100
_TRIES = 50


def is_due(fence: int, last: int) -> bool:
    """Say whether a name that was granted now, and last with another fence, should be noted. Fences tell the time."""
    return fence - last > NOTE_AFTER_US or fence % 16 == 0


def number(item: Item | None) -> int:
    """Return the number that a value stands for, and 0 for anything else."""
    return int(item.value) if item and len(item.value) < 20 and item.value.isdigit() else 0


def note(link: Link, keys: Keys, names: Iterable[str], now_us: int) -> None:
    """Put names into the index, which may be left without them if many write to it at the same time."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(keys.part(name), []).append(name)
    for part, wanted in parts.items():
        for _ in range(_TRIES):
            item = link.read([part]).get(part)
            known = read_index(item.value if item else None)
            _forget_the_dead(link, keys, known, now_us)
            known.update(dict.fromkeys(wanted, now_us // 1_000_000))
            packed = pack_index(known)
            if len(packed) > MOST_BYTES:
                logger.warning("Index full: some claims will not be listed part=%s", part)
                break
            if link.put([Write(part, packed, item, 0)])[0]:
                break
            link.hurry()


def _forget_the_dead(link: Link, keys: Keys, known: dict[str, int], now_us: int) -> None:
    now = now_us // 1_000_000
    old = [name for name, seen in known.items() if now - seen > FORGET_AFTER_S][:_LOOK_AT]
    if not old:
        return
    found = link.read([keys.lease(name) for name in old] + [keys.fence(name) for name in old])
    for name in old:
        granted = number(found.get(keys.fence(name))) // 1_000_000
        if keys.lease(name) in found or now - granted <= FORGET_AFTER_S:
            known[name] = now
        else:
            del known[name]


def names_of(link: Link, keys: Keys) -> Sequence[str]:
    """Return the names in the index, dead ones too, in order."""
    return sorted(name for item in link.read(keys.parts).values() for name in read_index(item.value))
