"""The example project as a site of its own: real server, real commands, real accounts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from django_claims.test import wait_until
from tests.servers import free_port

EXAMPLE = Path(__file__).parent.parent.parent / "example_project"
PASSWORD = "only for this test"
LIST = "/admin/django_claims/liveclaim/"
FLAGS = "/admin/django_claims/stoprequestrow/"
ACT = "/admin/django_claims/liveclaim/act/"

MAKE_ACCOUNTS = """
from django.contrib.auth.models import Permission, User
User.objects.create_superuser("boss", "", {password!r})
viewer = User.objects.create_user("viewer", "", {password!r}, is_staff=True)
viewer.user_permissions.add(Permission.objects.get(codename="view_claim"))
User.objects.create_user("stranger", "", {password!r}, is_staff=True)
"""


class Site:
    """The example on data of its own. `settings`: another settings module than the example's."""

    def __init__(self, directory: Path, settings: str = "example.settings", **environment: str) -> None:
        root = Path(__file__).parent.parent.parent
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "REDIS_"))},
            "EXAMPLE_VAR": str(directory),
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._settings = f"--settings={settings}"
        self._log = directory / "server.log"
        self._started: list[subprocess.Popen[Any]] = []
        for arguments in (("migrate", "-v", "0"), ("seed",), ("shell", "-v", "0", "-c", self._accounts())):
            self.manage(*arguments)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with self._log.open("w") as log:
            self.start("runserver", "--noreload", f"127.0.0.1:{self.port}", output=log)
        wait_until(self._answers, seconds=60)

    def _accounts(self) -> str:
        return MAKE_ACCOUNTS.format(password=PASSWORD)

    def _answers(self) -> bool:
        assert self._started[0].poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/admin/login/", timeout=20) as answer:
                return bool(answer.status == 200)
        except urllib.error.URLError:
            return False

    def manage(self, *arguments: str) -> str:
        """Run a command to its end, and return what it printed. It must succeed."""
        done = subprocess.run(
            self._words(arguments), env=self.environment, cwd=EXAMPLE, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, *arguments: str, output: Any = subprocess.DEVNULL) -> subprocess.Popen[Any]:
        """Start a command and leave it running."""
        process = subprocess.Popen(
            self._words(arguments), env=self.environment, cwd=EXAMPLE, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._started.append(process)
        return process

    def _words(self, arguments: tuple[str, ...]) -> list[str]:
        verb, *rest = arguments
        return [sys.executable, str(EXAMPLE / "manage.py"), verb, self._settings, *rest]

    def close(self) -> None:
        """End what was started: each by its own pid."""
        for process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
