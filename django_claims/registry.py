"""
The holds of this process, by weak reference: who forgets a hold, loses it.

Also which of them were taken by the code that runs now: by context, so that a thread and
an asyncio task each see their own, and code called through sync_to_async sees its caller's.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextvars import ContextVar
from typing import Any, Protocol


class AnyHold(Protocol):
    """What the registry and the keeper need to know of a hold."""

    names: tuple[str, ...]
    token: str

    @property
    def alias(self) -> str: ...

    @property
    def is_open(self) -> bool: ...  # neither released nor lost

    def fork(self) -> None: ...


lock = threading.RLock()
"""
Guards small changes to holds (open to lost or released), for an instant each.

Reentrant, since a signal handler may come in anywhere in its own thread.
"""

_holds: dict[str, weakref.ref[Any]] = {}
_here: ContextVar[tuple[weakref.ref[Any], ...]] = ContextVar("django_claims_holds", default=())


def add(hold: AnyHold) -> None:
    """Make a hold known to the process."""
    _holds[hold.token] = weakref.ref(hold)


def remove(token: str) -> None:
    _holds.pop(token, None)


def get(token: str) -> Any:
    """Return the hold with a token, or None if it is gone."""
    ref = _holds.get(token)
    return None if ref is None else ref()


def all_holds() -> list[Any]:
    """Return all holds of the process that are not released yet."""
    return [hold for ref in list(_holds.values()) if (hold := ref()) is not None]


def enter(hold: AnyHold) -> None:
    """Make a hold the innermost one of this context."""
    _here.set((*(ref for ref in _here.get() if _is_open(ref())), weakref.ref(hold)))


def current() -> Any:
    """Return the innermost open hold of this context, or None."""
    return next((hold for ref in reversed(_here.get()) if (hold := ref()) is not None and hold.is_open), None)


def held_here(alias: str, names: tuple[str, ...]) -> bool:
    """Say whether this context has an open hold of one of the names."""
    for ref in _here.get():
        hold = ref()
        if hold is not None and hold.is_open and hold.alias == alias and not set(names).isdisjoint(hold.names):
            return True
    return False


def _is_open(hold: Any) -> bool:
    return hold is not None and hold.is_open


def _after_fork_in_child() -> None:
    """A child has no holds: what it sees are its parent's."""
    global lock
    lock = threading.RLock()
    inherited = all_holds()
    _holds.clear()
    for hold in inherited:
        hold.fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
