"""The only waiter of a process takes its call from the socket itself; see leading.py."""

import contextlib
import os
import select
import signal
import socket
import ssl
import threading

import pytest

from django_claims import claim, keeper, trying
from django_claims.backends import listening, reading
from django_claims.backends.leading import Gate, can_lead
from django_claims.test import wait_until
from tests.backends.test_redis import let_go, take
from tests.backends.test_redis_pushes import elsewhere, server, site, stop, subscribers
from tests.conftest import missing
from tests.helpers import tidy
from tests.servers import CommandLog

__all__ = ["server", "site"]
_tidy = pytest.fixture(autouse=True)(tidy)
LONG = 15.0


@pytest.fixture(autouse=True)
def on_linux():
    if not (hasattr(select, "epoll") and hasattr(os, "eventfd")):
        missing("epoll, by which a waiter takes the place of the thread that reads")


@pytest.fixture
def calls(monkeypatch):
    """What waiters took from the socket themselves, and what the thread that reads was told, on their channel."""
    taken, told = [], []
    take_one, tell = Gate._take, listening.Listening.told

    def taking(self, *args):
        words = take_one(self, *args)
        if words is not None:
            taken.append(words)
        return words

    def telling(self, channel, said):
        if channel == self._own:
            told.append(said)
        return tell(self, channel, said)

    monkeypatch.setattr(Gate, "_take", taking)
    monkeypatch.setattr(listening.Listening, "told", telling)
    return taken, told


def in_line(server, count=1):
    """Wait until so many stand in line for "job", and have somewhere to be told."""
    with contextlib.closing(server.client()) as client:
        return wait_until(lambda: sum(b"to:" in record for record in waiters(client)) == count, 10)


def waiters(client):
    return client.hvals(next(iter(client.keys("*lease:job\nwaiters")), "none"))


def release_when(server, run, count=1):
    """Let go of "job" in another thread, as soon as so many stand in line."""

    def work():
        in_line(server, count)
        let_go(elsewhere(), run)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_a_waiter_that_is_alone_takes_its_call_itself(server, site, calls):
    site(server)
    run = take(elsewhere(), "job")
    release_when(server, run)

    hold = claim("job").acquire(timeout=LONG)

    assert hold.fence > run.fence
    taken, told = calls
    assert [words.split(b" ")[0] for words in taken] == [str(hold.fence).encode()]
    assert told == []
    assert hold.release()


def test_who_has_waited_has_the_next_one_told_before_itself(server, site):
    """By a question before the release: a server answers the one first whom it has something to tell last."""
    site(server)
    for _ in range(2):  # the first time the server learns the script
        hold = claim("other").acquire(timeout=LONG)
        with CommandLog(server) as log:
            hold.release()
    assert log.asked == ["EVALSHA"]
    run = take(elsewhere(), "job")
    release_when(server, run)
    hold = claim("job").acquire(timeout=LONG)

    with CommandLog(server) as log:
        hold.release()

    assert log.asked == ["EXISTS", "EVALSHA"]


def test_two_waiters_of_one_process_are_told_by_the_thread(server, site, calls):
    site(server)
    run = take(elsewhere(), "job")
    fences = []

    def wait():
        with claim("job", timeout=LONG) as hold:
            fences.append(hold.fence)

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    release_when(server, run, 2)

    for thread in threads:
        thread.join(LONG)
    assert len(set(fences)) == 2


def test_news_reach_their_hold_while_another_claim_is_waited_for(server, site, calls):
    site(server)
    run = take(elsewhere(), "job")
    with claim("held") as held:
        wait_until(lambda: subscribers(server))

        def work():
            in_line(server)
            stop("held")
            wait_until(held.stop_event.is_set)
            let_go(elsewhere(), run)

        thread = threading.Thread(target=work)
        thread.start()
        hold = claim("job").acquire(timeout=LONG)

        assert held.stop_requested
        assert hold.release()
        thread.join(LONG)


@pytest.mark.parametrize("error", [TimeoutError, ValueError, KeyboardInterrupt])
def test_a_signal_that_raises_ends_the_wait_and_nothing_else(server, site, calls, error):
    """Whatever it raises, also what looks like a failure of the socket."""
    site(server)
    run = take(elsewhere(), "job")

    def handle(number, frame):
        raise error("told to")

    before = signal.signal(signal.SIGUSR1, handle)
    try:

        def interrupt():
            in_line(server)
            os.kill(os.getpid(), signal.SIGUSR1)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(error, match="told to"):
            claim("job").acquire(timeout=LONG)
        thread.join(LONG)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with contextlib.closing(server.client()) as client:
        wait_until(lambda: not waiters(client))
    connected = subscribers(server)[0]["id"]

    release_when(server, run)
    hold = claim("job").acquire(timeout=LONG)

    assert calls[0]  # the same way as ever
    assert subscribers(server)[0]["id"] == connected
    assert hold.release()


def test_a_subscription_that_ends_wakes_who_sleeps_on_it(server, site, calls):
    site(server)
    run = take(elsewhere(), "job")

    def work():
        in_line(server)
        with contextlib.closing(server.client()) as client:
            client.client_kill_filter(_id=subscribers(server)[0]["id"])
        wait_until(lambda: subscribers(server))
        let_go(elsewhere(), run)

    thread = threading.Thread(target=work)
    thread.start()

    hold = claim("job").acquire(timeout=LONG)

    thread.join(LONG)
    assert hold.release()


def test_a_stop_right_after_a_pushed_grant_is_seen_without_a_poll(server, site, monkeypatch):
    """The subscription is there since the wait, and until now nobody heard news by it."""
    site(server)
    monkeypatch.setattr(keeper, "POLL_SECONDS", 60.0)
    monkeypatch.setattr(trying, "CONFIRM_SECONDS", 60.0)
    run = take(elsewhere(), "job")
    release_when(server, run)
    hold = claim("job", ttl=300).acquire(timeout=LONG)

    stop("job")

    assert hold.stop_event.wait(5.0)
    assert hold.release()


def test_a_gate_that_was_left_shut_is_opened(server, site, monkeypatch):
    site(server)
    monkeypatch.setattr(reading, "PONG_SECONDS", 0.2)
    with claim("job") as hold:
        wait_until(lambda: subscribers(server))
        for subscription in wait_until(lambda: list(reading.reader._watched)):
            subscription.gate._epoll.modify(subscription.socket, 0)

        stop("job")

        assert hold.stop_event.wait(LONG)


def test_who_dies_while_reading_costs_the_subscription_and_no_more(server, site):
    site(server)
    with claim("job") as hold:
        first = wait_until(lambda: subscribers(server))[0]["id"]
        for subscription in wait_until(lambda: list(reading.reader._watched)):
            assert subscription.gate.reading.acquire(timeout=5)

        stop("job")

        assert hold.stop_event.wait(LONG)
        wait_until(lambda: [each["id"] for each in subscribers(server)] not in ([], [first]))


def test_only_a_plain_socket_is_looked_into():
    with (
        socket.socket() as plain,
        ssl.create_default_context().wrap_socket(socket.socket(), server_hostname="x") as tls,
    ):
        assert can_lead(plain)
        assert not can_lead(tls)
