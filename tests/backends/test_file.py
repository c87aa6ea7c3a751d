"""FileBackend: the contract, and what is special to it."""

import pytest

from django_claims.backends import file_places
from django_claims.backends.file import FileBackend
from django_claims.conf import AliasSettings
from django_claims.test import BackendContract

FILES = "django_claims.backends.file.FileBackend"


def settings_of(directory, **changes):
    options = {"directory": str(directory), **changes.pop("options", {})}
    return AliasSettings(**{"alias": "default", "backend": FILES, "options": options, **changes})


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A directory for claims under tmp_path, which is a temporary one and would be refused."""
    monkeypatch.setattr(file_places, "temporary_places", list)
    return tmp_path / "claims"


@pytest.fixture
def backend(directory):
    backend = FileBackend(settings_of(directory))
    yield backend
    backend.close()


class TestFileBackend(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, directory):
        self.backend = FileBackend(settings_of(directory))
        yield
        self.backend.close()
