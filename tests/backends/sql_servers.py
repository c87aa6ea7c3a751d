"""PostgreSQL and MariaDB of our own, each started once for all tests, and sites that have a database there."""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from django.core.management import call_command
from django.db import connections

from django_claims.backends import database_granting, sql_connections
from django_claims.backends.database import DatabaseBackend
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.test.waiting import wait_until
from tests.conftest import import_or_missing, missing
from tests.servers import free_port, freeze

DATABASE_BACKEND = "django_claims.backends.database.DatabaseBackend"


class SQLServer:
    """A private server that can be frozen and started again with its data."""

    engine: str
    variable: str
    user: str
    shutdown: signal.Signals

    def __init__(self) -> None:
        # Not below pytest's folders: those are closed to the user that the server runs as.
        self.directory = Path(tempfile.mkdtemp(prefix="claims-sql-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if os.getuid() == 0:
            shutil.chown(self.directory, self.user, self.user)
        self.create()
        self.start()

    @classmethod
    def find(cls) -> str | None:
        """Return the folder or the program of the server, if it is installed."""
        raise NotImplementedError

    def create(self) -> None:
        raise NotImplementedError

    def command(self) -> list[str]:
        raise NotImplementedError

    def as_user(self, *command: str) -> list[str]:
        """Neither server runs as root."""
        if os.getuid():
            return list(command)
        # Nor does it outlive a test run that was killed.
        end = f"--pdeathsig={self.shutdown.name.removeprefix('SIG')}"
        return ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--init-groups", end, *command]

    def run(self, *command: str) -> None:
        done = subprocess.run(self.as_user(*command), cwd=self.directory, capture_output=True, timeout=110)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-1000:]!r} {done.stderr[-1000:]!r}")

    @property
    def settings(self) -> dict[str, Any]:
        """Return what an entry of DATABASES says of it."""
        return {"ENGINE": self.engine, "HOST": "127.0.0.1", "PORT": str(self.port), "USER": self.login, "PASSWORD": ""}

    login: str

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.as_user(*self.command()),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        ends = clock() + 60
        while not self.answers():
            if self._process.poll() is not None or clock() > ends:
                said = (self.directory / "server.log").read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"{self.command()[0]} does not start: {said}")
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            self.connect().close()
        except Exception:
            return False
        return True

    def connect(self, name: str | None = None) -> Any:
        """Return a connection of the driver's, in autocommit."""
        return raw_connection({**self.settings, "NAME": name})

    def stop(self, by: signal.Signals | None = None) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            for pid in self._pids(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            process.send_signal(by or self.shutdown)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

    def restart(self) -> None:
        self.stop()
        self.start()

    def _pids(self, pid: int) -> list[int]:
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            children = []
        return [pid, *map(int, children)]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it and its sessions live without doing anything in the block."""
        freeze(self.pid)  # first, so that no session is started meanwhile
        pids = self._pids(self.pid)
        for pid in pids[1:]:
            with contextlib.suppress(ProcessLookupError):  # a session that has just ended
                freeze(pid)
        try:
            yield
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def end(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class PostgreSQLServer(SQLServer):
    engine = "django.db.backends.postgresql"
    variable = "CLAIMS_TEST_POSTGRES_URL"
    user = login = "postgres"
    shutdown = signal.SIGINT  # SIGTERM waits for clients

    @classmethod
    def find(cls) -> str | None:
        if on_path := shutil.which("postgres"):
            return str(Path(on_path).parent)
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
        return str(found[-1].parent) if found else None

    def create(self) -> None:
        self.run(
            f"{self.find()}/initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
            "--no-sync",
        )  # fmt: skip

    fsync = "off"

    def command(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": "60",
            "shared_buffers": "16MB",
            "fsync": self.fsync,
            "timezone": "Europe/Berlin",
        }
        pairs = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [f"{self.find()}/postgres", "-D", str(self.directory / "data"), "-p", str(self.port), *pairs]


class MariaDBServer(SQLServer):
    engine = "django.db.backends.mysql"
    variable = "CLAIMS_TEST_MARIADB_URL"
    user = "mysql"
    login = "root"
    shutdown = signal.SIGTERM

    @classmethod
    def find(cls) -> str | None:
        found = shutil.which("mariadbd") or next(iter(map(str, Path("/usr/sbin").glob("mariadbd"))), None)
        return found if shutil.which("mariadb-install-db") else None

    def create(self) -> None:
        self.run(
            "mariadb-install-db", "--no-defaults", f"--datadir={self.directory}/data", "--skip-test-db",
            "--auth-root-authentication-method=normal", "--skip-name-resolve",
        )  # fmt: skip

    fsync = "0"

    def command(self) -> list[str]:
        return [
            str(self.find()), "--no-defaults", f"--datadir={self.directory}/data", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self.directory}/s", f"--pid-file={self.directory}/pid",
            "--innodb-buffer-pool-size=32M", f"--innodb-flush-log-at-trx-commit={self.fsync}", "--skip-name-resolve",
            "--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci", "--default-time-zone=+02:00",
        ]  # fmt: skip


class GivenSQLServer:
    """A server that somebody else started; it is neither frozen nor restarted."""

    def __init__(self, url: str, engine: str) -> None:
        parts = urlsplit(url)
        self.database = parts.path.strip("/") or None
        self.settings = {
            "ENGINE": engine,
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
        }

    def connect(self, name: str | None = None) -> Any:
        return raw_connection({**self.settings, "NAME": name or self.database})


def raw_connection(settings: dict[str, Any]) -> Any:
    port = int(settings["PORT"] or 0)
    where = {"host": settings["HOST"], "user": settings["USER"], "password": settings["PASSWORD"]}
    if "postgresql" in settings["ENGINE"]:
        import psycopg

        name = settings["NAME"] or "postgres"
        return psycopg.connect(**where, port=port or 5432, dbname=name, autocommit=True, connect_timeout=5)
    import MySQLdb

    connection = MySQLdb.connect(
        **where, port=port or 3306, connect_timeout=5, charset="utf8mb4", database=settings["NAME"] or ""
    )
    connection.autocommit(True)
    return connection


@functools.cache
def shared_server(kind: type[SQLServer]) -> Any:
    """Return the server of that kind that all tests of this run share."""
    if url := os.environ.get(kind.variable):
        return GivenSQLServer(url, kind.engine)
    if not kind.find():
        return None
    server = kind()
    atexit.register(server.end)
    return server


def server_or_skip(kind: type[SQLServer], *drivers: str) -> Any:
    import_or_missing(*drivers)
    return shared_server(kind) or missing(
        f"no {kind.__name__.removesuffix('Server')} installed, and no {kind.variable}"
    )


class Site:
    """An alias of DATABASES with a database of its own on a server, with the table of leases in it."""

    def __init__(self, server: Any, alias: str) -> None:
        self.server = server
        self.alias = alias
        self.name = f"claims_{secrets.token_hex(6)}"
        self.is_postgresql = "postgresql" in server.settings["ENGINE"]
        with contextlib.closing(server.connect()) as raw:
            raw.cursor().execute(f"CREATE DATABASE {self.name}")
        self.entry = {**copy.deepcopy(connections.settings["default"]), **server.settings, "NAME": self.name}
        self.entry["TEST"] = {**self.entry["TEST"], "NAME": f"test_{self.name}"}
        connections.settings[alias] = self.entry

    def migrate(self) -> None:
        call_command("migrate", "django_claims_database", database=self.alias, verbosity=0)
        connections[self.alias].close()

    def configure(self, **entry: Any) -> None:
        """Change the entry of DATABASES, as if the process had started with it."""
        self.forget()
        connections.settings[self.alias] = self.entry = {**self.entry, **entry}

    def forget(self) -> None:
        """Close what there is of the alias in this process."""
        for key in [key for key in sql_connections._databases if key[0] == self.alias]:
            own = sql_connections._databases.pop(key)
            wait_until(lambda own=own: not any(room.inside for room in own._rooms.all()), 10)  # nobody talks any more
            own.close()
        if hasattr(connections._connections, self.alias):
            connections[self.alias].close()
            del connections[self.alias]

    def backend(self, **changes: Any) -> DatabaseBackend:
        options = {"database": self.alias}
        return DatabaseBackend(
            AliasSettings(**{"alias": "default", "backend": DATABASE_BACKEND, "options": options, **changes})
        )

    @property
    def own(self) -> Any:
        """Return the connections of the backend."""
        return sql_connections.database_of(self.alias)

    def ask(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """Run a statement over a connection of the test's."""
        with contextlib.closing(self.server.connect(self.name)) as raw:
            cursor = raw.cursor()
            cursor.execute(statement, params or None)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self) -> int:
        return int(self.ask("SELECT count(*) FROM django_claims_lease")[0][0])

    def sessions(self) -> list[int]:
        """Return the server's numbers of all sessions in the database but the asking one."""
        if self.is_postgresql:
            found = self.ask(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", self.name
            )
        else:
            found = self.ask(
                "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> connection_id()", self.name
            )
        return [int(number) for (number,) in found]

    def end_sessions(self) -> int:
        """End all sessions from the server's side, and wait until they are gone."""
        numbers = self.sessions()
        for number in numbers:
            with contextlib.suppress(Exception):
                self.ask(f"SELECT pg_terminate_backend({number})" if self.is_postgresql else f"KILL {number}")
        ends = clock() + 10
        while set(self.sessions()) & set(numbers):
            assert clock() < ends
            time.sleep(0.01)
        return len(numbers)

    def drop(self) -> None:
        self.forget()
        connections.settings.pop(self.alias, None)
        with contextlib.closing(self.server.connect()) as raw:
            force = " WITH (FORCE)" if self.is_postgresql else ""
            raw.cursor().execute(f"DROP DATABASE IF EXISTS {self.name}{force}")


def site_fixture(kind: type[SQLServer], alias: str, *drivers: str) -> Callable[..., Any]:
    """Return a fixture of a module: one site, whose table is emptied for each test."""

    @pytest.fixture(scope="module", name="module_site")
    def module_site(django_db_blocker: Any) -> Iterator[Site]:
        site = Site(server_or_skip(kind, *drivers), alias)
        with django_db_blocker.unblock():
            site.migrate()
            yield site
            site.drop()

    return module_site


@pytest.fixture
def site(module_site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The site of the module, with an empty table and as it was set up."""
    before = copy.deepcopy(module_site.entry)
    module_site.ask("DELETE FROM django_claims_lease")
    monkeypatch.setattr(database_granting, "_clean_at", {})
    yield module_site
    module_site.forget()
    module_site.entry = connections.settings[module_site.alias] = before
