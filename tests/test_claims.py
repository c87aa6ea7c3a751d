"""The recipe, taking and leaving it, and the functions that ask by name."""

import dataclasses
import logging
import pickle
import subprocess
import sys
import threading

import pytest
from freezegun import freeze_time

from django_claims import (
    BackendUnavailable,
    Claim,
    ClaimHeld,
    ClaimLost,
    ClaimStopped,
    InvalidClaim,
    LossReason,
    StopRequested,
    claim,
    claim_backends,
    claims,
    clear_stop,
    current_hold,
    force_release,
    hold,
    list_claims,
    list_stop_flags,
    liveness,
    request_stop,
    stop_flag,
    trying,
)
from django_claims.backends import memory
from django_claims.clock import clock
from django_claims.holders import Holder, ProcessId, this_process
from tests.helpers import (
    FLAKY,
    ShiftedClock,
    calm,
    claims_settings,
    faults,
    listening,
    messages,
    run_in_thread,
    shift_holds,
    stays,
    taken,
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
calm = pytest.fixture(autouse=True)(calm)
taken = pytest.fixture(taken)
shifted = pytest.fixture(shift_holds)
heard = pytest.fixture(listening)


# The recipe.


def test_a_recipe_takes_nothing_and_asks_nobody():
    claim("x", key=1, ttl=5, timeout=None, on_lost="raise")

    assert faults.calls == []


def test_a_recipe_is_frozen_and_two_equal_ones_are_equal():
    recipe = claim("x", ttl=5)

    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.ttl_ms = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.name = "y"
    assert recipe == claim("x", ttl=5)
    assert pickle.loads(pickle.dumps(recipe)) == recipe


def test_everything_after_the_name_is_keyword_only():
    with pytest.raises(TypeError):
        claim("x", "key")


def test_a_ttl_of_its_own_brings_its_own_heartbeat_and_deadline():
    with claim("x", ttl=9) as held:
        assert (held.ttl_ms, held.heartbeat_ms, held.renew_deadline) == (9000, 3000, 6.0)


def test_the_values_of_the_alias_go_with_its_ttl_only(calm):
    calm.CLAIMS = claims_settings(TTL=60, HEARTBEAT=1, RENEW_DEADLINE=50)

    with claim("plain") as plain, claim("own", ttl=30) as own:
        assert (plain.heartbeat_ms, plain.renew_deadline) == (1000, 50.0)
        assert (own.heartbeat_ms, own.renew_deadline) == (10_000, 20.0)


@pytest.mark.parametrize(
    "durations",
    [
        {"ttl": 10, "heartbeat": 30},
        {"ttl": 10, "heartbeat": 10},
        {"ttl": 10, "renew_deadline": 10},
        {"ttl": 10, "heartbeat": 4, "renew_deadline": 7},
    ],
    ids=str,
)
def test_a_hold_that_is_certain_to_lapse_is_refused_when_the_claim_is_made(durations):
    with pytest.raises(InvalidClaim, match="should be"):
        claim("x", **durations)


def test_a_heartbeat_that_does_not_fit_the_alias_is_refused_before_anything_is_stored(calm):
    calm.CLAIMS = claims_settings(TTL=10)

    with pytest.raises(InvalidClaim, match=r"heartbeat \(30"):
        claim("x", heartbeat=30).acquire()

    assert faults.count("acquire") == 0


@pytest.mark.parametrize("ttl", [0.2, 0.5, 1, 1.9, 31 * 24 * 3600], ids=str)
def test_a_good_ttl_means_the_same_to_the_store(ttl):
    with claim("x", ttl=ttl):
        lease = claim("x").lease()

        assert lease.ttl == ttl
        assert ttl - 0.1 < lease.remaining <= ttl
        assert run_in_thread(claim("x").acquire) is None


def test_the_shortest_ttl_is_a_millisecond():
    recipe = claim("x", ttl=0.001)

    assert recipe.timing(None) == (1, 1, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"using": 5}, {"using": None}, {"on_lost": "explode"}, {"on_lost": None}, {"label": 5}, {"label": None}],
    ids=str,
)
def test_what_cannot_be_used_is_refused_by_its_value(wrong):
    with pytest.raises(InvalidClaim, match=str(next(iter(wrong.values())))):
        claim("x", **wrong)


def test_a_label_is_cut_and_put_on_one_line():
    with claim("x", label="a\nb" + "c" * 300) as held:
        assert len(held.label) == 200
        assert claim("x").lease().holder.label == held.label


# Taking.


def test_a_free_claim_is_taken_and_a_held_one_is_refused_at_once():
    first = claim("x").acquire()
    started = clock()

    second = run_in_thread(claim("x").acquire)

    assert first.held
    assert second is None
    assert clock() - started < 1
    first.release()


def test_a_timeout_of_nothing_tries_once(taken):
    before = faults.count("acquire")

    assert claim("x", timeout=0).acquire() is None

    assert faults.count("acquire") == before + 1


def test_a_waiter_gets_in_when_the_holder_leaves(taken):
    threading.Timer(0.2, taken.release).start()
    started = clock()

    held = claim("x", timeout=5).acquire()

    assert held.held
    assert 0.15 < clock() - started < 1
    held.release()


def test_a_wait_without_limit_ends_with_the_grant(taken):
    threading.Timer(0.2, taken.release).start()

    assert claim("x", timeout=None).acquire().release()


def test_a_waiter_that_waits_in_vain_is_refused_at_its_time(taken):
    started = clock()

    assert claim("x").acquire(timeout=0.5) is None

    assert 0.5 <= clock() - started < 1.0


def test_the_timeout_of_the_call_goes_before_that_of_the_recipe(taken):
    started = clock()

    assert claim("x", timeout=30).acquire(timeout=0) is None

    assert clock() - started < 1


@pytest.mark.parametrize("timeout", [-1, "5", True, float("nan")])
def test_a_timeout_that_cannot_be_used_is_refused_before_anything_is_asked(timeout):
    with pytest.raises(InvalidClaim, match="timeout"):
        claim("x").acquire(timeout=timeout)

    assert faults.calls == []


@pytest.mark.parametrize("jump", ["2031-01-01", "1999-01-01"])
def test_a_wait_does_not_mind_the_wall_clock(taken, jump):
    with freeze_time("2026-01-01") as frozen:
        threading.Timer(0.1, lambda: frozen.move_to(jump)).start()
        started = clock()

        refused = claim("x").acquire(timeout=0.6)
        took = clock() - started

    assert refused is None
    assert 0.6 <= took < 1.1


def test_a_waiter_gets_in_when_the_lease_of_a_dead_holder_ends():
    def dies():
        held = claim("x", ttl=0.6).acquire()
        faults.fail("renew")
        return held

    dead = run_in_thread(dies)
    started = clock()

    held = claim("x").acquire(timeout=30)

    assert 0.4 < clock() - started < 1.2
    assert held.fence > dead.fence
    faults.off("renew")
    held.release()


def test_a_waiter_that_is_still_granted_at_the_end_of_its_time_has_it(taken, monkeypatch):
    started = clock()

    def acquire(real, requests):
        if clock() - started >= 0.3:
            taken.release()
        return real(requests)

    faults.on("acquire", acquire)

    assert claim("x").acquire(timeout=0.3).release()


# with.


def test_with_gives_the_hold_and_frees_the_name():
    with claim("x") as held:
        assert current_hold() is held
        assert claim("x").available() is False

    assert claim("x").available() is True
    assert claim("x").lease() is None


def test_with_raises_who_has_it(taken):
    ran = []

    with pytest.raises(ClaimHeld) as refused, claim("x"):
        ran.append(True)

    assert ran == []
    assert refused.value.name == "x"
    assert refused.value.lease.fence == taken.fence
    assert f"(pid {refused.value.lease.holder.pid}" in str(refused.value)


def test_refused_by_one_who_has_just_ended_is_still_a_refusal(taken):
    from django_claims.backends.base import Refusal

    faults.on("acquire", lambda real, requests: Refusal("x"))

    with pytest.raises(ClaimHeld, match="has just ended") as refused, claim("x"):
        pass

    assert refused.value.lease is None


def test_one_recipe_is_shared_by_threads():
    recipe, inside, most, errors = claim("x", timeout=10), [], [], []

    def work():
        try:
            for _ in range(5):
                with recipe as held:
                    inside.append(held)
                    most.append(len(inside))
                    assert current_hold() is held
                    inside.remove(held)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work) for _ in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20)

    assert errors == []
    assert most == [1] * 25


def test_one_recipe_may_be_entered_again_after_it_was_left():
    recipe = claim("x")

    fences = []
    for _ in range(3):
        with recipe as held:
            fences.append(held.fence)

    assert fences == sorted(set(fences))


def test_a_recipe_left_in_another_context_says_what_to_do():
    recipe = claim("x")
    held = recipe.__enter__()

    with pytest.raises(RuntimeError, match="another context"):
        run_in_thread(lambda: recipe.__exit__(None, None, None))

    recipe.__exit__(None, None, None)
    assert not held.held


# Re-entry.


@pytest.mark.parametrize("timeout", [0, 5, None])
@pytest.mark.parametrize("how", ["same object", "another object"])
def test_taking_again_what_one_has_is_refused_at_once(timeout, how, caplog):
    recipe = claim("x", timeout=timeout)
    again = recipe if how == "same object" else claim("x", timeout=timeout)
    with recipe as outer:
        started = clock()

        with pytest.raises(ClaimHeld, match="already held by this very thread or task") as refused, again:
            pytest.fail("entered twice")
        assert again.acquire() is None

        assert clock() - started < 1
        assert refused.value.reentrant
        assert outer.held
        assert outer.verify()
    assert claim("x").available()
    assert messages(caplog, "Claim refused: this very thread or task holds it already name=x")


def test_re_entry_through_functions_releases_nothing_early():
    def inner():
        with claim("x", timeout=5):
            pytest.fail("entered twice")

    def outer():
        with claim("x", timeout=5) as held:
            with pytest.raises(ClaimHeld):
                inner()
            assert claim("x").available() is False
            return held

    held = outer()

    assert not held.held
    assert claim("x").available()


def test_other_threads_wait_as_always():
    with claim("x") as mine:
        waiter_result = []
        waiter = threading.Thread(target=lambda: waiter_result.append(claim("x", timeout=5).acquire()))
        waiter.start()
        assert stays(lambda: not waiter_result, 0.2)
        assert mine.held

    waiter.join(5)
    assert waiter_result[0].held
    waiter_result[0].release()


def test_the_same_name_on_another_alias_is_another_claim(calm):
    calm.CLAIMS = {"default": {"BACKEND": FLAKY}, "other": {"BACKEND": FLAKY}}

    with claim("x") as one, claim("x", using="other") as other:
        assert one.held
        assert other.held


def test_what_was_lost_can_be_taken_again_by_the_same_thread(shifted):
    with claim("x") as first:
        claim_backends["default"].force_release("x", first.fence)
        assert first.renew() is False

        with claim("x") as second:
            assert second.held
            assert second.fence > first.fence


# Leaving.


def test_leaving_after_a_loss_keeps_the_result_and_tells(shifted, heard, caplog):
    def work():
        with claim("x"):
            shifted.by = 41.0
            return 42

    result = work()

    assert result == 42
    assert heard.one("claim_lost")["reason"] is LossReason.EXPIRED
    (record,) = [r for r in caplog.records if r.getMessage().startswith("Work ended after its claim was lost")]
    assert record.levelno == logging.ERROR
    assert record.claim == "x"
    assert record.claim_alias == "default"


def test_leaving_after_another_took_it_touches_nothing_of_the_other(calm):
    store = ShiftedClock()
    calm.CLAIMS = claims_settings(TTL=60, OPTIONS={"clock": store})
    with claim("x") as held:
        store.by = 61.0
        other = run_in_thread(claim("x", ttl=30).acquire)
        assert held.renew() is False

    assert held.release() == "not_held"
    lease = claim("x").lease()
    assert lease.fence == other.fence
    assert lease.remaining > 29
    other.release()


class Interrupted:
    """Stands for the holds that are open in a context; a signal comes at the next change, after or before it."""

    def __init__(self, opened, at):
        self.opened, self.at = opened, at

    def get(self):
        if self.at == "get":
            self.at = ""
            raise KeyboardInterrupt
        return self.opened.get()

    def set(self, value):
        self.opened.set(value)
        if self.at == "set":
            self.at = ""
            raise KeyboardInterrupt


def test_a_signal_as_a_with_is_entered_leaves_no_hold_open(monkeypatch):
    monkeypatch.setattr(claims, "_opened", Interrupted(claims._opened, "set"))

    with pytest.raises(KeyboardInterrupt), claim("x"):
        raise AssertionError("the body began")

    assert claims._opened.get() == ()
    assert claim("x").lease() is None


@pytest.mark.parametrize("at", ["get", "set"])
def test_a_signal_as_a_with_is_left_leaves_no_hold_open(monkeypatch, at):
    recipe = claim("x")

    with pytest.raises(KeyboardInterrupt), recipe as hold:
        monkeypatch.setattr(claims, "_opened", Interrupted(claims._opened, at))

    assert claims._opened.get() == ()
    hold.release()  # what is not found any more, its finalizer lets go
    assert claim("x").lease() is None


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("fault", [BackendUnavailable("default", "down"), ValueError("a bug")], ids=repr)
def test_the_bodys_own_exception_wins_over_a_failing_release(error, fault, caplog):
    with pytest.raises(type(error)) as raised, claim("x"):
        faults.fail("release", error=fault)
        raise error

    assert raised.value is error
    assert error.__notes__ == ["Claim 'x' could not be released; it ends with its TTL at the latest."]
    del error.__notes__
    assert messages(caplog, "Release failed")


def test_a_failing_release_after_a_good_body_is_logged_and_raises_nothing(caplog):
    with claim("x"):
        faults.fail("release")

    (record,) = [r for r in caplog.records if r.getMessage().startswith("Release failed")]
    assert record.levelno == logging.WARNING


def test_a_hold_that_was_released_within_gets_no_note():
    with pytest.raises(ValueError, match="mine") as raised, claim("x") as held:
        held.release()
        raise ValueError("mine")

    assert getattr(raised.value, "__notes__", []) == []


def test_a_clean_exit_gets_no_note():
    with pytest.raises(ValueError, match="mine") as raised, claim("x"):
        raise ValueError("mine")

    assert getattr(raised.value, "__notes__", []) == []
    assert claim("x").available()


def test_on_lost_raise_raises_at_the_next_checkpoint(shifted):
    with pytest.raises(ClaimLost) as lost, claim("x", on_lost="raise") as held:
        shifted.by = 41.0
        held.checkpoint()
        pytest.fail("went on")

    assert lost.value.reason is LossReason.EXPIRED


def test_on_lost_raise_raises_at_exit(shifted):
    done = []

    with pytest.raises(ClaimLost) as lost, claim("x", on_lost="raise"):
        shifted.by = 41.0
        done.append(True)

    assert done == [True]
    assert (lost.value.name, lost.value.reason) == ("x", LossReason.EXPIRED)
    assert claim("x").lease() is None


def test_on_lost_raise_never_hides_the_bodys_exception(shifted):
    with pytest.raises(ValueError, match="mine"), claim("x", on_lost="raise"):
        shifted.by = 41.0
        raise ValueError("mine")


def test_on_lost_flag_raises_at_checkpoints_only(shifted):
    with claim("x") as held:
        shifted.by = 41.0
        with pytest.raises(ClaimLost):
            held.checkpoint()


def test_on_lost_cancel_is_for_tasks():
    with pytest.raises(InvalidClaim, match="async with"):
        claim("x", on_lost="cancel").acquire()

    assert faults.calls == []


# Three answers.


@pytest.fixture
def down():
    faults.fail(
        "acquire", "renew", "release", "held", "lease", "leases", "force_release",
        "set_flag", "flag", "flags", "clear_flag", "poll",
    )  # fmt: skip


@pytest.mark.parametrize(
    "ask",
    [
        lambda: claim("x").acquire(),
        lambda: claim("x").acquire(timeout=5),
        lambda: claim("x").__enter__(),
        lambda: claim("x").available(),
        lambda: claim("x").lease(),
        lambda: hold("x"),
        lambda: list_claims(),
        lambda: liveness("x"),
        lambda: force_release("x", fence=1),
        lambda: request_stop("x"),
        lambda: request_stop("x", keep=True),
        lambda: clear_stop("x"),
        lambda: stop_flag("x"),
        lambda: list_stop_flags(),
    ],
    ids=["acquire", "wait", "with", "available", "lease", "hold", "list_claims", "liveness", "force_release",
         "request_stop", "keep", "clear_stop", "stop_flag", "list_stop_flags"],
)  # fmt: skip
def test_a_store_that_is_down_is_neither_yes_nor_no(down, ask, heard):
    with pytest.raises(BackendUnavailable) as error:
        ask()

    assert error.value.alias == "default"
    assert error.value.__cause__ is not None
    assert heard.sent == []


def test_the_body_does_not_run_while_the_store_is_down(down):
    ran = []

    with pytest.raises(BackendUnavailable), claim("x"):
        ran.append(True)

    assert ran == []
    assert current_hold() is None


def test_a_store_that_comes_back_can_be_asked_again(down):
    with pytest.raises(BackendUnavailable):
        claim("x").acquire()

    faults.clear()

    assert claim("x").acquire(timeout=2).release()


# Asking.


def test_available_and_lease_take_nothing():
    assert claim("x").available() is True
    assert claim("x").lease() is None
    assert faults.count("acquire") == 0


def test_a_lease_tells_who_has_it(taken):
    lease = claim("x").lease()

    assert (lease.name, lease.alias, lease.state, lease.fence) == ("x", "default", "held", taken.fence)
    assert lease.holder.pid
    assert lease.ttl == 60.0


def test_liveness_is_read_off_the_lease(taken):
    assert liveness("x") == "running"
    assert liveness("y") == "interrupted"


def test_claims_are_listed_in_pages_in_order_of_name():
    holds = [claim(f"job {number:03}").acquire() for number in reversed(range(25))]

    first, third, beyond = (list_claims(page=page, per_page=10) for page in (1, 3, 9))

    assert [lease.name for lease in first] == [f"job {number:03}" for number in range(10)]
    assert [lease.name for lease in third] == [f"job {number:03}" for number in range(20, 25)]
    assert list(beyond) == []
    assert (first.total, first.page, first.per_page, first.complete) == (25, 1, 10, True)
    assert [lease.name for lease in list_claims(match="job 01*", per_page=3)] == ["job 010", "job 011", "job 012"]
    assert list_claims(match="job 01*").total == 10
    assert list_claims(match="none").total == 0
    for held in holds:
        held.release()


@pytest.mark.parametrize(
    "wrong",
    [{"page": 0}, {"page": True}, {"page": "1"}, {"per_page": 0}, {"per_page": 1001}, {"match": None}, {"match": 5}],
    ids=str,
)
def test_a_page_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidClaim):
        list_claims(**wrong)


def test_what_ended_between_list_and_look_is_simply_gone():
    with claim("x"):
        (listed,) = list_claims()

    assert claim(listed.name).lease() is None
    assert request_stop(listed.name, fence=listed.fence) is None
    assert force_release(listed.name, fence=listed.fence) is False


# Forcing.


def test_forcing_ends_the_run_that_was_meant_and_no_other(taken, heard, caplog):
    wrong = force_release("x", fence=taken.fence - 1)
    right = force_release("x", fence=taken.fence, by="ana\nb")
    again = force_release("x", fence=taken.fence)

    assert (wrong, right, again) == (False, True, False)
    assert heard.one("claim_force_released") == {
        "sender": Claim, "name": "x", "alias": "default", "fence": taken.fence, "by": "ana b"
    }  # fmt: skip
    assert messages(caplog, "Claim force-released name=x")


@pytest.mark.parametrize("fence", ["1", True, None, 1.0, -1])
def test_forcing_wants_the_number_of_a_run(fence):
    with pytest.raises(InvalidClaim, match="fence"):
        force_release("x", fence=fence)


def test_forcing_by_what_is_no_text_ends_nothing(taken):
    with pytest.raises(InvalidClaim, match="by should be text, not None"):
        force_release("x", fence=taken.fence, by=None)

    assert taken.verify()


# hold().


def test_hold_takes_what_is_free_and_gives_none_for_what_is_not(taken):
    assert hold("x") is None
    with hold("y", ttl=9, heartbeat=1) as held:
        assert (held.ttl_ms, held.heartbeat_ms) == (9000, 1000)


def test_hold_trips_an_event_on_a_stop_of_its_own():
    event = threading.Event()
    with hold("x", signal=event) as held:
        request_stop("x")

        assert event.wait(2)

        assert held.stop_requested


def test_hold_trips_on_the_flag_that_it_watches_besides():
    event = threading.Event()
    with hold("x", stop="all imports", signal=event) as held:
        assert request_stop("all imports", keep=True, reason="disk full")

        assert event.wait(2)

        assert held.stop_flag.name == "all imports"
        with pytest.raises(StopRequested, match="disk full"):
            held.checkpoint()
        assert claim("x").lease().state == "held", "the flag is not aimed at this claim"


def test_hold_sees_a_watched_flag_that_was_set_before_within_a_tick():
    request_stop("all imports", keep=True)

    event = threading.Event()
    with hold("x", stop="all imports", signal=event):
        assert event.wait(2)


def test_hold_calls_a_callable_on_a_loss_from_another_thread():
    called = []
    with hold("x", signal=lambda: called.append(threading.current_thread().name)) as held:
        force_release("x", fence=held.fence)

        wait_until(lambda: called, 2)

    assert called == ["django-claims default"]


def test_hold_trips_on_stop_and_on_loss():
    called = []
    with hold("x", signal=lambda: called.append((held.stop_requested, held.lost))) as held:
        request_stop("x")
        wait_until(lambda: len(called) == 1, 2)
        force_release("x", fence=held.fence)
        wait_until(lambda: len(called) == 2, 2)

    assert called == [(True, False), (True, True)]


@pytest.mark.parametrize("wrong", [{"signal": 5}, {"signal": "x"}, {"stop": ""}, {"stop": 5}, {"ttl": 0}], ids=str)
def test_hold_refuses_what_cannot_be_used_before_anything_is_taken(wrong):
    with pytest.raises(InvalidClaim):
        hold("x", **wrong)

    assert faults.calls == []


# Dead holders of this machine.


@pytest.fixture
def dead(monkeypatch):
    """Claim 'x' is held by a process that is over."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    holder = Holder(host="h", pid=child.pid, label="dead", processes=(ProcessId(this_process().space, child.pid, 1),))
    with monkeypatch.context() as patch:
        patch.setattr(trying, "this_holder", lambda label: holder)
        held = run_in_thread(claim("x").acquire)
    yield held
    held.release()


def test_what_a_dead_process_holds_is_taken_over_at_once_with_a_larger_fence(dead, caplog):
    assert claim("x").available() is True

    with claim("x") as held:
        assert held.fence > dead.fence
        assert claim("x").lease().holder.label != "dead"

    assert messages(caplog, "Taking over from a dead holder name=x")


def test_following_the_dead_can_be_turned_off_for_a_claim(dead):
    recipe = claim("x", follow_dead=False)

    assert recipe.available() is False
    assert recipe.acquire() is None


def test_following_the_dead_can_be_turned_off_for_an_alias(dead, calm):
    calm.CLAIMS = claims_settings(TTL=60, FOLLOW_DEAD=False)

    assert claim("x").available() is False
    assert claim("x").acquire() is None


def test_a_run_that_began_meanwhile_is_not_taken_over(dead):
    """Between the refusal that named the dead and the second try, another came first."""
    others = []

    def acquire(real, requests):
        answer = real(requests)
        if not others:
            others.append(True)
            real([requests[0]._replace(token="another", holder=trying.this_holder("another"), over_fence=dead.fence)])
        return answer

    faults.on("acquire", acquire)

    assert claim("x").acquire() is None

    assert claim("x").lease().holder.label == "another"
    faults.off("acquire")
    memory.forget("default")


def test_a_rest_of_a_dead_process_is_waited_out(monkeypatch):
    with claim("x", min_hold=30):
        pass

    assert claim("x").available() is False
    assert claim("x").acquire() is None


# Signals.


def test_signals_are_sent_with_what_is_documented_and_no_token(heard, monkeypatch):
    tokens = iter(f"SECRETTOKEN{number}" for number in range(10))
    monkeypatch.setattr(trying, "new_token", lambda: next(tokens))

    with claim("x") as held:
        run_in_thread(claim("x").acquire)
        request_stop("x", by="ana")
        wait_until(lambda: heard.all("stop_observed"), 2)
        clear_stop("x")
        force_release("x", fence=held.fence, by="ana")
        wait_until(lambda: heard.all("claim_lost"), 2)

    assert {name: sorted(about) for name, about in heard.sent} == {
        "claim_acquired": ["alias", "lease", "name", "sender", "waited"],
        "claim_refused": ["alias", "flag", "lease", "name", "sender", "waited"],
        "stop_requested": ["alias", "flag", "name", "sender"],
        "stop_observed": ["alias", "flag", "lease", "name", "sender"],
        "stop_cleared": ["alias", "flag", "name", "sender"],
        "claim_force_released": ["alias", "by", "fence", "name", "sender"],
        "claim_lost": ["alias", "held_for", "lease", "name", "reason", "sender"],
        "claim_released": ["alias", "held_for", "lease", "name", "result", "sender"],
        "claim_renewed": ["alias", "lease", "margin", "name", "sender", "took"],
    }
    renewals = len(heard.all("claim_renewed"))  # as many as it took until the store knew that the stop was seen
    assert len(heard.sent) == 8 + renewals, "each of the others once"
    for _, about in heard.sent:
        assert (about["sender"], about["name"], about["alias"]) == (Claim, "x", "default")
        assert "SECRETTOKEN" not in repr(about)
    assert heard.one("claim_refused")["lease"].fence == held.fence
    assert heard.one("claim_refused")["flag"] is None
    assert heard.one("claim_released")["result"] == "expired"


def test_a_receiver_that_fails_harms_nothing(caplog):
    from django_claims import signals

    def fails(**about):
        raise ValueError("x")

    every = [signals.claim_acquired, signals.claim_released, signals.claim_lost, signals.claim_refused]
    for signal in every:
        signal.connect(fails)
    try:
        with claim("x") as held:
            assert run_in_thread(claim("x").acquire) is None
            held.lose(LossReason.FORCED)
    finally:
        for signal in every:
            signal.disconnect(fails)

    assert claim("x").available()


def test_waited_and_held_for_are_seconds(taken, heard):
    heard.sent.clear()
    threading.Timer(0.3, taken.release).start()
    asked = clock()

    with claim("x", timeout=20):
        had = clock()
        wait_until(lambda: clock() > had + 0.1)
        left = clock()

    assert 0.2 < heard.one("claim_acquired")["waited"] <= had - asked
    assert left - had <= heard.all("claim_released")[-1]["held_for"] <= clock() - asked


def test_no_log_shows_a_token(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    tokens = iter(f"SECRETTOKEN{number}" for number in range(100))
    monkeypatch.setattr(trying, "new_token", lambda: next(tokens))
    faults.fail_in_turn("renew", BackendUnavailable("default"), ValueError("a bug"))

    with claim("x", ttl=0.9) as held:
        run_in_thread(claim("x").acquire)
        wait_until(lambda: faults.count("renew") >= 3, 3)
        force_release("x", fence=held.fence)
        wait_until(lambda: held.lost, 2)
    faults.lose_reply("acquire")
    with pytest.raises(BackendUnavailable):
        claim("y").acquire()
    faults.clear()
    faults.fail("release")
    claim("z").acquire().release()
    wait_until(lambda: messages(caplog, "A lease that may be left could not be deleted yet"), 2)

    assert len(caplog.records) > 8
    assert "SECRETTOKEN" not in caplog.text
    assert "SECRETTOKEN" not in repr([vars(record) for record in caplog.records])


# Kept stopped.


def test_a_claim_that_is_kept_stopped_is_refused_and_says_who(heard):
    flag = request_stop("x", keep=True, reason="bad feed", by="ana")

    with pytest.raises(ClaimStopped, match="kept stopped by ana") as refused, claim("x", timeout=30):
        pytest.fail("entered")

    assert refused.value.flag == flag
    assert claim("x").acquire() is None
    assert claim("x").available() is False
    assert hold("x") is None
    assert heard.all("claim_refused")[0]["flag"] == flag
