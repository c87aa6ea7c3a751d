"""The live object between acquire and release."""

import copy
import gc
import pickle
import threading
import time

import pytest
from freezegun import freeze_time

from django_claims import (
    BackendUnavailable,
    ClaimLost,
    InvalidClaim,
    LossReason,
    ReleaseResult,
    claim,
    claim_backends,
    current_hold,
    force_release,
    list_claims,
    liveness,
    registry,
    trying,
)
from django_claims.backends import memory
from django_claims.backends.base import AcquireRequest, ReleaseRequest, RenewRequest
from django_claims.clock import clock
from django_claims.keeper import Orphan, keeper_of
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
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
calm = pytest.fixture(autouse=True)(calm)
shifted = pytest.fixture(shift_holds)
heard = pytest.fixture(listening)


@pytest.fixture
def store_clock(settings):
    """A clock of the store's own, that can be moved."""
    moved = ShiftedClock()
    settings.CLAIMS = claims_settings(TTL=60, OPTIONS={"clock": moved})
    return moved


def take_elsewhere(name="x", **recipe):
    return run_in_thread(claim(name, **recipe).acquire)


# What it says.


def test_a_hold_says_what_it_has():
    with claim("x", label="my job") as hold:
        lease = claim("x").lease()

        assert (hold.name, hold.names, hold.label, hold.fence) == ("x", ("x",), "my job", lease.fence)
        assert hold.held
        assert not hold.lost
        assert hold.loss_reason is None
        assert not hold.stop_requested
        assert hold.stop_flag is None
        assert not hold.lost_event.is_set()
        assert not hold.stop_event.is_set()
        assert hold.lease.expires_at == lease.expires_at
        assert hold.lease.holder == lease.holder
        assert 39 < hold.remaining() <= 40


def test_after_release_it_neither_holds_nor_is_lost(shifted):
    hold = claim("x").acquire()
    hold.release()

    shifted.by = 1000.0

    assert (hold.held, hold.lost, hold.loss_reason, hold.remaining()) == (False, False, None, 0.0)
    assert hold.renew() is False
    assert hold.verify() is False
    assert not hold.lost_event.is_set()


def test_fences_grow_with_every_grant():
    fences = []
    for _ in range(20):
        with claim("x") as hold:
            fences.append(hold.fence)

    assert fences == sorted(set(fences))


def test_a_fence_is_larger_also_after_the_store_lost_its_data():
    with claim("x") as first:
        memory.forget("default")
        second = take_elsewhere()

    assert second.fence > first.fence
    second.release()


# Held by comparison.


def test_held_compares_the_clock_though_no_thread_runs(shifted, heard, caplog):
    with claim("x") as hold:
        shifted.by = 41.0  # as after SIGSTOP or a suspended machine

        assert hold.held is False
        assert hold.lost is True
        assert hold.loss_reason is LossReason.EXPIRED
        assert hold.remaining() == 0.0
        assert hold.lost_event.is_set()
        assert heard.one("claim_lost")["reason"] is LossReason.EXPIRED
        assert len(messages(caplog, "Claim lost name=x")) == 1


@pytest.mark.parametrize("look", ["held", "lost", "loss_reason"])
def test_each_look_alone_finds_the_loss(shifted, look):
    with claim("x") as hold:
        before = getattr(hold, look)
        shifted.by = 41.0

        after = getattr(hold, look)

    assert (before, after) == {
        "held": (True, False), "lost": (False, True), "loss_reason": (None, LossReason.EXPIRED)
    }[look]  # fmt: skip


def test_lost_is_sticky(shifted):
    with claim("x") as hold:
        shifted.by = 41.0
        assert hold.lost

        shifted.by = 0.0

        assert hold.lost
        assert not hold.held
        assert hold.renew() is False
        assert hold.verify() is False


def test_the_deadline_counts_from_before_the_request_was_sent():
    faults.delay("acquire", 0.3)

    with claim("x", ttl=3) as hold:
        assert hold.remaining() <= 1.7


def test_the_deadline_of_a_renewal_counts_from_before_it_was_sent():
    with claim("x", ttl=3, heartbeat=0.9) as hold:
        faults.delay("renew", 0.3)

        assert hold.renew()

        assert 1.0 < hold.remaining() <= 1.7


def test_a_renewal_that_was_sent_before_another_takes_nothing_back():
    with claim("x") as hold:
        faults.delay("renew", 0.3)
        slow = threading.Thread(target=hold.renew)
        slow.start()
        wait_until(lambda: faults.count("renew"))
        faults.off("renew")
        hold.renew()
        deadline = hold.deadline

        slow.join(5)

        assert hold.deadline == deadline


def test_the_renew_deadline_can_be_chosen():
    with claim("x", ttl=60, heartbeat=1, renew_deadline=10) as hold:
        assert 9 < hold.remaining() <= 10


def test_frozen_time_neither_loses_nor_freezes_a_hold():
    with freeze_time("2001-01-01") as frozen, claim("x", ttl=0.9) as hold:
        first = hold.deadline
        frozen.move_to("2031-01-01")

        wait_until(lambda: hold.deadline > first + 0.9, 3)

        assert hold.held
        assert hold.remaining() > 0
        frozen.move_to("1999-01-01")
        assert stays(lambda: hold.held, 0.7)


def test_frozen_time_does_not_keep_a_lost_hold():
    with freeze_time("2001-01-01"), claim("x", ttl=0.6) as hold:
        faults.fail("renew")

        assert hold.lost_event.wait(2)

        assert not hold.held


# Why it is lost.


def test_forgotten_when_the_store_lost_the_lease():
    with claim("x") as hold:
        memory.forget("default")

        assert hold.renew() is False

        assert hold.loss_reason is LossReason.FORGOTTEN
        assert claim("x").lease() is None, "a renewal never creates a lease"


def test_expired_when_the_lease_is_gone_after_its_ttl(shifted):
    with claim("x") as hold:
        memory.forget("default")
        requests = hold.renew_requests()
        sent_at = shifted()
        answers = claim_backends["default"].renew(requests)
        shifted.by = 60.0

        hold.renewed(sent_at, answers)

        assert hold.loss_reason is LossReason.EXPIRED


def test_forgotten_when_the_stores_clock_was_set_forward(store_clock):
    with claim("x") as hold:
        store_clock.by = 61.0

        assert hold.renew() is False

        assert hold.loss_reason is LossReason.FORGOTTEN


def test_taken_when_another_has_it(store_clock):
    with claim("x") as hold:
        store_clock.by = 61.0
        other = take_elsewhere()

        assert hold.renew() is False

        assert hold.loss_reason is LossReason.TAKEN
        assert other.held
        assert other.verify()
        assert other.fence > hold.fence
        other.release()


def test_forced_when_an_operator_ended_it():
    with claim("x") as hold:
        claim_backends["default"].force_release("x", hold.fence)

        assert hold.renew() is False

        assert hold.loss_reason is LossReason.FORCED


def test_forced_also_when_another_has_it_meanwhile():
    with claim("x") as hold:
        claim_backends["default"].force_release("x", hold.fence)
        other = take_elsewhere()

        assert hold.renew() is False

        assert hold.loss_reason is LossReason.FORCED
        other.release()


def test_the_first_reason_stands(heard):
    with claim("x") as hold:
        hold.lose(LossReason.FORCED)
        hold.lose(LossReason.EXPIRED)

        assert hold.loss_reason is LossReason.FORCED
    assert len(heard.all("claim_lost")) == 1


def test_max_hold_ends_a_healthy_hold():
    with claim("x", ttl=0.9, max_hold=1.2) as hold:
        started = clock()

        assert hold.lost_event.wait(3)

        assert 1.0 < clock() - started < 1.6
        assert hold.loss_reason is LossReason.MAX_HOLD


def test_max_hold_below_the_ttl_caps_the_deadline(shifted):
    with claim("x", max_hold=5) as hold:
        assert 4 < hold.remaining() <= 5
        shifted.by = 5.0

        assert hold.loss_reason is LossReason.MAX_HOLD


def test_a_hold_beyond_max_hold_is_renewed_no_more_and_ends_with_its_ttl():
    hold = claim("x", ttl=0.9, max_hold=0.7).acquire()
    assert hold.lost_event.wait(2)
    before = faults.count("renew")

    wait_until(claim("x").available, 2)

    assert faults.count("renew") == before
    assert hold.release() is ReleaseResult.EXPIRED


def test_a_watched_hold_is_renewed_for_as_long_as_its_work_says_so():
    with claim("x", ttl=0.9) as hold:
        ends = clock() + 1.5
        while clock() < ends:
            hold.keep_for(0.7)
            assert hold.held
            time.sleep(0.01)

        wait_until(lambda: hold.lost, 3)
        assert clock() - ends < 0.9
        assert hold.loss_reason is LossReason.MAX_HOLD


def test_a_watched_hold_lasts_no_longer_than_max_hold(shifted):
    with claim("x", max_hold=5) as hold:
        hold.keep_for(600)
        shifted.by = 4.9
        assert hold.held
        shifted.by = 5
        assert hold.loss_reason is LossReason.MAX_HOLD


def test_leaving_after_max_hold_frees_the_name_at_once():
    with claim("x", max_hold=0.1) as hold:
        assert hold.lost_event.wait(2)

    assert claim("x").lease() is None


# Asking the store.


@pytest.mark.parametrize("ask", ["renew", "verify"])
def test_a_question_about_a_hold_takes_half_its_heartbeat_at_most(ask):
    times = []

    def answer(real, *args):
        times.append(real.__self__.verb_timeout())
        return real(*args)

    faults.on("renew", answer)
    faults.on("held", answer)

    with claim("x", ttl=3).acquire() as held:  # the store has 5 s otherwise
        assert getattr(held, ask)()

    assert 0 < times[-1] <= 0.5


def test_renew_pushes_the_expiry_back():
    with claim("x") as hold:
        before = claim("x").lease().expires_at
        deadline = hold.deadline

        assert hold.renew() is True

        assert claim("x").lease().expires_at > before
        assert hold.deadline > deadline


@pytest.mark.parametrize("verb, method", [("renew", "renew"), ("held", "verify")])
def test_without_an_answer_it_is_still_held_and_nobody_can_tell(verb, method):
    with claim("x") as hold:
        faults.fail(verb)

        with pytest.raises(BackendUnavailable) as error:
            getattr(hold, method)()

        assert error.value.alias == "default"
        assert isinstance(error.value.__cause__, ConnectionRefusedError)
        assert hold.held


def test_verify_asks_the_store(store_clock):
    with claim("x") as hold:
        first = hold.verify()
        store_clock.by = 61.0
        other = take_elsewhere()

        second = hold.verify()

        assert (first, second) == (True, False)
        assert hold.loss_reason is LossReason.TAKEN
        other.release()


def test_ensure_does_nothing_while_enough_is_left():
    with claim("x") as hold:
        hold.ensure(30)
        hold.ensure()

        assert faults.count("renew") == 0


def test_ensure_renews_when_too_little_is_left(monkeypatch):
    with claim("x", ttl=3, heartbeat=0.9) as hold:
        wait_until(lambda: hold.remaining() < 1.9)

        hold.ensure(1.95)

        assert faults.count("renew") == 1
        assert hold.remaining() > 1.9


def test_ensure_gives_the_renew_deadline_itself():
    with claim("x") as hold:
        hold.ensure(40)

        assert faults.count("renew") == 1


@pytest.mark.parametrize("seconds", [40.1, 60])
def test_ensure_of_more_than_there_can_ever_be_is_invalid(seconds):
    with claim("x") as hold, pytest.raises(InvalidClaim, match=r"renew deadline.*raise the TTL"):
        hold.ensure(seconds)


@pytest.mark.parametrize("seconds", ["5", True, -1, float("nan"), None])
def test_ensure_of_what_is_no_duration_is_invalid(seconds):
    with claim("x") as hold, pytest.raises(InvalidClaim):
        hold.ensure(seconds)


def test_ensure_of_more_than_max_hold_leaves_is_lost_to_the_caller_only():
    with claim("x", max_hold=5) as hold:
        with pytest.raises(ClaimLost):
            hold.ensure(10)

        assert hold.held


def test_ensure_without_an_answer_cannot_promise():
    with claim("x") as hold:
        faults.fail("renew")

        with pytest.raises(ClaimLost) as error:
            hold.ensure(40)

        assert isinstance(error.value.__cause__, BackendUnavailable)
        assert hold.held


def test_ensure_of_a_lost_or_released_hold_is_lost(shifted):
    released = claim("y").acquire()
    released.release()
    with claim("x") as hold:
        shifted.by = 41.0

        with pytest.raises(ClaimLost) as error:
            hold.ensure()
        with pytest.raises(ClaimLost):
            released.ensure()

        assert error.value.reason is LossReason.EXPIRED


# Release.


def test_release_frees_the_name_at_once_and_only_once():
    hold = claim("x").acquire()

    first, second = hold.release(), hold.release()

    assert (first, second) == (ReleaseResult.RELEASED, ReleaseResult.NOT_HELD)
    assert bool(first)
    assert not second
    assert claim("x").lease() is None


def test_release_works_from_another_thread():
    hold = claim("x").acquire()

    assert run_in_thread(hold.release)

    assert claim("x").available()
    assert current_hold() is None


def test_of_two_releases_at_once_one_is_the_release():
    hold = claim("x").acquire()
    barrier, results = threading.Barrier(8), []

    def release():
        barrier.wait(5)
        results.append(hold.release())

    workers = [threading.Thread(target=release) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(5)

    assert sorted(results) == [ReleaseResult.NOT_HELD] * 7 + [ReleaseResult.RELEASED]


def test_release_of_what_has_ended_by_itself_is_expired():
    hold = claim("x").acquire()
    memory.forget("default")

    assert hold.release() is ReleaseResult.EXPIRED


def test_release_never_touches_the_lease_of_another(store_clock):
    hold = claim("x").acquire()
    store_clock.by = 61.0
    other = take_elsewhere()
    before = claim("x").lease()

    results = [hold.release(), hold.release()]

    after = claim("x").lease()
    assert results == [ReleaseResult.NOT_OWNER, ReleaseResult.NOT_HELD]
    assert (after.fence, after.expires_at) == (before.fence, before.expires_at)
    assert other.verify()
    other.release()


@pytest.mark.parametrize("error", [None, ValueError("a bug"), OSError()], ids=repr)
def test_release_raises_nothing_and_is_unknown_when_the_store_fails(error, caplog, heard):
    hold = claim("x").acquire()
    faults.fail("release", error=error)

    result = hold.release()

    assert result is ReleaseResult.UNKNOWN
    assert not result
    assert not hold.held
    assert len(messages(caplog, "Release failed; the lease ends with its TTL at the latest name=x")) == 1
    assert heard.one("claim_released")["result"] is ReleaseResult.UNKNOWN


def test_a_release_without_an_answer_is_done_when_the_store_is_back():
    hold = claim("x").acquire()
    faults.fail("release")
    hold.release()
    assert claim("x").lease() is not None

    faults.off("release")

    wait_until(lambda: claim("x").lease() is None, 4)


def test_release_takes_no_longer_than_the_store_timeout(calm):
    calm.CLAIMS = {"default": {"BACKEND": FLAKY, "TTL": 60, "STORE_TIMEOUT": 0.3}}

    def frozen(real, requests):
        threading.Event().wait(real.__self__.verb_timeout())  # what a backend must do
        raise BackendUnavailable("default", "timed out")

    hold = claim("x").acquire()
    faults.on("release", frozen)
    faults.on("renew", frozen)
    keeper_of("default").renew_by(hold.token, 0.0)
    wait_until(lambda: faults.count("renew"))
    started = clock()

    result = hold.release()

    assert result is ReleaseResult.UNKNOWN
    assert clock() - started < 0.45


def test_a_ctrl_c_within_the_release_is_passed_on_and_the_lease_is_deleted_all_the_same():
    hold = claim("x").acquire()
    faults.fail_in_turn("release", KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        hold.release()

    wait_until(lambda: claim("x").lease() is None, 2)


def test_a_lost_hold_that_leaves_deletes_its_own_lease(shifted):
    hold = claim("x").acquire()
    shifted.by = 41.0
    assert hold.lost
    assert claim("x").lease() is not None

    hold.release()

    assert claim("x").lease() is None


# Resting.


def test_a_minimum_hold_outlives_the_exit_but_not_more_than_its_time():
    started = clock()
    with claim("x", min_hold=0.6):
        pass

    lease = claim("x").lease()
    assert (lease.state, lease.holder) == ("resting", None)
    assert 0 < lease.remaining <= 0.6
    assert claim("x").acquire() is None
    assert claim("x").available() is False
    assert liveness("x") == "interrupted"
    assert [found.state for found in list_claims()] == ["resting"]
    wait_until(claim("x").available, 2)
    assert 0.55 < clock() - started < 0.9


def test_a_waiter_gets_in_when_the_rest_is_over():
    with claim("x", min_hold=0.4):
        pass

    assert claim("x", timeout=2).acquire().release()


def test_a_hold_longer_than_its_minimum_leaves_no_rest(shifted):
    hold = claim("x", min_hold=5).acquire()
    shifted.by = 5.0

    assert hold.release()

    assert claim("x").lease() is None


def test_a_lost_hold_leaves_no_rest(shifted):
    hold = claim("x", min_hold=50).acquire()
    shifted.by = 41.0
    assert hold.lost

    hold.release()

    assert claim("x").lease() is None


def test_a_minimum_above_the_ttl_rests_to_its_end():
    with claim("x", ttl=0.6, min_hold=30):
        pass

    assert claim("x").lease().remaining > 29


def test_a_resting_lease_can_be_forced_free():
    with claim("x", min_hold=30) as hold:
        pass

    assert force_release("x", fence=hold.fence)

    assert claim("x").available()


# "with hold:".


def test_a_hold_is_released_by_its_own_with():
    with claim("x").acquire() as hold:
        assert hold.held

    assert claim("x").available()


def test_leaving_with_hold_after_a_loss_keeps_the_result_and_the_bodys_exception(shifted, heard, caplog):
    def work(error):
        with claim("x").acquire():
            shifted.by += 41.0
            if error:
                raise error
            return 42

    with pytest.raises(ValueError, match="mine"):
        work(ValueError("mine"))
    result = work(None)

    assert result == 42
    assert len(heard.all("claim_lost")) == 2
    assert len(messages(caplog, "Claim lost name=x")) == 2


def test_leaving_with_hold_after_a_loss_raises_if_that_was_asked_for(shifted):
    with pytest.raises(ClaimLost) as error, claim("x", on_lost="raise").acquire():
        shifted.by = 41.0

    assert error.value.reason is LossReason.EXPIRED


def test_the_bodys_own_exception_gets_a_note_when_with_hold_cannot_release():
    with pytest.raises(ValueError, match="mine") as error, claim("x").acquire():
        faults.fail("release")
        raise ValueError("mine")

    assert "could not be released" in "".join(error.value.__notes__)


# Secrets.


@pytest.fixture
def secret(monkeypatch):
    monkeypatch.setattr(trying, "new_token", lambda: "SECRETTOKEN")
    return "SECRETTOKEN"


def test_a_hold_shows_no_token(secret):
    with claim("x") as hold:
        told = repr(hold) + str(hold) + repr(hold.lease) + repr(hold.lease.as_dict()) + repr(claim("x").lease())

        assert hold.token == secret
        assert secret not in told


def test_a_hold_tells_its_state():
    hold = claim("x").acquire()
    before = repr(hold)
    hold.release()
    lost = claim("x").acquire()
    lost.lose(LossReason.FORCED)

    assert before == f"<Hold 'x' fence={hold.fence} held>"
    assert repr(hold).endswith(" released>")
    assert repr(lost).endswith(" lost: forced>")
    lost.release()


def test_a_hold_does_not_pickle():
    with claim("x") as hold, pytest.raises(TypeError):
        pickle.dumps(hold)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_hold_is_not_copied_into_two_that_release(copied):
    with claim("x") as hold:
        with pytest.raises(TypeError):
            copied(hold)
        gc.collect()

        assert hold.verify()
    assert claim("x").available()


@pytest.mark.parametrize(
    "record",
    [
        AcquireRequest("x", "SECRETTOKEN", 1, 1, trying.this_holder("x")),
        RenewRequest("x", "SECRETTOKEN", 1, 1),
        ReleaseRequest("x", "SECRETTOKEN"),
        Orphan(("x",), "SECRETTOKEN", 0.0, 0.0),
    ],
    ids=lambda record: type(record).__name__,
)
def test_what_goes_to_the_store_shows_no_token_on_an_error_page(record):
    assert "SECRETTOKEN" not in repr(record)


def test_the_registry_forgets_a_hold_that_was_released():
    hold = claim("x").acquire()
    known = registry.get(hold.token)

    hold.release()

    assert known is hold
    assert registry.get(hold.token) is None
