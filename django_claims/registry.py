"""
The holds of this process, by weak reference: who forgets a hold, loses it.

Also which of them were taken by the code that runs now: by context, so that a thread and
an asyncio task each see their own, and code called through sync_to_async sees its caller's.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
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
_by_name: dict[tuple[str, str], weakref.ref[Any]] = {}


class _Node:
    """
    A hold of this context, and those that were taken before it.

    A chain and not a list, since contexts branch: what a task takes, its siblings do not see.
    """

    __slots__ = ("before", "length", "ref", "swept")

    def __init__(self, ref: weakref.ref[Any], before: _Node | None) -> None:
        self.ref = ref
        self.before = before
        self.length: int = before.length + 1 if before else 1
        self.swept: int = before.swept if before else 16  # the length up to which there was no need to sweep

    @property
    def hold(self) -> Any:
        """The hold, if it is still open."""
        hold = self.ref()
        return hold if hold is not None and hold.is_open else None


_here: ContextVar[_Node | None] = ContextVar("django_claims_holds", default=None)


def add(hold: AnyHold) -> None:
    """Make a hold known to the process."""
    ref = _holds[hold.token] = weakref.ref(hold)
    for name in hold.names:
        _by_name[hold.alias, name] = ref


def remove(token: str, alias: str, names: tuple[str, ...]) -> None:
    """Forget a hold."""
    ref = _holds.pop(token, None)
    for name in names:
        if _by_name.get((alias, name)) is ref:
            _by_name.pop((alias, name), None)


def get(token: str) -> Any:
    """Return the hold with a token, or None if it is gone."""
    ref = _holds.get(token)
    return None if ref is None else ref()


def vanished(alias: str) -> dict[str, tuple[str, ...]]:
    """
    Return the tokens, and their names, of holds that are gone and were never taken out.

    Python drops what is raised inside a finalizer, so an exception of a signal handler that comes
    right there leaves a lease with nobody to delete it.
    """
    names: dict[int, list[str]] = {}
    for (its_alias, name), ref in list(_by_name.items()):
        if its_alias == alias and ref() is None:
            names.setdefault(id(ref), []).append(name)
    return {token: tuple(names[id(ref)]) for token, ref in list(_holds.items()) if ref() is None and id(ref) in names}


def all_holds() -> list[Any]:
    """Return all holds of the process that are not released yet."""
    return [hold for ref in list(_holds.values()) if (hold := ref()) is not None]


def enter(hold: AnyHold) -> None:
    """Make a hold the innermost one of this context."""
    node = _here.get()
    while node is not None and node.hold is None:
        node = node.before
    if node is not None and node.length > 2 * node.swept:
        node = _swept(node)
    _here.set(_Node(weakref.ref(hold), node))


def _swept(node: _Node) -> _Node | None:
    """Return the chain without the holds that have ended. Each doubling pays once: constant on the whole."""
    refs = [each.ref for each in _chain(node) if each.hold is not None]
    swept: _Node | None = None
    for ref in reversed(refs):
        swept = _Node(ref, swept)
    if swept is not None:
        swept.swept = max(swept.length, 16)
    return swept


def _chain(node: _Node | None) -> Iterator[_Node]:
    while node is not None:
        yield node
        node = node.before


def current() -> Any:
    """Return the innermost open hold of this context, or None."""
    return next((node.hold for node in _chain(_here.get()) if node.hold is not None), None)


def held_here(alias: str, names: tuple[str, ...]) -> str:
    """Return the first of the names of which this context has an open hold, or ''."""
    for name in names:
        ref = _by_name.get((alias, name))
        hold = None if ref is None else ref()
        if hold is not None and hold.is_open and any(node.ref() is hold for node in _chain(_here.get())):
            return name
    return ""


def _after_fork_in_child() -> None:
    """A child has no holds: what it sees are its parent's."""
    global lock
    lock = threading.RLock()
    inherited = all_holds()
    _holds.clear()
    _by_name.clear()
    for hold in inherited:
        hold.fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
