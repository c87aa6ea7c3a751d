"""The admin pages in a browser, with real jobs to look at, until Ctrl-C."""

from __future__ import annotations

import logging
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from io import StringIO

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.urls import reverse

from django_claims import request_stop
from reports.management.commands._demo_processes import Run
from reports.management.commands._demo_redis import free_port
from reports.management.commands._demo_steps import Story

PORT = 8000
REST_SECONDS = 20.0  # between the end of a job and its next start, as cron would have it

JOBS = (
    ("nightly_report", "--pause=8"),
    ("import_orders", "--pause=0.5"),
    ("claims", "run", "backup:photos", "--", sys.executable, "-c", "import time; time.sleep(3600)"),
    ("claims", "run", "backup:letters", "--", sys.executable, "-c", "import time; time.sleep(3600)"),
)
"""Two that say how far they are, and two that never look: those are ended by SIGTERM."""


class Serving(Story):
    """Serves the example with its admin, and starts its jobs again whenever they have ended."""

    def run(self, port: int | None) -> None:
        """Serve on this port of 127.0.0.1, or on a free one. Returns never: a signal ends the process."""
        self._begin("Two pages in the admin: what is held, and what is stopped")
        call_command("migrate", verbosity=0)
        call_command("seed", stdout=StringIO())
        password = secrets.token_urlsafe(9)
        get_user_model().objects.create_superuser("demo", "demo@example.com", password)
        request_stop("cleanup:old-orders", keep=True, reason="the disk is being replaced", by="demo")
        threading.Thread(target=self._keep_running, daemon=True).start()
        chosen = port or (PORT if is_free(PORT) else free_port())
        self._say(f"{len(JOBS)} jobs run, and start again {REST_SECONDS:.0f} s after they have ended.")
        self._write(f"\nOpen      http://127.0.0.1:{chosen}{reverse('admin:django_claims_liveclaim_changelist')}")
        self._write(f"User      demo\nPassword  {password}\n\nCtrl-C ends it, with all jobs and data.")
        sys.stdout.flush()
        logging.getLogger("django.server").setLevel(logging.WARNING)  # a page that refreshes itself asks a lot
        call_command("runserver", f"127.0.0.1:{chosen}", use_reloader=False, skip_checks=True, stdout=StringIO())

    def _keep_running(self) -> None:
        """Play cron: start what does not run, a while after it has ended."""
        running: dict[tuple[str, ...], Run] = {}
        due = dict.fromkeys(JOBS, 0.0)
        while True:
            now = time.monotonic()
            for job in JOBS:
                if job in running and running[job].has_ended:
                    running.pop(job).process.communicate()
                    due[job] = now + REST_SECONDS
                if job not in running and now >= due[job]:
                    running[job] = self._runs.start(*job)
            time.sleep(0.2)


def is_free(port: int) -> bool:
    """Say whether a server could listen there now."""
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
