"""A new user, a new project, and the quick start to the letter."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.conftest import missing
from tests.docs.pages import ROOT, blocks_of
from tests.helpers import wait_until

PAGE = ROOT / "docs" / "quickstart.md"
FOREIGN = ("DJANGO_SETTINGS_MODULE", "REDIS_URL", "CI")


@pytest.fixture
def site(tmp_path):
    """The project that the page makes, with the files that it shows: `site(line)` runs one of its command lines."""
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}

    def start(line):
        words = shlex.split(line)
        program = {".venv/bin/python": [sys.executable], ".venv/bin/django-admin": [sys.executable, "-m", "django"]}
        return subprocess.Popen(
            [*program[words[0]], *words[1:]], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(line, code=0):
        process = start(line)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == code, f"{line}: {printed}"
        return printed

    run.start, run.directory = start, tmp_path
    for line in lines(0)[2:]:  # the environment is this one
        run(line)
    for name, text in files().items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() if path.exists() else "") + text)
    return run


def lines(number):
    return blocks_of(PAGE, "sh")[number].text.splitlines()


def files():
    """Return the files that the page names in the first line of a block."""
    found = {}
    for block in blocks_of(PAGE, "python"):
        if named := re.match(r"# (\S+\.py)\n", block.text):
            found[named[1]] = block.text
    assert len(found) == 2
    return found


def test_the_quick_start_works_to_the_letter(site):
    (migrate,), (report,), (looking, stopping), (check, doctor) = (lines(number) for number in (1, 2, 3, 4))
    site(migrate)
    running = site.start(report)
    try:
        wait_until(lambda: "command:reports.nightly_report" in site(looking), seconds=60)

        refused = site(report, code=75)
        assert refused.startswith("AlreadyRunning: Claim 'command:reports.nightly_report' is held by ")

        running.kill()  # what kill -9 does
        running.communicate(timeout=60)
        running = site.start(report)
        wait_until(lambda: f"pid {running.pid}" in site(looking), seconds=60)

        site(stopping)
        printed, _ = running.communicate(timeout=60)
        assert running.returncode == 0 and "wrong day" in printed
        assert "No live claims" in site(looking) or "command:reports" not in site(looking)
        assert "django_claims.E" not in site(check)
        assert "FAIL" not in site(doctor)
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate(timeout=60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_first_command_of_the_readme_works_in_a_fresh_clone(tmp_path):
    # The second one is the line that runs these tests.
    (line,) = [line for line in blocks_of(ROOT / "README.md", "sh")[0].text.splitlines() if line]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        missing("this is no clone")
    for name in listed.stdout.strip("\0").split("\0"):
        if (ROOT / name).exists():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    kept = ("HOME", "PATH", "LANG", "TMPDIR", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
    environment = {name: value for name, value in os.environ.items() if name in kept or name.startswith("PIP_")}

    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=580,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "every step came out as it must" in done.stdout
