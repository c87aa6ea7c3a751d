"""
Sets aside what this process holds, stores in memory and has running, for the time of a block.

The one place that reaches into the other modules' state, so that none of them needs to know of tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django_claims import keeper, registry, shutdown, transactions
from django_claims.backends import memory_store
from django_claims.deadlines import deadlines
from django_claims.heartbeat import Heartbeat, Schedule, all_heartbeats

# What a block begins without: where it is kept, and what makes an empty one.
_STATE: list[tuple[Any, str, Callable[[], Any]]] = [
    (registry, "_holds", dict),
    (registry, "_by_name", dict),
    (keeper, "_keepers", dict),
    (deadlines, "_due", Schedule),
    (deadlines, "_errands", list),
    (deadlines, "heartbeat", lambda: Heartbeat("deadlines", deadlines._work)),
    (shutdown, "_draining", str),
    (transactions, "_warned", set),
]


@contextmanager
def set_aside() -> Iterator[None]:
    """
    Begin with nothing, and put back what was there at the end.

    Holds from before rest meanwhile: they are renewed again after the block, and are lost if that
    comes after their local deadline.
    """
    resting = all_heartbeats()
    for heartbeat in resting:
        heartbeat.rest()
    before = [getattr(where, name) for where, name, _ in _STATE]
    stores = dict(memory_store.stores)
    here = registry._here.get()
    try:
        for where, name, empty in _STATE:
            setattr(where, name, empty())
        memory_store.stores.clear()
        registry._here.set(None)
        yield
    finally:
        for (where, name, _), value in zip(_STATE, before, strict=True):
            setattr(where, name, value)
        memory_store.stores.clear()
        memory_store.stores.update(stores)
        registry._here.set(here)
        for heartbeat in resting:
            heartbeat.resume()
