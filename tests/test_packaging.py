"""The wheel as it would be uploaded: what is inside, and that it works by itself."""

import email
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import django
import pytest

from tests.conftest import missing

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_claims"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the source distribution, as pip does it for those who build it themselves."""
    try:
        import build
        import hatchling.build  # noqa: F401
    except ImportError:
        missing("no build and hatchling: pip install build hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", build.__name__, "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel):
    here = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        there = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert there == here
    kinds = {Path(name).suffix for name in there} | {Path(name).name for name in there}
    assert kinds >= {".py", ".lua", ".html", ".css", ".js", ".mo", "py.typed"}
    assert "django_claims/database/migrations/0001_initial.py" in there
    assert "django_claims/migrations/0001_initial.py" in there


def test_its_metadata_are_in_order(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [archive.read(name) for name in names if name.endswith("/METADATA")]
        (entries,) = [archive.read(name).decode() for name in names if name.endswith("/entry_points.txt")]
        licences = [name for name in names if "/licenses/" in name]
    said = email.message_from_bytes(metadata)

    assert said["Name"] == "django-claims"
    assert said["License-Expression"] == "MIT"
    assert [Path(name).name for name in licences] == ["LICENSE"]
    assert [each for each in said.get_all("Requires-Dist") if "extra ==" not in each] == ["django>=5.2"]
    assert "django_claims = django_claims.pytest_plugin" in entries
    assert said.get_payload().startswith("# django-claims")


SCRIPT = """
import sys
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django_claims", "django_claims.database"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    CLAIMS={"default": {"BACKEND": "django_claims.backends.database.DatabaseBackend"}},
)
import django
from django.core.management import call_command

django.setup()
call_command("check", fail_level="WARNING")
call_command("migrate", verbosity=0)
call_command("makemigrations", check=True, dry_run=True, verbosity=0)
import django_claims
from django_claims import claim

assert "site-packages" in django_claims.__file__, django_claims.__file__
assert "pytest" not in sys.modules
with claim("x") as hold:
    assert hold.verify() and not claim("x").available()
from django_claims.test import held, override_claims

with override_claims(), held("x"):
    assert claim("x").acquire() is None
print("held", django.__version__)
"""


def test_it_works_in_a_virtual_environment_with_nothing_but_django(wheel, tmp_path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", wheel]
    done = subprocess.run(install, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    # What it needs, from here: Django and what that needs. No network, and nothing else of ours.
    (site,) = home.glob("lib/*/site-packages")
    ours = Path(django.__file__).parent.parent
    for name in ("django", "asgiref", "sqlparse"):
        (site / name).symlink_to(ours / name)
    (tmp_path / "script.py").write_text(SCRIPT)

    ran = [python, "-I", "-W", "error", tmp_path / "script.py", tmp_path / "db.sqlite3"]
    done = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, timeout=200)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-2:] == ["held", django.__version__]
