"""Our Redis connections: bounded in time, replaced when stale, never left with another's answer in them."""

import contextlib
import json
import signal
import threading

import pytest
from django.test import override_settings

from django_claims.backends.base import RenewRequest
from django_claims.backends.redis import RedisBackend
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable
from django_claims.test import wait_until
from tests.backends.test_redis import BACKEND, DJANGO_REDIS, LONG, PATIENCE, take
from tests.servers import Proxy


@pytest.fixture
def server(new_redis):
    return new_redis()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture(params=["hiredis", "python"])
def parser(request):
    """The options of each of the client's two parsers."""
    if request.param == "hiredis":
        return {}
    from redis._parsers import _RESP2Parser

    return {"CONNECTION_POOL_KWARGS": {"parser_class": _RESP2Parser, "protocol": 2}}


@pytest.fixture
def backend_of():
    """Make a backend: `backend_of(server, store_timeout, options)`."""
    with contextlib.ExitStack() as stack:

        def make(server, store_timeout=5.0, options=None):
            cache = {"BACKEND": DJANGO_REDIS, "LOCATION": server.url, "OPTIONS": options or {}}
            stack.enter_context(override_settings(CACHES={"default": cache}))
            backend = RedisBackend(AliasSettings(alias="default", backend=BACKEND, store_timeout=store_timeout))
            stack.callback(backend.close)
            return backend

        yield make


def assert_ends_within(seconds, call):
    started = clock()
    with pytest.raises(BackendUnavailable):
        call()
    assert clock() - started <= seconds


def test_connections_can_be_replaced_any_number_of_times(server, backend_of):
    backend = backend_of(server)
    run = take(backend, "job")

    for _ in range(300):
        backend.close()
        assert backend.held("job", run.token) is True


def test_an_error_of_a_first_connection_came_up_during_no_other(proxy, backend_of):
    backend = backend_of(proxy)
    proxy.close()

    with pytest.raises(BackendUnavailable) as refused:
        backend.lease("job")

    error, chain = refused.value, []
    while error is not None:
        chain.append(error)
        error = error.__cause__ or error.__context__
    assert chain[1:] and not any(isinstance(each, LookupError) for each in chain)


def test_connections_that_are_cut_can_be_replaced_any_number_of_times(proxy, backend_of):
    backend = backend_of(proxy)
    run = take(backend, "job")

    for _ in range(150):
        proxy.cut()
        with contextlib.suppress(BackendUnavailable):
            backend.held("job", run.token)
    assert backend.held("job", run.token) is True


def test_two_hundred_threads_can_ask_at_once(server, backend_of):
    backend = backend_of(server, store_timeout=20.0)
    run = take(backend, "job")
    errors, asking, barrier = [], [], threading.Barrier(200)

    def ask():
        barrier.wait(30)
        asking.append(1)
        try:
            assert backend.held("job", run.token) is True
        except BaseException as error:
            errors.append(error)

    with server.frozen():
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(200)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(asking) == 200, 30)
    for thread in threads:
        thread.join(30)

    assert errors == []


@pytest.mark.parametrize("fresh", [False, True], ids=["idle connection", "fresh connection"])
def test_an_answer_that_drips_in_is_late_all_the_same(proxy, backend_of, parser, fresh):
    backend = backend_of(proxy, 0.3, parser)
    run = take(backend, "job")
    if fresh:
        backend.close()
    proxy.drip = (10, 0.15)

    assert_ends_within(0.3 + PATIENCE, lambda: backend.lease("job"))

    proxy.drip = None
    assert backend.held("job", run.token) is True


def test_the_answers_of_several_scripts_share_one_bound(proxy, backend_of, parser):
    backend = backend_of(proxy, 0.4, parser)
    runs = [RenewRequest(f"job-{number}", "t" * 22, 1, LONG) for number in range(3500)]
    backend.renew(runs[:1])
    proxy.drip = (1000, 0.1)

    assert_ends_within(0.4 + PATIENCE, lambda: backend.renew(runs))


def test_a_question_that_nobody_reads_is_bounded_too(server, backend_of, parser):
    backend = backend_of(server, 0.3, parser)
    run = take(backend, "job")
    big = [run._replace(progress=json.dumps([0, 0, "x" * 50_000, 0])) for _ in range(300)]  # more than any buffer takes

    with server.frozen():
        assert_ends_within(0.3 + PATIENCE, lambda: backend.renew(big))


def test_a_connection_cut_in_mid_answer_is_not_used_again(proxy, backend_of, parser):
    backend = backend_of(proxy, 2.0, parser)
    run = take(backend, "job")
    proxy.drip = (10, 0.05)
    threading.Timer(0.2, proxy.cut).start()
    with contextlib.suppress(BackendUnavailable):
        backend.lease("job")
    proxy.drip = None

    assert backend.held("job", run.token) is True
    assert backend.flag("job") is None


class Interrupted(BaseException):
    """Raised by a signal handler, wherever the main thread is."""


def test_a_question_left_by_an_exception_of_the_callers_leaves_no_answer_behind(server, backend_of, parser):
    backend = backend_of(server, 5.0, parser)
    run = take(backend, "job")

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with server.frozen():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                backend.lease("job")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert backend.held("job", run.token) is True
    assert backend.flag("job") is None


def test_a_server_that_was_demoted_is_left_for_the_one_that_took_its_place(new_redis, proxy, server, backend_of):
    """As behind a name or an address that follows the primary: old connections stay with the old one."""
    backend = backend_of(proxy, 2.0)
    take(backend, "job")
    successor = new_redis()
    with contextlib.closing(server.client()) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", str(successor.port))
    proxy.target_port = successor.port

    with contextlib.suppress(BackendUnavailable):
        take(backend, "another")

    take(backend, "a third")
    with contextlib.closing(successor.client()) as client:
        assert client.exists(backend._lease_key("a third"))
