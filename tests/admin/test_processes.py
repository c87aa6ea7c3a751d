"""The pages and a real command in a process of its own, over a store that both see."""

import os
import signal

import pytest
from django.contrib.admin.models import LogEntry

from tests.admin.conftest import CHANGE, FLAGS, look, page, press
from tests.helpers import wait_until
from tests.processes import conftest as processes
from tests.servers import freeze

redis = processes.redis
children = processes.children
manage = processes.manage
NAME = "command:night.report"


@pytest.fixture
def shared_with(settings, redis):
    """Have the pages look into the store of the commands."""
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": redis.env["JOBS_REDIS_URL"],
            "KEY_PREFIX": redis.env["JOBS_PREFIX"],
        }
    }
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}
    return redis


def test_a_command_is_seen_moves_is_stopped_ends_and_its_row_goes(staff, manage, shared_with):
    job = manage(shared_with, "report", "--do", "track")
    job.says("ready")

    row = look(staff).row(NAME)
    assert "manage.py report" in row.text
    assert f"process {job.process.pid}" in row.text
    bars = {row.source.split("<progress")[1].split(">")[0]}
    wait_until(lambda: bars.add(look(staff).row(NAME).source.split("<progress")[1].split(">")[0]) or len(bars) > 1, 15)

    response = staff.post("/admin/django_claims/liveclaim/act/", {**look(staff).form("stop"), "reason": "enough"})
    done = job.done()
    assert done.code == 0, "stopped as an operator asked"
    assert "finally" in done.out
    wait_until(lambda: look(staff).names == [])
    assert f"{NAME}: has ended" in page(staff.get(response["Location"])).text
    assert "enough" in LogEntry.objects.get().get_change_message()


def test_what_is_kept_stopped_refuses_the_next_command_until_it_is_cleared(staff, manage, shared_with):
    press(staff, look(staff, CHANGE, f"default:{NAME}").form("keep_stopped"), reason="migration")

    refused = manage(shared_with, "report", "--do", "give").done()
    assert refused.code == 75
    assert "migration" in refused.err

    press(staff, look(staff, FLAGS).form("clear_stop"))
    assert manage(shared_with, "report", "--do", "give").done().code == 0


def test_a_frozen_command_is_overdue_and_can_be_released_by_force(staff, manage, shared_with):
    store = shared_with.with_claims(TTL=30, HEARTBEAT=0.5, RENEW_DEADLINE=20)
    job = manage(store, "report", "--do", "checkpoints")
    job.says("ready")
    freeze(job.process.pid)

    wait_until(lambda: "Heartbeat overdue" in look(staff).row(NAME).text, 15)
    question = press(staff, look(staff, CHANGE, f"default:{NAME}").form("force_release"))
    assert "Heartbeat overdue" in question.text
    press(staff, question.form("force_release"))
    wait_until(lambda: look(staff).names == [])
    os.kill(job.process.pid, signal.SIGCONT)

    assert job.done().code == 70, "it finds that it has lost"
