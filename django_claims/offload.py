"""
Threads of our own for the async twins, apart from asgiref's.

With a shared thread a slow view would delay a release. Tries have threads of their own, so
that a thousand waiters never keep a release or a renewal waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_executors: dict[str, ThreadPoolExecutor] = {}
_SIZES = {"try": 8, "end": 4}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executors.clear)  # their threads stayed with the parent


def _executor(kind: str) -> ThreadPoolExecutor:
    if kind not in _executors:
        _executors[kind] = ThreadPoolExecutor(_SIZES[kind], thread_name_prefix=f"django-claims {kind}")
    return _executors[kind]


def start(func: Callable[[], T], *, kind: str = "end") -> asyncio.Future[T]:
    """Run a function in one of our threads; cancelling what is returned does not stop it."""
    return asyncio.get_running_loop().run_in_executor(_executor(kind), func)


async def offload(func: Callable[[], T], *, kind: str = "end") -> T:
    """Run a function in one of our threads to its end, even if the caller is cancelled meanwhile."""
    return await asyncio.shield(start(func, kind=kind))
