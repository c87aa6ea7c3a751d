"""
Work in several threads of the system, each with greenlets of its own: `hubs.py`.

gevent's thread pool is where greenlets send what blocks; a socket belongs to the thread that opened it.
"""

import gc
import os

from gevent import monkey

monkey.patch_all()

if os.environ.get("JOBS_PYMYSQL"):
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()

import time  # noqa: E402

import django  # noqa: E402
import gevent  # noqa: E402

django.setup()

from gevent.threadpool import ThreadPool  # noqa: E402

from django_claims import BackendUnavailable, claim, list_claims  # noqa: E402

TTL = 5


def work(name):
    with claim(name) as hold:
        list_claims()
        time.sleep(0.05)
        return hold.held and hold.verify()


def take(name):
    """Acquire; on a busy machine a new connection may take longer than one of so short a TTL waits."""
    for _ in range(20):
        try:
            return claim(name, ttl=TTL).acquire()
        except BackendUnavailable:
            time.sleep(0.1)
    raise AssertionError(name)


def long(name):
    """Hold for longer than the TTL; say whether it was kept."""
    with take(name) as hold:
        time.sleep(1.4 * TTL)
        return hold.held and hold.verify()


def wait(name):
    """Be refused, and then get it by waiting."""
    if claim(name).acquire() is not None:
        return False
    if not (hold := claim(name).acquire(timeout=10)):
        return False
    return bool(hold.release())


pool = ThreadPool(3)
# What renews is started by the first acquire: here in a thread that has nothing else to do afterwards.
kept = [pool.spawn(work, "first").get(timeout=20)]
kept.append(gevent.spawn(long, "after the first").get(timeout=30))
for turn in range(4):
    tasks = [pool.spawn(work, f"pool-{turn}-{number}") for number in range(6)]
    tasks += [gevent.spawn(work, f"here-{turn}-{number}") for number in range(4)]
    kept += [task.get(timeout=20) for task in tasks]
tasks = [pool.spawn(long, f"long-pool-{number}") for number in range(2)]
tasks += [gevent.spawn(long, f"long-here-{number}") for number in range(2)]
kept += [task.get(timeout=30) for task in tasks]
held = claim("waited for", ttl=TTL).acquire()
tasks = [pool.spawn(wait, "waited for"), gevent.spawn(wait, "waited for")]
gevent.sleep(1.0)
held.release()
kept += [task.get(timeout=30) for task in tasks]
print(sum(kept), len(kept), flush=True)
pool.kill()
gc.collect()
