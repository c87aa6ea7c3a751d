"""A pool that has found a child dead, and forgotten it, before anybody had a first look at that child."""

import os
import signal
import time
from types import SimpleNamespace

import django

django.setup()

from billiard.pool import Pool  # noqa: E402
from celery.concurrency import prefork  # noqa: E402

from django_claims import claim, claim_backends  # noqa: E402
from django_claims.clock import clock  # noqa: E402
from django_claims.contrib.celery import children  # noqa: E402


def begin():
    """What a child does; the first one only waits."""
    if os.environ.get("SECOND"):
        kept.append(claim("born", ttl=30).acquire())
        os.kill(os.getpid(), signal.SIGKILL)


def until(condition):
    ends = clock() + 20
    while not (found := condition()):
        assert clock() < ends
        time.sleep(0.02)
    return found


kept = []
pool = Pool(1, initializer=begin, threads=False)
worker = SimpleNamespace(pool=SimpleNamespace(_pool=pool), pool_cls=prefork.TaskPool)
children.KnowChildren(worker).start(worker)
children.look(worker)
os.kill(pool._pool[0].pid, signal.SIGKILL)
until(pool._join_exited_workers)
children.look(worker)

os.environ["SECOND"] = "1"
pool._create_worker_process(0)
until(pool._join_exited_workers)
assert pool._pool == [] and claim_backends["default"].lease("born") is not None
at = clock()
children.look(worker)
until(lambda: claim_backends["default"].lease("born") is None)
children.end_errands(5)
print(clock() - at, flush=True)
os._exit(0)  # the pool has nothing to wait for
