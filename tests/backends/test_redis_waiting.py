"""Waiting in line on Redis: order, pushes, and what becomes of those who are dead, cut off or cancelled."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from hashlib import sha1
from types import SimpleNamespace

import pytest
from django.test import override_settings

from django_claims import ClaimStopped, acquiring, claim, claim_all, request_stop
from django_claims.backends import wire
from django_claims.backends.base import (
    LEAVE,
    AcquireRequest,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
    new_token,
)
from django_claims.backends.listening import Listening
from django_claims.backends.redis import RedisBackend
from django_claims.backends.scripts import SCRIPTS
from django_claims.clock import clock
from django_claims.conf import AliasSettings
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import Holder
from django_claims.test import wait_until
from tests.backends.test_redis import BACKEND, DJANGO_REDIS, LONG, let_go, set_flag, take
from tests.backends.test_redis_pushes import subscribers
from tests.conftest import import_or_missing
from tests.helpers import run_in_thread, stays, tidy
from tests.servers import CommandLog, Proxy

_tidy = pytest.fixture(autouse=True)(tidy)
POLL = 1.5  # what a waiter that hears nothing takes at most to ask again
PATIENCE = 10.0


@pytest.fixture
def server(new_redis):
    return new_redis()


@pytest.fixture
def site():
    """Set CLAIMS to Redis: `site(server or url)`."""
    with contextlib.ExitStack() as stack:

        def make(server):
            location = server if isinstance(server, str) else server.url
            cache = {"BACKEND": DJANGO_REDIS, "LOCATION": location}
            claims = {"default": {"BACKEND": BACKEND}}
            stack.enter_context(override_settings(CACHES={"default": cache}, CLAIMS=claims))

        yield make


@pytest.fixture
def no_polls(monkeypatch):
    """Have waiters ask only when they were told to: what comes in time was pushed, or noticed when it was due."""
    for verb, script in SCRIPTS.items():
        source = script.source.replace("POLL_MS, SOON_MS = 1500, 200", "POLL_MS, SOON_MS = 90000, 200")
        source = source.replace("STALE_US, LINE_MS = 3000, 1900000, 3000000, 10000", PATIENT)
        if source != script.source:
            monkeypatch.setitem(SCRIPTS, verb, SimpleNamespace(source=source, sha=sha1(source.encode()).hexdigest()))


PATIENT = "STALE_US, LINE_MS = 3000, 1900000, 120000000, 120000"


def process():
    """Return a backend as of a process of its own: it shares no subscription with another."""
    return RedisBackend(AliasSettings(alias=f"process-{uuid.uuid4().hex}", backend=BACKEND))


class InLine:
    """One who waits, a try at a time."""

    def __init__(self, *names, backend=None, ttl_ms=LONG, host="waiter"):
        self.names = names
        self.backend = backend or process()
        self.token = new_token()
        self.ttl_ms = ttl_ms
        self.host = host
        self.rung = threading.Event()
        self.waiter = self.backend.wait(names, self.rung.set)
        self.outcome = None
        self.ask()
        if isinstance(self.outcome, Refusal) and not self.waiter.place:
            assert self.waiter.pause(self.outcome) == 0  # it did not listen yet
            self.ask()

    def ask(self, place=None):
        if place is None:
            self.waiter.prepare(2.0)
            place = self.waiter.place
        holder = Holder(host=self.host, pid=1)
        self.outcome = self.backend.acquire(
            [
                AcquireRequest(name, self.token, self.ttl_ms, self.ttl_ms // 3, holder, None, place)
                for name in self.names
            ]
        )
        return self.outcome

    @property
    def is_refused(self):
        return isinstance(self.outcome, Refusal)

    @property
    def pause(self):
        return self.waiter.pause(self.outcome)

    @property
    def run(self):
        """What it was granted, confirmed."""
        grants = self.ask()
        assert isinstance(grants, list), grants
        return RenewRequest(self.names[0], self.token, grants[0].fence, self.ttl_ms)

    def is_granted(self):
        """Whether the store has granted it without being asked. Every name of it, by a look at the store."""
        return all(self.backend.held(name, self.token) for name in self.names)

    def die(self):
        """End as a killed process does: the server hears that its connection is closed."""
        subscription = self.backend._listening.subscription
        subscription.socket.shutdown(2)
        self.backend._listening._subscription = None

    def freeze(self):
        """Hear and ask no more, though the connection stays."""
        self.waiter.prepare = self.waiter.call = lambda *args: None

    def close(self):
        self.waiter.close()
        self.backend.release([ReleaseRequest(name, self.token) for name in self.names])
        self.backend.close()


@pytest.fixture
def line(server, site):
    """Put somebody in line: `line(*names)`."""
    site(server)
    everybody = []

    def stand(*names, **how):
        everybody.append(InLine(*(names or ("job",)), **how))
        return everybody[-1]

    yield stand
    for one in everybody:
        one.close()


def keys_of_lines(server):
    with contextlib.closing(server.client()) as client:
        return {key: client.pttl(key) for key in client.keys("*\n*")}


def delete_by_hand(server, backend, name):
    with contextlib.closing(server.client()) as client:
        assert client.delete(backend._lease_key(name)) == 1


def left_ms(server, backend, name):
    with contextlib.closing(server.client()) as client:
        return client.pttl(backend._lease_key(name))


# -- the line -----------------------------------------------------------------------------------


def test_a_release_grants_to_the_first_in_line_and_tells_nobody_else(server, line):
    backend = process()
    run = take(backend, "job")
    first, second, third = (line(host=f"web-{number}") for number in range(3))
    fences = [run.fence]

    for granted, others in ((first, (second, third)), (second, (third,)), (third, ())):
        assert let_go(backend, run) is Released.RELEASED

        assert backend.lease("job").holder.host == granted.host
        assert granted.is_granted()
        assert granted.rung.wait(PATIENCE)
        assert not any(other.rung.is_set() for other in others)
        run = granted.run
        fences.append(run.fence)
    assert fences == sorted(set(fences))
    assert let_go(third.backend, run) is Released.RELEASED
    assert backend.lease("job") is None
    assert keys_of_lines(server) == {}


def test_the_grant_comes_along_with_the_release_in_one_command(server, line):
    backend = process()
    let_go(backend, take(backend, "job"))
    run = take(backend, "job")
    waiting = line()

    with CommandLog(server) as log:
        let_go(backend, run)

    assert log.asked == ["EVALSHA"]
    assert waiting.is_granted()


def test_asking_again_keeps_the_place(server, line):
    backend = process()
    run = take(backend, "job")
    first, second = line(), line()
    for _ in range(3):
        first.ask()
        second.ask()
    first.ask()

    let_go(backend, run)

    assert first.is_granted() and not second.is_granted()


def test_who_releases_and_asks_again_goes_to_the_end(server, line):
    holder, waiting = line(), line()
    assert not holder.is_refused and waiting.is_refused
    let_go(holder.backend, holder.run)

    again = line(backend=holder.backend)

    assert again.is_refused
    assert again.outcome.lease.fence == waiting.run.fence


def test_a_grant_is_idempotent_and_whole_once_it_is_confirmed(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()
    let_go(backend, run)
    assert 0 < left_ms(server, backend, "job") <= 3000

    grants = [waiting.ask() for _ in range(3)]

    assert grants[0] == grants[1] == grants[2]
    assert left_ms(server, backend, "job") > 3000
    assert backend.lease("job").state == "held"
    assert [lease.name for lease in backend.leases(match="", page=1, per_page=10)] == ["job"]


def test_a_renewal_confirms_as_well(server, line):
    backend = process()
    run = take(backend, "job")
    waiting, next_one = line(), line()
    let_go(backend, run)
    lease = backend.lease("job")
    granted = RenewRequest("job", waiting.token, lease.fence, LONG)

    (with_progress,) = waiting.backend.renew([granted._replace(progress='[1,2,"x",0]')])
    (again,) = waiting.backend.renew([granted])

    assert with_progress.outcome is again.outcome is Renewal.RENEWED
    assert left_ms(server, backend, "job") > 3000
    assert backend.lease("job").progress.total == 2
    assert next_one.ask().again_ms > 1000  # it is told of no end of a grant
    assert waiting.run.fence == lease.fence


def test_a_short_ttl_is_not_made_longer_by_a_grant(server, line):
    backend = process()
    run = take(backend, "job")
    line(ttl_ms=400)

    let_go(backend, run)

    assert 0 < left_ms(server, backend, "job") <= 400


def test_a_stop_aimed_at_the_run_before_does_not_hit_the_one_in_line(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()
    set_flag(backend, "job")

    let_go(backend, run)

    assert waiting.is_granted()
    assert backend.flag("job") is None
    assert waiting.backend.renew([waiting.run])[0].flag is None


def test_a_forced_end_passes_the_name_on(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()

    assert backend.force_release("job", run.fence)

    assert waiting.is_granted()
    assert backend.renew([run])[0].outcome is Renewal.FORCED


def test_a_try_on_a_name_that_is_free_and_has_a_line_is_refused_and_passes_it_on(server, line):
    backend = process()
    take(backend, "job")
    waiting = line()
    delete_by_hand(server, backend, "job")  # as by an expiry, of which nobody is told
    assert backend.promised("job")
    assert claim("job").available() is False

    refusal = backend.acquire([AcquireRequest("job", new_token(), LONG, LONG // 3, Holder(host="x", pid=1))])

    assert isinstance(refusal, Refusal)
    assert refusal.lease.holder.host == "waiter"
    assert waiting.rung.wait(PATIENCE)
    assert waiting.run.fence == refusal.lease.fence


def test_a_name_without_a_line_is_promised_to_nobody(server, line):
    waiting = line()
    backend = process()
    assert not waiting.is_refused

    let_go(waiting.backend, waiting.run)

    assert not backend.promised("job")
    assert claim("job").available() is True


def test_a_kept_stop_calls_those_in_line_and_sends_them_home(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()
    set_flag(backend, "job", keep=True)
    assert waiting.rung.wait(PATIENCE)

    let_go(backend, run)
    assert backend.lease("job") is None

    assert waiting.ask().flag.keep
    assert keys_of_lines(server) == {}


def test_a_stop_that_is_kept_between_grant_and_confirmation_sends_home_too(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()
    let_go(backend, run)
    assert waiting.is_granted()

    set_flag(backend, "job", keep=True)

    assert waiting.ask().flag.keep
    assert backend.lease("job") is None


def test_a_resting_name_is_passed_on_when_its_time_is_over(server, line):
    backend = process()
    run = take(backend, "job")
    first, second = line(), line()
    let_go(backend, run, rest_ms=700)
    assert not first.is_granted()
    assert first.ask().again_ms <= 701
    assert second.ask().again_ms == 1500
    wait_until(lambda: backend.lease("job") is None)

    assert second.ask().lease is not None  # who asks first passes it on

    assert first.is_granted()


def test_the_last_try_leaves_the_line(server, line):
    backend = process()
    run = take(backend, "job")
    first, second = line(), line()

    assert first.ask(LEAVE).lease.fence == run.fence

    let_go(backend, run)
    assert second.is_granted() and not first.is_granted()


def test_a_release_by_the_token_leaves_the_line(server, line):
    """As after a cancelled wait: the token is deleted, whatever it may have."""
    backend = process()
    run = take(backend, "job")
    first, second = line(), line()

    assert first.backend.release([ReleaseRequest("job", first.token)]) == [Released.NOT_OWNER]

    let_go(backend, run)
    assert second.is_granted()
    assert second.backend.release([ReleaseRequest("job", second.token)]) == [Released.RELEASED]
    assert backend.lease("job") is None
    assert keys_of_lines(server) == {}


def test_a_crowd_that_died_leaves_nothing_behind(server, line):
    backend = process()
    take(backend, "job")
    for _ in range(30):
        line(backend=backend)

    keys = keys_of_lines(server)

    assert len(keys) == 2
    assert all(0 < left <= 10_000 for left in keys.values())


def test_all_keys_of_a_line_follow_the_caches_rule_and_share_the_slot(server, line):
    backend = process()
    take(backend, "job")
    line()

    assert all(
        b"{claims}" in key and key.startswith(backend._lease_key("job").encode()) for key in keys_of_lines(server)
    )


def test_names_that_look_like_keys_of_a_line_are_other_names(server, line):
    backend = process()
    take(backend, "job")
    line()

    for name in ("job line", "joblines", "job waiters", "job\u2028line"):
        take(backend, name)


# -- the dead -----------------------------------------------------------------------------------


def test_the_dead_are_passed_over_at_once_and_never_granted(server, line):
    backend = process()
    run = take(backend, "job")
    dead = [line() for _ in range(5)]
    living = line()
    for one in dead:
        one.die()
    wait_until(lambda: len(subscribers(server)) == 1)

    let_go(backend, run)

    assert living.is_granted()
    assert living.rung.wait(PATIENCE)
    assert living.run.fence > run.fence


def test_a_line_of_the_dead_does_not_keep_a_name(server, line):
    backend = process()
    run = take(backend, "job")
    for one in [line() for _ in range(3)]:
        one.die()
    wait_until(lambda: subscribers(server) == [])
    assert not backend.promised("job")

    let_go(backend, run)

    take(backend, "job")
    assert keys_of_lines(server) == {}


def test_those_who_are_there_and_do_not_answer_hold_the_living_up_for_two_seconds_all_together(server, line):
    backend = process()
    run = take(backend, "job")
    frozen = [line() for _ in range(4)]
    living = line()
    for one in frozen:
        one.freeze()
    started = clock()
    let_go(backend, run)

    while living.ask() and living.is_refused:
        assert clock() - started < 2.0 + PATIENCE
        living.rung.wait(living.pause)

    assert 1.8 < clock() - started < 3.5  # two of them, each on its own, would take 3.8 s
    assert frozen[0].ask(frozen[0].waiter.place).lease.holder.host == "waiter"  # too late, and behind all others


def test_a_waiter_that_is_late_but_alone_is_still_granted(server, line):
    backend = process()
    run = take(backend, "job")
    waiting = line()
    let_go(backend, run)
    time.sleep(2.2)  # longer than others would have to let it be

    assert not isinstance(waiting.ask(), Refusal)


def test_who_asks_no_more_loses_the_place_even_if_its_process_lives(server, line):
    backend = process()
    run = take(backend, "job")
    forgotten, living = line(), line()
    ends = clock() + 3.1
    while clock() < ends:
        living.ask()
        time.sleep(0.2)  # as often as a waiter without a push may ask

    let_go(backend, run)

    assert living.is_granted()
    assert not forgotten.is_granted()


def test_a_subscription_to_another_server_than_is_asked_is_found_out(server, new_redis, line):
    """As after a failover: the old primary still answers on the old connection."""
    other = new_redis()
    backend = process()
    take(backend, "job")
    mine = process()
    elsewhere = override_settings(CACHES={"default": {"BACKEND": DJANGO_REDIS, "LOCATION": other.url}})
    with elsewhere:
        wrong = process()._connections.connect
    right, mine._listening._connect = mine._listening._connect, wrong
    waiting = line(backend=mine)
    waiting.ask()
    assert mine._listening.is_on and waiting.outcome.again_ms is None
    mine._listening._connect = right

    assert waiting.pause < 1.0
    waiting.ask()

    assert waiting.outcome.again_ms is not None
    assert len(subscribers(server)) == 1
    wait_until(lambda: subscribers(other) == [])


# -- several names ------------------------------------------------------------------------------


def test_who_wants_several_names_is_called_when_all_are_free(server, line):
    backend = process()
    a, b = take(backend, "a"), take(backend, "b")
    both = line("a", "b")
    let_go(backend, a)
    assert not both.rung.is_set()

    let_go(backend, b)

    assert both.rung.wait(PATIENCE)
    assert backend.promised("a") and backend.promised("b")
    assert isinstance(backend.acquire([AcquireRequest("a", new_token(), LONG, 1, Holder(host="x", pid=1))]), Refusal)
    assert not isinstance(both.ask(), Refusal)
    assert keys_of_lines(server) == {}


def test_nobody_lies_idle_for_want_of_another_name(server, line):
    backend = process()
    a, b = take(backend, "a"), take(backend, "b")
    line("a", "b")
    single = line("a")

    let_go(backend, a)

    assert single.is_granted()
    assert let_go(backend, b) is Released.RELEASED
    take(backend, "b")  # nor by one that does not wait


def test_in_a_crowd_several_names_get_their_turn(server, line):
    """Each name goes from hand to hand without a gap, and is never free when the other is."""
    backend = process()
    runs = {name: take(backend, name) for name in ("a", "b")}
    both = line("a", "b")
    crowd = {name: line(name) for name in runs}
    ends = clock() + 14.0  # two rounds of who is passed over for how long
    at = 0
    while clock() < ends:
        name = "ab"[at % 2]
        at += 1
        both.ask()
        if not both.is_refused:
            break
        # One lets go and stands in line anew, before the other does.
        let_go(backend, runs[name])
        if crowd[name].is_granted():
            granted = crowd[name]
            runs[name] = granted.run
            granted.waiter.close()
            crowd[name] = line(name, backend=granted.backend)
        else:
            crowd[name].ask()
        time.sleep(0.02)

    assert not both.is_refused
    assert both.is_granted()


def test_sets_that_overlap_do_not_wait_for_each_other(server, line):
    backend = process()
    runs = [take(backend, name) for name in "abc"]
    waiting = [line("a", "b"), line("b", "c"), line("a", "c"), line("b")]
    for run in runs:
        let_go(backend, run)
    done = []

    ends = clock() + 20
    while len(done) < len(waiting):
        assert clock() < ends, f"{len(done)} of {len(waiting)}"
        for one in waiting:
            if one not in done:
                one.ask()
                if not one.is_refused:
                    done.append(one)
                    one.backend.release([ReleaseRequest(name, one.token) for name in one.names])

    assert keys_of_lines(server) == {}


# -- acquire() ----------------------------------------------------------------------------------


def wait_in_thread(name, timeout=30.0, **recipe):
    """Wait in another thread; return how to see what came of it: `(thread, outcome)`."""
    outcome = {}

    def wait():
        try:
            with claim(name, timeout=timeout, **recipe) as hold:
                outcome["at"] = clock()
                outcome["fence"] = hold.fence
                outcome["remaining"] = hold.remaining()
                outcome["release"].wait(PATIENCE)
        except BaseException as error:
            outcome["at"] = clock()
            outcome["error"] = error

    outcome["release"] = threading.Event()
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread, outcome


def in_line(server, name="job", count=1):
    """Wait until so many stand in line."""
    with contextlib.closing(server.client()) as client:
        key = process()._lease_key(name) + "\nline"
        wait_until(lambda: client.zcard(key) >= count, 60)


def finish(thread, outcome):
    outcome["release"].set()
    thread.join(10)
    assert not thread.is_alive()


def test_a_waiting_acquire_begins_with_the_push_and_is_confirmed_by_a_renewal(server, site, no_polls):
    site(server)
    backend = process()
    run = take(backend, "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    with CommandLog(server) as log:
        let_go(backend, run)
        wait_until(lambda: "at" in outcome)
        wait_until(lambda: left_ms(server, backend, "job") > 3000)

    assert [line.split(" ")[0] for line in log.lines if "EVALSHA" in line][:1] == ["EVALSHA"]
    assert log.asked.count("EVALSHA") <= 4  # the release, the confirmation, perhaps a look at flags: no try
    assert 0 < outcome["remaining"] <= 1.3
    assert outcome["fence"] == backend.lease("job").fence
    finish(thread, outcome)
    assert backend.lease("job") is None


def test_a_push_that_comes_late_is_confirmed_by_a_try(server, site, monkeypatch):
    site(server)
    monkeypatch.setattr(acquiring, "FRESH_SECONDS", -1.0)
    backend = process()
    run = take(backend, "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    let_go(backend, run)

    wait_until(lambda: "at" in outcome)
    assert outcome["remaining"] > 60
    finish(thread, outcome)


def test_twenty_waiters_share_a_subscription_and_cost_less_than_a_command_a_second(server, site, monkeypatch):
    site(server)
    backend = process()
    run = take(backend, "job", ttl_ms=600_000)
    waiters = [wait_in_thread("job") for _ in range(20)]
    in_line(server, count=20)
    with contextlib.closing(server.client()) as client:
        wait_until(lambda: len(client.client_list()) <= 3 + wire.FEW + 2, 10)
    assert len(subscribers(server)) == 1

    with CommandLog(server) as log:
        time.sleep(4.0)  # what they ask in that time is what is tested

    assert 0 < log.asked.count("EVALSHA") < 20 * 4.0
    let_go(backend, run)
    for _ in waiters:
        wait_until(lambda: any("at" in outcome and thread.is_alive() for thread, outcome in waiters))
        thread, outcome = next(one for one in waiters if "at" in one[1] and one[0].is_alive())
        finish(thread, outcome)
    assert all("error" not in outcome for _, outcome in waiters)
    assert keys_of_lines(server) == {}


def test_a_lease_that_was_deleted_by_hand_leaves_no_waiter_asleep(server, site):
    site(server)
    backend = process()
    take(backend, "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    delete_by_hand(server, backend, "job")

    wait_until(lambda: "fence" in outcome, POLL + PATIENCE)
    finish(thread, outcome)


def test_a_server_that_forgot_everything_leaves_no_waiter_asleep(server, site):
    site(server)
    backend = process()
    take(backend, "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    with contextlib.closing(server.client()) as client:
        client.flushall()

    wait_until(lambda: "fence" in outcome, POLL + PATIENCE)
    finish(thread, outcome)


def test_the_end_of_a_lease_is_noticed_when_it_comes(server, site, no_polls):
    site(server)
    backend = process()
    take(backend, "job", ttl_ms=700)
    started = clock()
    thread, outcome = wait_in_thread("job")

    wait_until(lambda: "fence" in outcome)

    assert outcome["at"] - started > 0.6
    finish(thread, outcome)


def test_min_hold_is_respected_in_line(server, site, no_polls):
    site(server)
    started = clock()
    hold = claim("job", min_hold=0.8).acquire()
    thread, outcome = wait_in_thread("job")
    in_line(server)
    hold.release()

    wait_until(lambda: "fence" in outcome)

    assert outcome["at"] - started > 0.7
    finish(thread, outcome)


def test_a_holder_of_this_machine_that_is_killed_is_noticed_without_the_store(server, site, no_polls):
    site(server)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER_PROGRAM, server.url], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        assert child.stdout.readline() == b"held\n"
        thread, outcome = wait_in_thread("job")
        in_line(server)
        child.kill()
        child.wait(10)

        wait_until(lambda: "fence" in outcome, PATIENCE)

        finish(thread, outcome)
    finally:
        child.kill()
        child.communicate()


SETTINGS = """
import sys, django
from django.conf import settings
settings.configure(
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": sys.argv[1]}},
    CLAIMS={"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}},
)
django.setup()
from django_claims import claim
"""
HOLDER_PROGRAM = (
    SETTINGS
    + """
hold = claim("job").acquire()
print("held", flush=True)
sys.stdin.read()
"""
)
WAITER_PROGRAM = (
    SETTINGS
    + """
print("waits", flush=True)
hold = claim("job", timeout=60).acquire()
print("held", flush=True)
sys.stdin.read()
"""
)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_killed_waiters_hold_up_nobody(server, site, no_polls, by):
    site(server)
    backend = process()
    run = take(backend, "job")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WAITER_PROGRAM, server.url], stdout=subprocess.PIPE, stdin=subprocess.PIPE
        )
        for _ in range(3)
    ]
    try:
        in_line(server, count=3)
        thread, outcome = wait_in_thread("job")
        in_line(server, count=4)
        for child in children:
            child.send_signal(by)
            child.wait(10)

        let_go(backend, run)

        wait_until(lambda: "fence" in outcome, PATIENCE)
        finish(thread, outcome)
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_a_waiter_whose_subscription_is_cut_subscribes_anew_and_keeps_its_place(server, site, no_polls):
    proxy = Proxy(server.port)
    site(proxy)
    try:
        thread, outcome = None, None
        backend = process()
        run = take(backend, "job")
        thread, outcome = wait_in_thread("job")
        in_line(server)
        (before,) = subscribers(server)

        with contextlib.closing(server.client()) as client:
            client.client_kill_filter(_id=before["id"])
        wait_until(lambda: [each["id"] for each in subscribers(server)] not in ([], [before["id"]]))
        behind = InLine("job")
        let_go(backend, run)

        wait_until(lambda: "fence" in outcome, PATIENCE)
        assert not behind.is_granted()
        finish(thread, outcome)
        behind.close()
    finally:
        proxy.close()


def test_a_store_that_dies_while_one_waits_is_told(server, site):
    site(server)
    take(process(), "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    server.stop()

    wait_until(lambda: "error" in outcome, 15)
    assert isinstance(outcome["error"], BackendUnavailable)
    thread.join(10)


def test_without_the_right_to_channels_waiters_look_and_keep_their_order(server, site):
    with contextlib.closing(server.client()) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">s3cret", "~*", "resetchannels", "+@all")
    site(f"redis://app:s3cret@127.0.0.1:{server.port}/0")
    backend = process()
    run = take(backend, "job")
    first = wait_in_thread("job")
    in_line(server, count=1)
    second = wait_in_thread("job")
    in_line(server, count=2)

    let_go(backend, run)

    wait_until(lambda: "fence" in first[1])
    assert "at" not in second[1]
    finish(*first)
    wait_until(lambda: "fence" in second[1])
    finish(*second)


def test_on_a_full_server_a_waiter_waits_without_a_place(new_redis, site):
    server = new_redis("--maxmemory-policy", "noeviction")
    site(server)
    backend = process()
    run = take(backend, "job")
    with contextlib.closing(server.client()) as client:
        client.config_set("maxmemory", 1)
        thread, outcome = wait_in_thread("job")
        assert stays(lambda: "at" not in outcome, 0.5), outcome
        client.config_set("maxmemory", 0)
    let_go(backend, run)

    wait_until(lambda: "fence" in outcome)
    finish(thread, outcome)


def test_a_kept_stop_sends_a_waiter_home_at_once(server, site, no_polls):
    site(server)
    take(process(), "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)

    request_stop("job", keep=True, reason="enough")

    wait_until(lambda: "error" in outcome)
    assert isinstance(outcome["error"], ClaimStopped)
    thread.join(10)


@pytest.mark.parametrize("timeout", [0.05, 0.4])
def test_a_wait_that_is_over_leaves_nothing_behind(server, site, timeout):
    site(server)
    take(process(), "job")
    started = clock()

    assert run_in_thread(lambda: claim("job", timeout=timeout).acquire()) is None

    assert timeout <= clock() - started < timeout + 5.0
    wait_until(lambda: keys_of_lines(server) == {})


class Interrupted(BaseException):
    """Raised by a signal handler."""


def test_a_wait_that_a_signal_interrupts_leaves_nothing_behind(server, site):
    site(server)
    backend = process()
    run = take(backend, "job")

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(Interrupted):
            claim("job", timeout=30).acquire()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    wait_until(lambda: keys_of_lines(server) == {})
    let_go(backend, run)
    take(backend, "job")


def test_claim_all_waits_for_all_of_its_names(server, site, no_polls):
    site(server)
    backend = process()
    a, b = take(backend, "a"), take(backend, "b")
    outcome = {}

    def wait():
        with claim_all("a", "b", timeout=30) as hold:
            outcome["names"] = hold.names

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    in_line(server, "a")
    in_line(server, "b")
    let_go(backend, b)
    let_go(backend, a)

    wait_until(lambda: "names" in outcome)
    assert outcome["names"] == ("a", "b")
    thread.join(10)
    assert keys_of_lines(server) == {}


# -- tasks, greenlets, children -----------------------------------------------------------------


def test_waiting_tasks_sleep_on_the_loop_and_are_called(server, site):
    site(server)
    backend = process()
    run = take(backend, "job")
    order, ticks = [], []

    async def wait(number):
        async with claim("job", timeout=30):
            order.append(number)

    async def main():
        tasks = []
        for number in range(10):
            tasks.append(asyncio.create_task(wait(number)))
            while not tasks[-1].done():
                await asyncio.sleep(0.01)
                if await asyncio.to_thread(line_length, server) > number:
                    break
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        ticks.append(asyncio.get_running_loop().time() - before)
        let_go(backend, run)
        await asyncio.wait_for(asyncio.gather(*tasks), 20)

    asyncio.run(main())

    assert order == list(range(10))
    assert ticks[0] < 1.0
    assert len(subscribers(server)) == 1
    assert keys_of_lines(server) == {}


def line_length(server):
    with contextlib.closing(server.client()) as client:
        return client.zcard(process()._lease_key("job") + "\nline")


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_line(server, site):
    site(server)
    backend = process()
    run = take(backend, "job")

    async def main():
        task = asyncio.create_task(claim("job", timeout=30).aacquire())
        while await asyncio.to_thread(line_length, server) < 1:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    wait_until(lambda: keys_of_lines(server) == {})
    let_go(backend, run)
    take(backend, "job")


GEVENT_PROGRAM = (
    """
from gevent import monkey
monkey.patch_all()
import gevent, gevent.event, time
"""
    + SETTINGS
    + """
from django_claims import request_stop
ticks = []
def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.02)
gevent.spawn(tick)
order = []
go = gevent.event.Event()
def work(number):
    with claim("job", timeout=30):
        go.wait(20)
        order.append(number)
greenlets = []
import redis
client = redis.Redis.from_url(sys.argv[1])
for number in range(5):
    greenlets.append(gevent.spawn(work, number))
    while number and not order and client.zcard(":1:{claims}:lease:job\\nline") < number:
        gevent.sleep(0.01)
    while not client.exists(":1:{claims}:lease:job"):
        gevent.sleep(0.01)
go.set()
gevent.joinall(greenlets, timeout=20)
longest = max(b - a for a, b in zip(ticks, ticks[1:]))
with claim("stopped") as hold:
    gevent.sleep(0.5)
    gevent.spawn_later(0.1, request_stop, "stopped")
    assert hold.stop_event.wait(5)
print(order, longest < 5, flush=True)
"""
)


def test_greenlets_wait_without_keeping_the_others(server):
    import_or_missing("gevent")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GEVENT_PROGRAM, server.url],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.stdout == "[0, 1, 2, 3, 4] True\n", done.stderr


def test_a_forked_child_waits_for_itself(server, site):
    site(server)
    backend = process()
    run = take(backend, "job")
    thread, outcome = wait_in_thread("job")
    in_line(server)
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException), claim("job", timeout=30):
            status = 0
        os._exit(status)
    in_line(server, count=2)

    let_go(backend, run)

    wait_until(lambda: "fence" in outcome)
    finish(thread, outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_channel_says_nothing_of_tokens(server, site):
    site(server)
    backend = process()
    run = take(backend, "job")
    heard, told = [], Listening.told

    def hear(self, channel, said):
        heard.append(said.decode())
        return told(self, channel, said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Listening, "told", hear)
        waiting = InLine("job")
        let_go(backend, run)
        assert waiting.rung.wait(PATIENCE)

    assert heard and waiting.token not in "".join(heard)
    waiting.close()
