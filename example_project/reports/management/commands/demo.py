"""manage.py demo: see claims at work, between real processes, in half a minute."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from django_claims import ClaimError
from reports.management.commands._demo_processes import MANAGE, DemoFailure, Runs, inner_environment
from reports.management.commands._demo_redis import redis_server
from reports.management.commands._demo_serve import Serving
from reports.management.commands._demo_steps import Steps

if TYPE_CHECKING:
    from reports.management.commands._demo_celery import CelerySteps

SECONDS = 300  # for all; it takes about 20 where nothing is wrong


class Command(BaseCommand):
    help = "Shows what claims do, with real processes on fresh data. Exit code 0 only if every step came out right."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--redis", action="store_true", help="On Redis instead of SQLite: that of REDIS_URL, else one of its own."
        )
        parser.add_argument(
            "--celery",
            action="store_true",
            help="Two beats and a worker of Celery instead, one beat of which is killed; on Redis.",
        )
        parser.add_argument(
            "--serve",
            action="store_true",
            help="Serve the admin pages with a few real jobs to look at, until Ctrl-C; prints address and password.",
        )
        parser.add_argument("--port", type=int, help="With --serve: the port, 8000 if it is free.", metavar="N")
        parser.add_argument(
            "--in-place", action="store_true", help="On the data and settings at hand. (The demo starts itself so.)"
        )

    def handle(
        self, *, redis: bool, celery: bool, serve: bool, port: int | None, in_place: bool, **options: Any
    ) -> None:
        if port is not None and not (serve and 0 < port < 65536):
            raise CommandError(f"--port {port} goes with --serve, and is a number from 1 to 65535.")
        if celery and not find_spec("celery"):
            raise CommandError("Celery is not installed. Run: pip install -e '.[demo,celery]' in the clone.")
        # A plain SIGTERM would leave the processes behind that were started here, and Ctrl-C is no traceback.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
        if in_place:
            self.serve(port) if serve else self.take_steps(celery=celery)
            return
        what = ["--celery"] if celery else []
        if serve:
            what = ["--serve", *([f"--port={port}"] if port else [])]
        sys.exit(self.start_afresh(*what, redis=redis or celery, seconds=None if serve else SECONDS))

    def start_afresh(self, *what: str, redis: bool, seconds: float | None) -> int:
        """Run it in a process of its own, on an empty directory and a store without our keys."""
        key_prefix = f"example-demo-{secrets.token_hex(4)}"
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="claims-demo-"))
            url = None
            if redis:
                url = stack.enter_context(redis_server(os.environ.get("REDIS_URL", ""), key_prefix, Path(directory)))
            environment = inner_environment(
                EXAMPLE_VAR=directory, REDIS_URL=url, EXAMPLE_KEY_PREFIX=key_prefix, PYTHONUNBUFFERED="1"
            )
            steps = subprocess.Popen([sys.executable, str(MANAGE), "demo", "--in-place", *what], env=environment)
            try:
                return steps.wait(seconds)
            except subprocess.TimeoutExpired:
                raise CommandError(f"The demo was not done after {seconds} s.") from None
            finally:
                end(steps)

    def serve(self, port: int | None) -> None:
        """Serve the admin here."""
        with Runs() as runs:
            Serving(runs, self.stdout.write).run(port)

    def take_steps(self, *, celery: bool) -> None:
        """Run the steps here."""
        with Runs() as runs:
            steps: Steps | CelerySteps = Steps(runs, self.stdout.write)
            if celery:
                from reports.management.commands._demo_celery import CelerySteps

                steps = CelerySteps(runs, self.stdout.write)
            try:
                steps.run()
            except (DemoFailure, ClaimError, DatabaseError) as error:
                raise CommandError(f"Step '{steps.title}' failed. {error}") from error


def end(process: subprocess.Popen[bytes]) -> None:
    """See to it that it has ended, and give it time to end what it has started."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
