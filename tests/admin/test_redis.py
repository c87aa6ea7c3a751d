"""The pages over a real Redis: few commands, no walk over its keys, and rows that a job's own process wrote."""

import re

import pytest

from django_claims.backends.base import AcquireRequest
from django_claims.backends.redis import RedisBackend
from django_claims.backends.wire import Connections
from django_claims.handler import claim_backends
from django_claims.holders import Holder
from tests.admin.conftest import CHANGE, FLAGS, LIST, ROWS, look, press


@pytest.fixture
def server(new_redis, settings):
    """A Redis of this test's own, as the store."""
    server = new_redis()
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}
    return server


@pytest.fixture
def sent(monkeypatch):
    """What the claims' connections send."""
    commands = []
    real = Connections.talk

    def talk(self, batch, *how):
        commands.extend(command[0] for command in batch)
        return real(self, batch, *how)

    monkeypatch.setattr(Connections, "talk", talk)
    return commands


def take(count, host="web-1", name="job:{:05d}"):
    backend = claim_backends["default"]
    for number in range(count):
        holder = Holder(host=host, pid=number + 2, label="manage.py job")
        backend.acquire([AcquireRequest(name.format(number), f"{number:032x}", 600_000, 60_000, holder)])


def test_a_page_takes_three_commands_and_no_walk_over_the_keys(staff, server, sent):
    client = server.client()
    pipeline = client.pipeline(transaction=False)
    for number in range(20_000):
        pipeline.set(f"session:{number}", "x")
    pipeline.execute()
    take(3000)
    look(staff)  # the server has the scripts now
    client.config_resetstat()

    for query in ({}, {"p": 2}, {"q": "job:02"}, {"group": "job"}, {"o": "-name", "p": 30}):
        sent.clear()
        assert len(look(staff, **query).names) == 100, query
        assert len(sent) <= 3, (query, sent)
        sent.clear()
        look(staff, ROWS, **query)
        assert len(sent) <= 3, (query, sent)

    assert not {"cmdstat_keys", "cmdstat_scan"} & client.info("commandstats").keys()


def test_a_search_for_a_holder_reads_all_bodies_in_one_round_trip(staff, server, sent):
    take(2500)
    take(3, host="db-7", name="other:{}")
    look(staff)  # the server has the scripts now
    sent.clear()

    page = look(staff, q="db-7")

    assert page.names == ["other:0", "other:1", "other:2"]
    assert len(sent) == 2 + 3, "flags, names, and the bodies a thousand a script"


def test_an_account_without_dangerous_commands_can_list_and_stop(staff, server, settings):
    server.client().execute_command(
        "ACL", "SETUSER", "web", "on", ">pw", "~*", "&*", "+@all", "-@dangerous", "-@admin", "+info"
    )  # fmt: skip
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": server.url.replace("redis://", "redis://web:pw@"),
        }
    }
    take(1)

    page = press(staff, look(staff).form("stop"))

    assert "was asked to stop" in page.text
    assert look(staff, FLAGS).names == ["job:00000"]


def test_a_server_that_is_gone_is_a_banner_on_every_page(staff, server):
    take(1)
    form = look(staff).form("stop")
    server.stop()

    for address, *args in ((LIST,), (FLAGS,), (CHANGE, "default:job:00000"), (ROWS,)):
        page = look(staff, address, *args)
        assert page.status == 200
        assert "gave no answer" in page.text
    page = press(staff, form)
    assert page.status == 200
    assert "nobody can tell" in page.text


def test_a_foreign_value_is_shown_as_unreadable_and_can_be_released(staff, server):
    take(1)
    client = server.client()
    key = next(key for key in client.keys("*lease*"))
    client.set(key, b"\x80\x04\x95pickle", px=60_000)

    page = look(staff)
    assert "Cannot be read" in page.row("job:00000").text
    confirm = press(staff, look(staff, CHANGE, "default:job:00000").form("force_release"))
    press(staff, confirm.form("force_release"))

    assert client.exists(key) == 0


def test_the_flag_of_a_run_that_is_over_is_not_shown(staff, server):
    take(1)
    press(staff, look(staff).form("stop"))
    client = server.client()
    client.delete(next(key for key in client.keys("*lease*")))

    assert look(staff, FLAGS).names == []
    assert not re.search("Stop asked", look(staff, CHANGE, "default:job:00000").text)


def test_a_run_that_ends_between_the_names_and_their_leases_is_left_out(staff, server, monkeypatch):
    take(3)
    form = look(staff).form("stop", "job:00001")
    real = RedisBackend.overview

    def overview(self):
        names, flags = real(self)
        for name in names:
            self.force_release(name, self.lease(name).fence)
        return names, flags

    with monkeypatch.context() as patch:
        patch.setattr(RedisBackend, "overview", overview)
        page = look(staff)

    assert page.status == 200
    assert page.names == []
    for address in (look(staff, CHANGE, "default:job:00001"), press(staff, form)):
        assert address.status == 200
        assert "already ended" in address.text


def test_many_stops_are_shown_in_pages(staff, server):
    backend = claim_backends["default"]
    for number in range(150):
        backend.set_flag(f"kept:{number:03d}", keep=True, fence=None, reason="", by="", ttl_ms=None)

    assert len(look(staff, FLAGS).names) == 100
    assert look(staff, FLAGS, p=2).names[-1] == "kept:149"
    assert look(staff, FLAGS, p="x").status == 200
