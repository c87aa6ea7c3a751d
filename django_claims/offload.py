"""
Threads of our own for the async twins, apart from asgiref's.

With a shared thread a slow view would delay a release. Tries have threads of their own, and so
has what only asks, so that neither a thousand waiters nor a frozen store that somebody looks at
ever keeps a release waiting.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from django_claims import heartbeat
from django_claims.exceptions import ClaimError

T = TypeVar("T")

_executors: dict[str, ThreadPoolExecutor] = {}
_SIZES = {"try": 8, "end": 4, "ask": 4}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executors.clear)  # their threads stayed with the parent


def _executor(kind: str) -> ThreadPoolExecutor:
    if kind not in _executors:
        _executors[kind] = ThreadPoolExecutor(_SIZES[kind], thread_name_prefix=f"django-claims {kind}")
    return _executors[kind]


def start(func: Callable[[], T], *, kind: str = "end") -> Future[T]:
    """
    Run a function in one of our threads.

    Raises ClaimError if there is no thread for it, and then never runs it: an executor has it
    in line by then, and would run it with the next one's thread.
    """
    if heartbeat.manual:
        return _done_here(func)
    abandoned = threading.Event()

    def run() -> T:
        if abandoned.is_set():
            raise ClaimError("abandoned")
        return func()

    executor = _executor(kind)
    try:
        return executor.submit(run)
    except RuntimeError as error:
        abandoned.set()
        raise ClaimError(f"No thread could be started for an async claim ({error}).") from error
    except BaseException:
        # A signal's exception, perhaps as it started a thread: one that it has not noted by then would wait for work
        # for good, and keep the process from ending. So all of its threads end when they are done, and the next call
        # has others.
        abandoned.set()
        _executors.pop(kind, None)
        executor.shutdown(wait=False)
        raise


def _done_here(func: Callable[[], T]) -> Future[T]:
    """Run a function at once, in the thread of the loop."""
    done: Future[T] = Future()
    try:
        done.set_result(func())
    except Exception as error:
        done.set_exception(error)
    return done


async def offload(func: Callable[[], T], *, kind: str = "end", at_any_rate: bool = False) -> T:
    """
    Run a function in one of our threads to its end, even if the caller is cancelled meanwhile.

    `at_any_rate`: in the thread of the loop if there is no other, as when the interpreter ends.
    """
    try:
        future = start(func, kind=kind)
    except ClaimError:
        if not at_any_rate:
            raise
        return func()
    return await asyncio.shield(asyncio.wrap_future(future))
