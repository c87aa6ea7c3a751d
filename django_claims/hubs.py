"""
The hubs of gevent, where it has put greenlets in the place of threads: one for each thread of the system.

A socket can be waited on only under the hub that opened it (another one ends that with
greenlet.error), and a hub runs only while its own thread has something to wait for.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_main: Any = None


def current() -> Any | None:
    """Return the hub of this thread of the system, or None where threads are threads."""
    global _main
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("socket"):
        return None
    hub = sys.modules["gevent"].get_hub()
    if hub.main_hub:
        _main = hub
    return hub


def start(thread: threading.Thread) -> None:
    """Start a thread that outlives what its starter does: if it is a greenlet, under the main hub."""
    hub = current()
    if hub is None or _main is None or hub is _main:
        thread.start()
    else:
        _main.loop.run_callback_threadsafe(sys.modules["gevent"].spawn, thread.start)


class PerHub(Generic[T]):
    """
    One thing for all threads of the process; under gevent, one for each of its hubs.

    What is there for a thread of the system that has ended goes with its hub. What was there
    before gevent patched is nobody's own from then on.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._common = make()
        self._of_hubs: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()

    def own(self) -> T:
        hub = current()
        if hub is None:
            return self._common
        found = self._of_hubs.get(hub)
        if found is None:
            found = self._of_hubs[hub] = self._make()
        return found

    def all(self) -> list[T]:
        hubs = [hub for ref in self._of_hubs.keyrefs() if (hub := ref()) is not None]
        return [self._common, *(found for hub in hubs if (found := self._of_hubs.get(hub)) is not None)]


current()  # where it was patched first, as it should be, this is the main thread
