"""DatabaseBackend on PostgreSQL: the contract, and what is special to it."""

import pytest

from django_claims.test import BackendContract
from tests.backends.sql_servers import PostgreSQLServer, site, site_fixture

__all__ = ["site"]  # a fixture

module_site = site_fixture(PostgreSQLServer, "postgresql", "psycopg")


class TestDatabaseBackendOnPostgreSQL(BackendContract):
    @pytest.fixture(autouse=True)
    def fresh_backend(self, site):
        self.backend = site.backend()
