"""Clocks that are turned: that they are, and what a store's clock costs that is set forward."""

import json
import os
import subprocess
import sys

import pytest
from django.test import override_settings

from django_claims import LossReason, claim
from django_claims.test import wait_until
from tests.conftest import missing
from tests.faults import clocks
from tests.helpers import run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

LOOK = """
import json, sys, time
from datetime import datetime
from pathlib import Path
from tests.faults import clocks
clocks.follow(sys.argv[1])
from django_claims.clock import clock, wall
def look():
    return [time.time(), time.clock_gettime(time.CLOCK_REALTIME), wall().timestamp(), clock(), time.monotonic()]
before = look()
clocks.turn(Path(sys.argv[1]), -3600)
time.sleep(0.05)
print(json.dumps([after - at for at, after in zip(before, look())]))
"""


@pytest.mark.parametrize("how", ["by the library", "by patches"])
def test_the_wall_clock_of_a_process_is_turned_and_no_other(tmp_path, how):
    if how == "by the library" and not clocks.library():
        missing("no C compiler")
    env = clocks.environment() if how == "by the library" else {}

    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path / "clock")], env={**os.environ, **env, "PYTHONPATH": "."},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    *walls, boot, monotonic = json.loads(done.stdout)
    assert all(-3600 < difference < -3500 for difference in walls)
    assert 0.04 < boot < 60 and 0.04 < monotonic < 60


def test_a_store_whose_clock_is_set_forward_ends_leases_early_and_keeps_the_order_of_fences(new_redis, tmp_path):
    """Not promised, and this is what it costs: exclusion, for as long as the holder takes to ask again."""
    if not clocks.library():
        missing("no C compiler")
    server = new_redis()
    clocks.turn(tmp_path / "clock", 0)
    server.stop()
    server.env = clocks.environment(tmp_path / "clock")
    server.start()
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
    backend = {"BACKEND": "django_claims.backends.redis.RedisBackend", "TTL": 6}
    with override_settings(CACHES=caches, CLAIMS={"default": backend}):
        hold = claim("job").acquire()
        clocks.turn(tmp_path / "clock", 3600)

        other = run_in_thread(lambda: claim("job").acquire())

        assert other is not None
        assert other.fence > hold.fence + 3599_000_000
        assert wait_until(lambda: hold.lost, 5), "told with its next heartbeat"
        assert hold.loss_reason in (LossReason.TAKEN, LossReason.FORGOTTEN)
        clocks.turn(tmp_path / "clock", 0)
        assert hold.release() is not None
        assert other.release()

        with claim("job") as after:
            assert after.fence == other.fence + 1, "also when it is set back"
