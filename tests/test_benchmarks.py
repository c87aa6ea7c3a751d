"""The benchmarks run and print their tables; what they say is not judged here."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_part_of_the_benchmarks_runs_and_says_on_what(redis_program):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "growth"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)

    assert done.returncode == 0, done.stderr[-2000:]
    assert "### How cost grows with the leases" in done.stdout
    assert "\n| 10,000 |" in done.stdout
    assert "| **django-claims** |" in done.stdout
    assert "load average" in done.stdout
