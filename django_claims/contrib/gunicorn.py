"""
Hooks for gunicorn, to be named in its config file.

    from django_claims.contrib.gunicorn import post_worker_init, worker_abort, worker_exit, worker_int

None of them raises, and none needs gunicorn to be installed.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

from django_claims import shutdown
from django_claims.logs import get_logger

logger = get_logger(__name__)


def post_worker_init(worker: Any) -> None:
    """
    Have the worker drain on SIGTERM, before gunicorn's own answer to it.

    That is how gunicorn tells a worker to stop, be it for a reload or for good, and it has no hook
    of its own. A worker class that sets its handlers later than this hook drains when it exits.
    """
    before = signal.getsignal(signal.SIGTERM)
    if not callable(before):
        return

    def handle(number: int, frame: FrameType | None) -> None:
        shutdown.start_draining("SIGTERM")
        before(number, frame)

    signal.signal(signal.SIGTERM, handle)
    signal.siginterrupt(signal.SIGTERM, False)  # as gunicorn has it: requests that run are not disturbed


def worker_int(worker: Any) -> None:
    """Drain on SIGINT and SIGQUIT. gunicorn then ends the worker at once, and `finally` blocks run."""
    shutdown.start_draining("gunicorn quits")


def worker_abort(worker: Any) -> None:
    """Drain on SIGABRT, which gunicorn sends to a worker that is over its `timeout`."""
    shutdown.start_draining("gunicorn timeout")


def worker_exit(server: Any, worker: Any) -> None:
    """
    Release what the worker still holds.

    While threads of a gthread worker still serve, that is left to Python's own exit, which waits
    for them: nothing is released under code that runs.
    """
    if worker.pid != os.getpid():
        return  # gunicorn's master calls it too, for a worker that it found gone
    try:
        shutdown.start_draining("gunicorn worker exit")
        if not getattr(worker, "nr_conns", 0):
            shutdown.release_all("gunicorn worker exit")
    except Exception:
        logger.exception("Holds could not be released at the exit of a worker")
