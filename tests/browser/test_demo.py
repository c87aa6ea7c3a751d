"""manage.py demo --serve is what a newcomer sees first."""

import re
import signal
import subprocess
import sys

import pytest

from django_claims.test import wait_until
from tests.browser.conftest import WAIT_MS, row_of
from tests.browser.site import EXAMPLE
from tests.servers import free_port


@pytest.fixture
def serving(tmp_path):
    """The demo, once it has said where it is to be seen: the process, and what it printed."""
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "manage.py"), "demo", "--serve", f"--port={free_port()}"],
            cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    wait_until(lambda: "Ctrl-C ends it" in log.read_text() or process.poll() is not None, seconds=90)
    yield process, log.read_text()
    if process.poll() is None:
        process.kill()
    process.wait()


def test_the_demo_serves_jobs_to_look_at_until_ctrl_c(serving, chromium):
    process, printed = serving
    address, user, password = (re.search(rf"{word} +(\S+)", printed)[1] for word in ("Open", "User", "Password"))
    page = chromium.new_context().new_page()
    wait_until(lambda: answers(page, address), seconds=60)
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_url(address)
    page.select_option("#claims-every", label="every 5 seconds")

    row_of(page, "import-orders").get_by_text(re.compile(r"[1-9]\d* of 300")).wait_for(timeout=WAIT_MS)
    assert "Kept stopped" in row_of(page, "cleanup:old-orders").inner_text()
    assert row_of(page, "backup:photos").count() == 1
    page.context.close()

    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT


def answers(page, address):
    from playwright.sync_api import Error

    try:
        return page.goto(address)
    except Error:
        return None  # it does not listen yet


def test_a_port_that_cannot_be_is_refused(tmp_path):
    for arguments in (["--port=80000", "--serve"], ["--port=8000"]):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE / "manage.py"), "demo", *arguments],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1
        assert "from 1 to 65535" in done.stderr
