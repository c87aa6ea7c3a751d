"""The stores that the processes share, and the processes."""

import json
import os
import socket
import uuid
from dataclasses import dataclass, field

import pytest

from tests.backends.sql_servers import MariaDBServer, PostgreSQLServer, Site, server_or_skip
from tests.processes.children import Child, Worker


@dataclass(frozen=True)
class Store:
    """One store of one test: the environment by which its processes find it."""

    kind: str
    env: dict = field(default_factory=dict)

    def with_claims(self, **params):
        """Return it with other params of the alias, such as TTL."""
        return Store(self.kind, {**self.env, "JOBS_CLAIMS": json.dumps(params)})

    def with_settings(self, **settings):
        """Return it with other settings of the project."""
        return Store(self.kind, {**self.env, "JOBS_SETTINGS": json.dumps(settings)})

    def with_backend(self, name):
        """Return it with a backend of the project's own, out of stores.py."""
        return Store(self.kind, {**self.env, "JOBS_BACKEND": f"stores.{name}{self.kind.title()}Backend"})

    def with_env(self, **env):
        return Store(self.kind, {**self.env, **env})


def redis_store(url, directory):
    """Keep to keys of our own, since the server is shared."""
    env = {"JOBS_STORE": "redis", "JOBS_REDIS_URL": url, "JOBS_PREFIX": uuid.uuid4().hex, "JOBS_DIR": str(directory)}
    return Store("redis", env)


def new_store(request, directory):
    """Return the store that a fixture's param names."""
    kind, env = request.param, {"JOBS_STORE": request.param, "JOBS_DIR": str(directory)}
    if kind == "redis":
        return redis_store(request.getfixturevalue("redis_server").url, directory)
    if kind == "memcached":
        env |= {"JOBS_MEMCACHED": request.getfixturevalue("memcached").address, "JOBS_PREFIX": uuid.uuid4().hex}
    elif kind in SQL_SERVERS:
        site = request.getfixturevalue(kind)
        site.ask("DELETE FROM django_claims_lease")
        env["JOBS_DATABASE"] = json.dumps({**site.server.settings, "NAME": site.name})
    return Store(kind, env)


SQL_SERVERS = {"postgresql": (PostgreSQLServer, "psycopg"), "mariadb": (MariaDBServer, "MySQLdb")}


def sql_site(kind):
    @pytest.fixture(scope="session", name=kind)
    def site(django_db_blocker):
        """A database with the table of leases, for the processes alone."""
        with django_db_blocker.unblock():
            site = Site(server_or_skip(*SQL_SERVERS[kind]), f"processes-{kind}")
            site.migrate()
            yield site
            site.drop()

    return site


postgresql, mariadb = map(sql_site, SQL_SERVERS)


@pytest.fixture(params=["redis", "sqlite"])
def store(request, tmp_path):
    return new_store(request, tmp_path)


# For what each backend has to show by itself.
FURTHER = [pytest.param(kind, marks=pytest.mark.long) for kind in ("memcached", "postgresql", "mariadb", "file")]
on_all_stores = pytest.mark.parametrize("store", ["redis", "sqlite", *FURTHER], indirect=True)

# For what was shown on both stores by another test; the second one takes its time.
sqlite_if_long = pytest.mark.parametrize(
    "store", ["redis", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True
)


@pytest.fixture
def redis(redis_server, tmp_path):
    """For what does not depend on the store."""
    return redis_store(redis_server.url, tmp_path)


@pytest.fixture
def own_redis(new_redis, tmp_path):
    """A store whose server this test may stop, freeze and flush: (store, server)."""
    server = new_redis()
    return redis_store(server.url, tmp_path), server


@pytest.fixture
def children(tmp_path):
    """What has been started; all of it is ended."""
    started = []
    yield started
    for child in started:
        child.close()


@pytest.fixture
def worker(children, tmp_path):
    """Start a process that does as it is told: `worker(store)`."""

    def start(store):
        children.append(Worker(env=store.env, cwd=tmp_path))
        return children[-1]

    return start


@pytest.fixture
def manage(children, tmp_path):
    """Start manage.py of the project: `manage(store, "report", "--do", "wait")`."""

    def start(store, *arguments, **how):
        children.append(Child("manage.py", *arguments, env=store.env, cwd=tmp_path, **how))
        return children[-1]

    return start


@pytest.fixture
def gate(tmp_path):
    """A file that processes wait for; `gate.touch()` lets them all go at once."""
    return tmp_path / f"gate-{os.urandom(4).hex()}"


@pytest.fixture
def closed_port():
    """A port that refuses connections: bound, so that nobody else gets it, and not listened to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
