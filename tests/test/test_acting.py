"""What a test does to claims, and what it asserts about them."""

import pytest

from django_claims import (
    ClaimHeld,
    ClaimLost,
    ClaimStopped,
    LossReason,
    StopRequested,
    claim,
    claim_all,
    request_stop,
    stop_flag,
)
from django_claims import test as helpers
from django_claims.test import (
    assert_claim_held,
    assert_claim_refused,
    assert_claim_released,
    expire,
    held,
    lose,
    override_claims,
    wait_until,
)
from tests.helpers import claims_settings, faults, run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture(autouse=True, params=["memory without threads", "a store with threads"])
def claims(request, settings):
    if request.param == "a store with threads":
        settings.CLAIMS = claims_settings(TTL=60)
        yield None
        return
    with override_claims() as claims:
        yield claims


def says(words):
    return pytest.raises(AssertionError, match=words)


# Somebody else has it.


def test_what_somebody_else_holds_is_refused():
    with held("x", by="web-2") as lease:
        assert lease.holder.host == "web-2"
        with pytest.raises(ClaimHeld, match="web-2"), claim("x"):
            pass
    assert claim("x").available()


def test_whoever_holds_it_is_not_taken_for_dead():
    with held("x", by="web-2"):
        assert not claim("x").lease().holder.is_dead()


def test_a_claim_with_a_key_is_meant_as_it_is_written():
    with held("import", key=7), held(claim("export", key=(1, "a"))):
        assert claim("import", key=7).acquire() is None
        assert claim("export", key=(1, "a")).acquire() is None
        assert claim("import", key=8).available()


def test_several_are_held_together():
    with held(claim_all("a", "b")):
        assert claim("a").acquire() is None
        assert claim("b").acquire() is None
    assert claim_all("a", "b").available()


def test_it_is_a_decorator_too():
    @held("x")
    def job():
        return claim("x").available()

    assert job() is False
    assert claim("x").available()


def test_what_is_held_already_cannot_be_held():
    with claim("x"), pytest.raises(ClaimHeld), held("x"):
        pass
    request_stop("y", keep=True)
    with pytest.raises(ClaimStopped), held("y"):
        pass


def test_its_end_ends_nobody_elses_lease():
    with held("x"):
        expire("x")
        hold = claim("x").acquire()
    with hold:
        assert hold.verify()


# Ending.


@pytest.mark.parametrize("target", ["x", claim("x"), None], ids=["name", "claim", "hold"])
def test_an_expired_hold_is_lost_and_its_claim_free(target):
    with claim("x") as hold:
        expire(target or hold)

        assert hold.loss_reason is LossReason.EXPIRED
        assert claim("x").available()


def test_the_lease_of_somebody_else_expires():
    with held("x"):
        expire("x")
        assert claim("x").available()


@pytest.mark.parametrize("reason", [LossReason.TAKEN, LossReason.FORGOTTEN, LossReason.FORCED, LossReason.MAX_HOLD])
def test_a_hold_is_lost_for_the_reason_that_is_given(reason):
    with claim("x") as hold:
        lose("x", reason)

        assert hold.loss_reason is reason
        assert claim("x").available() is (reason is not LossReason.TAKEN)


def test_after_a_loss_somebody_has_it():
    with claim("x"):
        lose("x", by="web-2")
        assert_claim_held("x", by="web-2")


def test_all_names_of_a_hold_are_lost():
    with claim_all("a", "b") as hold:
        lose("b", LossReason.FORGOTTEN)

        assert hold.lost
        assert claim_all("a", "b").available()


def test_what_this_process_does_not_hold_it_cannot_lose():
    with says("no hold of claim 'x'. Nobody holds"):
        lose("x")
    with held("x", by="web-2"), says("no hold of claim 'x'. .*held by web-2"):
        lose("x")
    with says("no lease to end"):
        expire("x")


def test_a_loss_of_a_hold_in_another_thread():
    with run_in_thread(claim("x").acquire) as hold:
        lose("x")
        assert hold.lost


# Stopping.


def test_a_stop_is_seen_when_it_returns():
    with claim("x") as hold:
        flag = helpers.request_stop("x", reason="enough", by="ann")
        assert flag.by == "ann"
        with pytest.raises(StopRequested, match="enough"):
            hold.checkpoint()


def test_a_stop_of_nobody_is_an_error():
    with claim("other"), says("Nobody to stop. Nobody holds claim 'x' .claims that are held: 'other'"):
        helpers.request_stop("x")
    assert helpers.request_stop("x", keep=True).keep
    assert stop_flag("x").keep


# Assertions.


def test_held_gives_the_lease():
    with claim("x", label="my job") as hold:
        assert assert_claim_held("x").fence == hold.fence
        assert assert_claim_held("x", by="my job")
        assert assert_claim_held(hold)
        with says("Not held by 'ann'"):
            assert_claim_held("x", by="ann")


def test_not_held_says_what_is():
    with claim("y"), says("Nobody holds claim 'x' .claims that are held: 'y'"):
        assert_claim_held("x")
    with claim("z", min_hold=60):
        pass
    with says("resting"):
        assert_claim_held("z")
    with claim("a"), says("Nobody holds claim 'b'"):
        assert_claim_held(claim_all("a", "b"))


def test_refused_says_that_it_is_free():
    with says("is free"):
        assert_claim_refused("x")
    with held("x"):
        assert_claim_refused("x")
    request_stop("x", keep=True)
    assert_claim_refused("x")


def test_refused_as_a_block_wants_somebody_to_have_asked():
    with held("x"):
        with assert_claim_refused("x"):
            assert claim("x").acquire() is None
        with says("Nobody was refused claim 'x' in the block"), assert_claim_refused("x"):
            claim("y").acquire().release()


def test_an_error_in_the_block_is_not_hidden():
    with held("x"), pytest.raises(ZeroDivisionError), assert_claim_refused("x"):
        raise ZeroDivisionError


def test_released_says_who_has_it():
    with claim("x"), says("Not released. Claim 'x' is held by"):
        assert_claim_released("x")
    assert_claim_released("x")


def test_released_with_min_hold_is_released():
    with claim("x", min_hold=60):
        pass
    assert_claim_released("x")


def test_released_wants_it_to_have_been_held(claims):
    with claim_all("a", "b"):
        pass
    assert_claim_released(claim_all("a", "b"))
    if claims is not None:
        with says("'x' was never held .claims that were: 'a', 'b'"):
            assert_claim_released("x")


def test_a_store_that_gives_no_answer_is_neither(claims):
    if claims is None:
        faults.fail("lease")
        with pytest.raises(Exception, match="connection refused"):
            assert_claim_released("x")


def test_wait_until_says_what_did_not_come():
    with says("rain did not come within 0.01 s: 0"):
        wait_until(lambda: 0, 0.01, what="rain")


def test_a_loss_that_interrupts_is_a_loss_in_the_store_too(claims):
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt"):
        lose("x")
    assert_claim_held("x", by="somebody else")
