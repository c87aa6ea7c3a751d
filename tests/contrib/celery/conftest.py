"""A broker, a store, workers: real ones; and a client of the test's own."""

import contextlib
import gc
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from celery import Celery
from kombu import pools

from django_claims import claim
from django_claims.clock import clock
from django_claims.handler import claim_backends
from tests.conftest import missing
from tests.helpers import wait_until
from tests.processes.children import PROJECT, SECONDS, Child, end
from tests.servers import free_port

HERE = Path(__file__).parent / "project"

LAUNCH = """
import sys
from celery.__main__ import main
if __name__ == "__main__":
    sys.argv[0] = "celery"
    sys.exit(main())
"""


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class CeleryWorker(Child):
    """One worker with its children."""

    def __init__(self, site, pool, *arguments, concurrency=1, options=None, env=None):
        if pool == "gevent" and importlib.util.find_spec("gevent") is None:
            missing("gevent is not installed")
        site.count += 1
        self.node = f"w{site.count}@{site.prefix[:8]}"
        launch = site.directory / "launch.py"
        launch.write_text(LAUNCH)
        env = {
            **site.env,
            "WORK_OPTIONS": json.dumps({**site.options, **(options or {})}),
            "PYTHONPATH": os.pathsep.join([str(HERE), str(PROJECT), str(PROJECT.parent.parent.parent)]),
            **(env or {}),
        }
        super().__init__(
            str(launch), "-A", "work", "worker", "-P", pool, "-c", str(concurrency), "-n", self.node, "-l", "INFO",
            "--without-gossip", "--without-mingle", *arguments, env=env, cwd=site.directory,
        )  # fmt: skip
        self.children = set()
        try:
            wait_until(self._is_ready, SECONDS)
        except BaseException:
            self.close()
            raise

    @property
    def log(self):
        return "".join(self.errors) + "\n".join(self.lines)

    def _is_ready(self):
        assert self.process.poll() is None, self.log
        self.children.update(children_of(self.pid))
        return " ready." in self.log

    def close(self):
        self.children.update(children_of(self.pid) if self.process.poll() is None else [])
        for pid in [self.pid, *self.children]:
            if pid != self.pid or self.process.poll() is None:
                end(pid)
        super().close()


class Site:
    """A broker and a store that workers and the test share; and what the tasks say."""

    def __init__(self, url, directory, broker=None):
        self.directory = directory
        self.prefix = uuid.uuid4().hex
        self.count = 0
        self.options = {}
        self.events_path = directory / "events"
        self.env = {
            "JOBS_STORE": "redis",
            "JOBS_REDIS_URL": url,
            "JOBS_PREFIX": self.prefix,
            "JOBS_DIR": str(directory),
            "WORK_BROKER": broker or url,
            "WORK_RESULTS": url,
            "WORK_EVENTS": str(self.events_path),
        }
        self.caches = {
            "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "KEY_PREFIX": self.prefix}
        }
        self.app = Celery("client", set_as_current=False)
        self.app.conf.update(
            broker_url=broker or url,
            result_backend=url,
            broker_transport_options={"global_keyprefix": self.prefix},
            result_backend_transport_options={"global_keyprefix": self.prefix},
            task_default_queue=self.prefix,
        )
        self.workers = []

    def use_broker(self, url):
        """Have another broker, from now on."""
        self.env["WORK_BROKER"] = self.app.conf.broker_url = url
        self.app.conf.broker_transport_options = {}

    def worker(self, pool="prefork", *arguments, **how):
        self.workers.append(CeleryWorker(self, pool, *arguments, **how))
        return self.workers[-1]

    def send(self, task, *args, **options):
        return self.app.send_task(f"work.{task}", args, **options)

    def events(self, what=None, task_id=None):
        with contextlib.suppress(FileNotFoundError):
            # The last line may be on its way.
            found = [json.loads(line) for line in self.events_path.read_text().split("\n")[:-1]]
            return [e for e in found if what in (None, e["what"]) and task_id in (None, e["id"])]
        return []

    def started(self, sent, count=1, seconds=SECONDS):
        """Return the event of a task's start, the last of so many."""
        return wait_until(lambda: (self.events("start", sent.id)[count - 1 :] or [None])[0], seconds)

    def lease(self, name):
        """Look, as another machine would: no dead holder is followed."""
        return claim_backends["default"].lease(name)

    def free_within(self, name, seconds, since):
        """Wait until there is no lease, and return how long that took."""
        wait_until(lambda: self.lease(name) is None, seconds)
        return clock() - since

    def close(self):
        for worker in self.workers:
            worker.close()
            print(
                f"--- {worker.node}, exit status {worker.process.returncode}\n{worker.log}"
            )  # shown if the test fails
        self.app.backend.result_consumer.stop()
        self.app.backend.client.connection_pool.disconnect()
        self.app.close()
        pools.reset()
        gc.collect()


@pytest.fixture
def site(redis_server, tmp_path, settings):
    site = Site(redis_server.url, tmp_path)
    settings.CACHES = site.caches
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}
    yield site
    site.close()
    claim_backends.reset()


@pytest.fixture
def taken():
    """Hold a claim in this process: `with taken("task:work"):`."""

    @contextlib.contextmanager
    def take(name):
        with claim(name, ttl=60) as hold:
            yield hold

    return take


def said(worker, pattern):
    """Return what the log of a worker has of a pattern."""
    return re.findall(pattern, worker.log)


def measured(what, seconds):
    """Numbers for the docs: run with -rP to see them."""
    print(f"measured: {what}: {seconds:.2f} s", file=sys.stderr)


__all__ = ["measured", "said", "signal"]


class RabbitServer:
    """A private node, with an epmd of its own."""

    def __init__(self, directory, program):
        self.directory = directory
        self.directory.mkdir(parents=True)
        self.port = free_port()
        home = {
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"claims{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none.conf"),
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        (directory / "plugins").write_text("[].")
        self.env = {**os.environ, **home}
        self._log = (directory / "log").open("wb")
        # As a child of ours, that can be ended: the node would leave one behind.
        self._epmd = subprocess.Popen(["epmd"], env=self.env, stdin=subprocess.DEVNULL, stdout=self._log)
        self._process = subprocess.Popen(
            [program], env=self.env, cwd=directory, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            start_new_session=True,
        )  # fmt: skip
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        try:
            wait_until(self._answers, 60)
        except BaseException:
            self.stop()
            raise

    def _answers(self):
        assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
        return b"completed with" in (self.directory / "log").read_bytes()

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # a script, and the node that it has started
        self._process.wait(20)
        self._epmd.kill()
        self._epmd.wait(20)
        self._log.close()


RABBIT_PROGRAMS = ("/usr/lib/rabbitmq/bin/rabbitmq-server",)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    program = next((program for program in RABBIT_PROGRAMS if os.access(program, os.X_OK)), None)
    if program is None:
        missing("no rabbitmq-server")
    server = RabbitServer(tmp_path_factory.mktemp("rabbit") / "node", program)
    yield server.url
    server.stop()
