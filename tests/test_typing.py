"""The types of the API, as mypy and pyright see them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "typing").glob("*.py"))


def check(*command):
    """Run a type checker over the package and the examples; return what it said if it found something."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(600)
def test_mypy_knows_the_types_of_the_api_and_finds_what_is_wrong(tmp_path):
    """Strict, so that an error that is expected and not found is an error too."""
    assert len(EXAMPLES) == 3
    assert check(sys.executable, "-m", "mypy", "--strict", "django_claims", *EXAMPLES) == ""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_pyright_knows_the_types_of_the_api():
    pyright = Path(sys.executable).with_name("pyright")
    program = str(pyright) if pyright.exists() else shutil.which("pyright")
    if program is None:
        missing("no pyright: pip install pyright")
    package = ["--pythonpath", sys.executable]
    assert check(program, *package, "--project", str(ROOT)) == ""
