"""What all threads of a process share: one object for each key, and connections that lie idle."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class OnePerKey(Generic[T]):
    """Objects that are made when they are first asked for, one for each key in this process."""

    def __init__(self) -> None:
        self._made: dict[Hashable, T] = {}
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may ask while its own thread is in here

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    found = self._made.setdefault(key, make())
        return found

    def all(self) -> list[T]:
        return list(self._made.values())


def end_all(idle: deque[T] | list[T], end: Callable[[T], Any]) -> None:
    """End what lies idle, while others may take of it. What fails to end has ended: a socket is closed then."""
    while idle:
        try:
            end(idle.pop())
        except IndexError:
            break
        except Exception:
            continue
