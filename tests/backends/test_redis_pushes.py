"""What Redis pushes to holders: stops, their ends and forced ends. Polls are kept away where a push is what counts."""

import contextlib
import os
import threading

import pytest
from django.test import override_settings

from django_claims import LossReason, claim, heartbeat, keeper
from django_claims.backends.listening import InLine
from django_claims.backends.reading import _Incomplete, parsed
from django_claims.backends.redis import RedisBackend
from django_claims.conf import AliasSettings
from django_claims.handler import claim_backends
from django_claims.test import wait_until
from tests.backends.test_redis import BACKEND, DJANGO, DJANGO_REDIS, let_go, take
from tests.helpers import stays, threads, tidy, wait_for_no_threads
from tests.servers import CommandLog, Proxy

_tidy = pytest.fixture(autouse=True)(tidy)
SOON = 5.0  # far below NEVER, whatever else the machine does
NEVER = 60.0


@pytest.fixture(autouse=True)
def no_polls(monkeypatch):
    """After the one that follows a subscription, no look at the store but for a push."""
    wait_for_no_threads_of_before(monkeypatch)
    monkeypatch.setattr(keeper, "POLL_SECONDS", NEVER)


def wait_for_no_threads_of_before(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(heartbeat, "IDLE_SECONDS", 0.1)
        wait_for_no_threads()


@pytest.fixture
def server(new_redis):
    return new_redis()


@pytest.fixture
def site():
    """Set CLAIMS to Redis: `site(server, other=server or url, …)`, a claims alias for each."""
    with contextlib.ExitStack() as stack:

        def make(default, cache_class=DJANGO_REDIS, **others):
            where = {"default": default, **others}
            stack.enter_context(
                override_settings(
                    CACHES={
                        alias: {"BACKEND": cache_class, "LOCATION": each if isinstance(each, str) else each.url}
                        for alias, each in where.items()
                    },
                    CLAIMS={alias: {"BACKEND": BACKEND, "OPTIONS": {"cache": alias}} for alias in where},
                )
            )

        yield make


def elsewhere():
    """Return a backend to act by as another process would: nothing of this process is told."""
    return RedisBackend(AliasSettings(alias="elsewhere", backend=BACKEND))


def stop(name, **how):
    how = {"keep": False, "fence": None, "reason": "r", "by": "ann", "ttl_ms": None, **how}
    return elsewhere().set_flag(name, **how)


def subscribers(server):
    """Return the connections of the server that are subscribed to something."""
    with contextlib.closing(server.client()) as client:
        return [each for each in client.client_list() if each["sub"] != "0"]


def listens(server):
    return wait_until(lambda: subscribers(server))


@pytest.mark.parametrize("cache_class", [DJANGO_REDIS, DJANGO])
def test_a_stop_of_another_process_is_pushed_and_so_is_its_end(server, site, cache_class):
    site(server, cache_class)
    with claim("job") as hold:
        listens(server)

        stop("job")

        assert hold.stop_event.wait(SOON)
        assert hold.stop_flag.by == "ann"
        wait_until(lambda: elsewhere().flag("job").seen_at)
        elsewhere().clear_flag("job")
        wait_until(lambda: not hold.stop_requested)


def test_a_kept_stop_is_pushed(server, site):
    site(server)
    with claim("job") as hold:
        listens(server)

        stop("job", keep=True)

        assert hold.stop_event.wait(SOON)


def test_a_forced_end_is_pushed(server, site):
    site(server)
    with claim("job") as hold:
        listens(server)

        assert elsewhere().force_release("job", hold.fence)

        assert hold.lost_event.wait(SOON)
        assert hold.loss_reason is LossReason.FORCED


def test_a_stop_that_was_set_before_this_process_listened_is_seen_when_it_does(server, site, monkeypatch):
    site(server)
    monkeypatch.setattr(keeper, "LISTEN_SECONDS", 0.3)
    with claim("job") as hold:
        stop("job")
        assert subscribers(server) == []

        assert hold.stop_event.wait(SOON)


def test_the_flag_of_another_name_that_a_hold_watches_is_pushed(server, site):
    from django_claims import hold as take_hold

    site(server)
    tripped = threading.Event()
    with take_hold("job", stop="all jobs", signal=tripped):
        listens(server)

        stop("all jobs", keep=True)

        assert tripped.wait(SOON)


def test_news_of_other_names_cost_nothing(server, site):
    site(server)
    take(elsewhere(), "not here")
    with claim("job") as hold:
        listens(server)
        with CommandLog(server) as log:
            stop("not here")
            stop("not here either", keep=True)
            stop("job")
            assert hold.stop_event.wait(SOON)
            wait_until(lambda: elsewhere().flag("job").seen_at)

    # Besides ours above: a look at the flags, and a renewal that says "seen".
    flags = [line for line in log.lines if line.startswith("EVALSHA")]
    assert "PUBLISH" in log.done
    assert log.done.count("HGETALL") == 1, flags


def test_one_connection_and_three_threads_do_for_any_number_of_holds(server, site):
    site(server)
    with contextlib.ExitStack() as stack:
        holds = [stack.enter_context(claim(f"job-{number}")) for number in range(50)]
        listens(server)

        stop("job-49")

        assert holds[49].stop_event.wait(SOON)
        assert len(subscribers(server)) == 1
        assert threads() == ["django-claims deadlines", "django-claims default", "django-claims listener"]


def test_each_further_alias_has_a_connection_of_its_own_and_one_thread_more(server, new_redis, site):
    second = new_redis()
    site(server, second=second)
    with claim("job") as first, claim("job", using="second") as other:
        listens(server)
        listens(second)

        stop("job")

        assert first.stop_event.wait(SOON)
        assert not other.stop_requested
        assert len(threads()) == 4


def test_a_subscription_that_was_cut_is_made_anew(server, site):
    proxy = Proxy(server.port)
    site(proxy)
    try:
        with claim("job") as hold:
            for number in range(3):
                (before,) = listens(server)

                proxy.cut()

                wait_until(lambda: [each["id"] for each in subscribers(server)] not in ([], [before["id"]]))  # noqa: B023
                stop_through(server, "job")
                assert hold.stop_event.wait(SOON), number
                clear_through(server, "job")
                wait_until(lambda: not hold.stop_requested)
    finally:
        proxy.close()


def through(server):
    with override_settings(CACHES={"default": {"BACKEND": DJANGO_REDIS, "LOCATION": server.url}}):
        return elsewhere()


def stop_through(server, name):
    return through(server).set_flag(name, keep=False, fence=None, reason="", by="", ttl_ms=None)


def clear_through(server, name):
    assert through(server).clear_flag(name)


def test_a_stop_while_nobody_listens_is_seen_when_the_server_is_back(new_redis, site, monkeypatch):
    monkeypatch.setattr(keeper, "POLL_SECONDS", 1.0)  # which sees to a new subscription as well
    server = new_redis(persistent=True)
    site(server)
    with claim("job") as hold:
        listens(server)
        flag_then_restart(server)

        assert hold.stop_event.wait(10)
        listens(server)


def flag_then_restart(server):
    """Set a flag in such a way that no push tells of it."""
    with contextlib.closing(server.client()) as client:
        client.client_kill_filter(_type="pubsub")
        stop("job")
    server.restart()


def test_without_the_right_to_channels_the_poll_does(server, site, caplog, monkeypatch):
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.2)
    with contextlib.closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "resetchannels", "+@all")
    site(f"redis://app:s3cret@127.0.0.1:{server.port}/0")
    with claim("job") as hold:
        wait_until(lambda: "No right to subscribe" in caplog.text)

        stop("job")

        assert hold.stop_event.wait(SOON)
        assert elsewhere().force_release("job", hold.fence)
        assert hold.lost_event.wait(SOON)
    assert caplog.text.count("No right to subscribe") == 1
    assert "s3cret" not in caplog.text


def test_channels_of_two_databases_are_two(server, site):
    site(server.url.replace("/0", "/3"))
    with claim("job") as hold:
        listens(server)
        stop_through(server, "job")
        stop_through(server, "job")

        through_zero = take(through(server), "job")
        stop_through(server, "job")

        assert stays(lambda: not hold.stop_requested, 0.3)
        let_go(through(server), through_zero)
    (channels,) = {each["sub"] for each in subscribers(server)} or {"2"}
    assert channels == "2"


def test_all_ends_when_nobody_holds(server, site, monkeypatch):
    monkeypatch.setattr(heartbeat, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.5)  # at which the thread finds that there is nothing left
    site(server)
    with claim("job"):
        listens(server)

    wait_until(lambda: subscribers(server) == [])
    wait_until(lambda: threads() == [])
    with claim("job") as hold:
        listens(server)
        stop("job")
        assert hold.stop_event.wait(SOON)


def test_short_holds_make_no_subscription(server, site, monkeypatch):
    monkeypatch.setattr(keeper, "LISTEN_SECONDS", 5.0)
    site(server)

    for number in range(50):
        with claim(f"job-{number}"):
            pass

    assert subscribers(server) == []


def test_a_forked_child_listens_for_itself_and_leaves_the_parents_alone(server, site):
    site(server)
    with claim("job") as hold:
        listens(server)
        pid = os.fork()
        if pid == 0:
            status = 1
            with contextlib.suppress(BaseException), claim("childs") as mine:
                wait_until(lambda: len(subscribers(server)) == 2)
                stop("childs")
                status = 0 if mine.stop_event.wait(SOON) else 2
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

        stop("job")

        assert hold.stop_event.wait(SOON)


def test_the_server_hears_when_a_process_that_has_children_ends(server, site):
    """A child would keep its parent's subscription alive, and waiters of the dead parent be called."""
    site(server)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            claim("job").acquire()  # dropped, but this process has no time for that
            with claim("kept"):
                listens(server)
                if os.fork() == 0:
                    os.close(write)
                    os.read(read, 1)  # until the test is over
        os._exit(0)
    os.close(read)
    try:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

        wait_until(lambda: subscribers(server) == [])
    finally:
        os.close(write)


def test_a_frozen_server_of_one_alias_keeps_no_push_of_another(server, new_redis, site):
    second = new_redis()
    site(server, second=second)
    with claim("job") as hold, claim("job", using="second"):
        listens(server)
        listens(second)
        with contextlib.closing(second.client()) as client:
            client.client_kill_filter(_type="pubsub")
        with second.frozen():
            stop("job")

            assert hold.stop_event.wait(SOON)


def test_a_receiver_that_fails_ends_no_subscription(server, site):
    site(server)
    with claim("job") as hold:
        listens(server)
        listening, called = claim_backends["default"]._listening, threading.Event()

        def broken():
            called.set()
            raise SystemExit

        number = listening.add(InLine(listening, ("job",), broken, (1, 1)))
        stop("job")

        assert hold.stop_event.wait(SOON)
        assert called.is_set()
        listening.remove(number)


def test_two_forced_ends_of_one_name_are_both_told(server, site):
    site(server)
    backend = elsewhere()
    runs = []
    for _ in range(3):
        runs.append(take(backend, "job"))
        assert backend.force_release("job", runs[-1].fence)

    told = {notice.forced_fence for notice in backend.poll()}
    outcomes = [answer.outcome.name for answer in backend.renew(runs)]

    assert told == {run.fence for run in runs}
    assert outcomes == ["FORCED"] * 3


# -- the protocol -------------------------------------------------------------------------------

WHOLE = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\nj\r\n\r\n>2\r\n$-1\r\n:7\r\n-NOPERM no\r\n%1\r\n+a\r\n_\r\n"


def test_messages_are_read_wherever_they_are_cut():
    for cut in range(len(WHOLE)):
        buffer, values = bytearray(), []
        for part in (WHOLE[:cut], WHOLE[cut:]):
            buffer += part
            with contextlib.suppress(_Incomplete):
                while True:
                    value, at = parsed(buffer)
                    values.append(value)
                    del buffer[:at]
        assert values[:2] == [[b"message", b"news", b"j\r\n"], [None, b"7"]]
        assert str(values[2]) == "NOPERM no"
        assert values[3] == [b"a", b""]
        assert not buffer
