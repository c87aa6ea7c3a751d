"""Handing over: the run goes on elsewhere, and this process has neither it nor lost it."""

import asyncio
import base64
import dataclasses
import gc
import json
import logging
import math
import pickle
import threading

import pytest
from django.core.management import call_command
from django.db import transaction

from django_claims import (
    BackendUnavailable,
    ClaimHeld,
    ClaimLost,
    InvalidClaim,
    LossReason,
    ReleaseResult,
    StopRequested,
    UnsupportedFeature,
    adopting,
    claim,
    claim_all,
    current_hold,
    force_release,
    list_claims,
    liveness,
    registry,
    release_all,
    request_stop,
    signals,
    start_draining,
    stop_flag,
)
from django_claims.keeper import keeper_of
from django_claims.tickets import read_ticket
from tests.helpers import FlakyBackend, claims_settings, faults, listening, run_in_thread, tidy, wait_until
from tests.test_fork import in_child

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)


@pytest.fixture(autouse=True)
def memory(settings):
    settings.CLAIMS = claims_settings(TTL=60)
    adopting._unsure.clear()


class NoHandOver(FlakyBackend):
    supports_hand_over = False


# Giving.


def test_what_was_slow_to_be_had_is_deleted_again_by_its_own_token_after_it_was_given():
    """A late copy of its acquire may still come, and would find nobody who renews it."""
    held = claim("x").acquire()
    held.is_slow = True

    held.hand_over()

    assert [orphan.token for orphan in keeper_of("default").orphans()] == [held.token]


def test_progress_that_cannot_be_read_does_not_keep_the_work_from_going_on():
    held = claim("x").adopt(claim("x").acquire().hand_over())

    held.goes_on(0, "somebody else's")

    assert held.held
    held.release()


def test_who_hands_over_neither_holds_nor_has_lost():
    hold = claim("x").acquire()

    hold.hand_over()

    assert (hold.held, hold.lost, hold.loss_reason, hold.remaining()) == (False, False, None, 0.0)
    assert hold.renew() is False
    assert hold.verify() is False
    assert hold.release() is ReleaseResult.NOT_HELD
    assert hold.sleep(5) is True
    assert not hold.lost_event.is_set()
    assert current_hold() is None
    assert registry.all_holds() == []
    assert release_all("exit") == 0
    assert claim("x").lease().state == "handed_over"


def test_who_goes_on_after_handing_over_is_told_so():
    hold = claim("x").acquire()
    hold.hand_over()

    for go_on in (hold.checkpoint, hold.ensure, hold.hand_over, lambda: list(hold.track([1]))):
        with pytest.raises(ClaimLost, match="'x' was handed over by this process") as caught:
            go_on()
        assert caught.value.reason is None


def test_a_block_that_handed_over_ends_in_silence(caplog, heard, recwarn):
    caplog.set_level(logging.WARNING)

    with claim("x", on_lost="raise") as hold:
        hold.hand_over()
    with pytest.raises(KeyError), claim("y") as hold:
        hold.hand_over()
        raise KeyError("theirs")
    del hold
    gc.collect()

    assert {lease.name: lease.state for lease in list_claims()} == {"x": "handed_over", "y": "handed_over"}
    assert caplog.records == []
    assert len(recwarn) == 0
    assert heard.all("claim_released") == heard.all("claim_lost") == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("release_on_commit", [True, False])
def test_a_block_that_handed_over_inside_a_transaction_releases_nothing_at_its_end(release_on_commit, caplog):
    with transaction.atomic(), claim("x", release_on_commit=release_on_commit) as hold:
        ticket = hold.hand_over()

    assert caplog.records == []
    assert claim("x").adopt(ticket).release()


def test_a_hold_that_was_handed_over_and_dropped_is_not_released(recwarn):
    hold = claim("x").acquire()
    ticket = hold.hand_over()

    del hold
    gc.collect()

    assert len(recwarn) == 0
    assert keeper_of("default").orphans() == []
    assert claim("x").adopt(ticket).release()


def test_it_is_renewed_no_more():
    hold = claim("x", heartbeat=0.1).acquire()
    wait_until(lambda: faults.count("renew") > 1)
    hold.hand_over(valid=30)
    renewed = faults.count("renew")

    with claim("y", heartbeat=0.1):
        wait_until(lambda: faults.count("renew") > renewed)

    assert claim("x").lease().state == "handed_over"
    assert hold.lost is False


def test_a_renewal_on_the_wire_is_waited_for():
    order, entered = [], threading.Event()

    def slow(real, *args):
        entered.set()
        threading.Event().wait(0.2)
        answer = real(*args)
        order.append("renewed")
        return answer

    with claim("x", heartbeat=0.3) as hold:
        faults.on("renew", slow)
        faults.on("hand_over", lambda real, *args: (order.append("handed over"), real(*args))[1])
        assert entered.wait(5)
        ticket = hold.hand_over(valid=30)

    assert order[:2] == ["renewed", "handed over"]
    assert hold.lost is False
    assert claim("x").adopt(ticket).release()


def test_the_ticket_is_good_for_the_ttl_unless_told_otherwise():
    claim("x", ttl=30).acquire().hand_over()
    claim("y").acquire().hand_over(valid=600)
    claim("z", min_hold=50).acquire().hand_over(valid=1)

    assert 25 < claim("x").lease().remaining <= 30
    assert 595 < claim("y").lease().remaining <= 600
    assert claim("y").lease().ttl == 600
    assert 45 < claim("z").lease().remaining <= 50, "not before min_hold"


@pytest.mark.parametrize("valid", [0, -1, math.nan, math.inf, True, "5", 0.0001], ids=repr)
def test_what_is_no_duration_is_refused_before_anything_is_stored(valid):
    with claim("x") as hold:
        with pytest.raises(InvalidClaim, match="valid"):
            hold.hand_over(valid=valid)

        assert hold.held
        assert hold.verify()


def test_a_ticket_shows_in_nothing(caplog, heard):
    caplog.set_level(logging.DEBUG)
    hold = claim("x").acquire()
    ticket = hold.hand_over()
    secret, digest = read_ticket(ticket).secret, read_ticket(ticket).digest
    adopted = claim("x").adopt(ticket)
    with pytest.raises(ClaimHeld) as caught:
        claim("x").adopt(ticket)

    texts = [
        repr(hold), repr(adopted), repr(read_ticket(ticket)), caplog.text, repr(heard.sent), str(vars(hold)),
        str(vars(adopted)), repr(caught.value), str(list_claims().as_dict()), repr(pickle.dumps(caught.value)),
    ]  # fmt: skip
    for text in texts:
        assert secret not in text
        assert ticket not in text
        assert digest not in text
    assert secret != adopted.token != hold.token
    adopted.release()


def test_the_store_has_only_a_digest_of_it():
    from django_claims.backends import memory

    ticket = claim("x").acquire().hand_over()

    (store,) = memory.stores.values()
    kept = [str(value) for row in store.rows.values() for value in dataclasses.astuple(row)]
    assert read_ticket(ticket).secret not in str(kept)
    assert read_ticket(ticket).digest in kept


def test_what_was_released_or_lost_cannot_be_handed_over(settings):
    released = claim("x").acquire()
    released.release()
    with pytest.raises(ClaimLost):
        released.hand_over()

    lost = claim("y", max_hold=0.01).acquire()
    wait_until(lambda: lost.lost)
    with pytest.raises(ClaimLost) as caught:
        lost.hand_over()
    assert caught.value.reason is LossReason.MAX_HOLD
    assert faults.count("hand_over") == 0
    lost.release()


@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [
        (lambda hold: force_release("x", fence=hold.fence), LossReason.FORCED),
        (lambda hold: memory_forget(), LossReason.FORGOTTEN),
    ],
    ids=["forced", "forgotten"],
)
def test_what_the_store_says_is_ours_no_more_is_lost_for_that_reason(ended_by, reason, heard):
    hold = claim("x").acquire()
    ended_by(hold)

    with pytest.raises(ClaimLost) as caught:
        hold.hand_over()

    assert (caught.value.reason, hold.loss_reason, hold.held) == (reason, reason, False)
    assert heard.one("claim_lost")["reason"] is reason
    assert hold.release() is ReleaseResult.EXPIRED
    assert heard.all("claim_handed_over") == []


def test_what_is_ours_no_more_is_lost_also_if_the_store_cannot_say_why():
    hold = claim("x").acquire()
    memory_forget()
    faults.fail("renew")

    with pytest.raises(ClaimLost) as caught:
        hold.hand_over()

    assert caught.value.reason is LossReason.EXPIRED
    assert hold.release() is ReleaseResult.EXPIRED


def memory_forget():
    from django_claims.backends import memory

    memory.forget("default")


def test_a_store_that_gives_no_answer_has_it_given_up_and_freed_as_soon_as_it_answers():
    hold = claim("x").acquire()
    faults.lose_reply("hand_over")

    with pytest.raises(BackendUnavailable):
        hold.hand_over()

    assert (hold.held, hold.lost) == (False, False)
    assert "released" in repr(hold)
    wait_until(lambda: claim("x").lease() is None)


def test_a_store_that_never_heard_of_it_frees_it_too():
    hold = claim("x").acquire()
    faults.fail("hand_over")

    with pytest.raises(BackendUnavailable):
        hold.hand_over()

    wait_until(lambda: claim("x").lease() is None)


def test_of_two_threads_one_hands_over():
    hold = claim("x").acquire()
    entered, go = threading.Event(), threading.Event()

    def slow(real, *args):
        entered.set()
        go.wait(10)
        return real(*args)

    faults.on("hand_over", slow)
    tickets = []
    giving = threading.Thread(target=lambda: tickets.append(hold.hand_over()))
    giving.start()
    assert entered.wait(5)
    try:
        with pytest.raises(ClaimLost):
            hold.hand_over()
        assert hold.release() is ReleaseResult.NOT_HELD
    finally:
        go.set()
        giving.join(10)
    assert claim("x").adopt(tickets[0]).release()


def test_a_backend_that_cannot_says_so_and_the_hold_goes_on(settings):
    settings.CLAIMS = {"default": {"BACKEND": "tests.test_handing.NoHandOver"}}
    with claim("x") as hold:
        with pytest.raises(UnsupportedFeature):
            hold.hand_over()

        assert hold.held
        assert hold.verify()


def test_the_same_code_is_refused_by_the_store_and_not_for_re_entry():
    claim("x").acquire().hand_over()

    with pytest.raises(ClaimHeld, match=r"was handed over by .* and is kept for 60 s more") as caught, claim("x"):
        pass

    assert caught.value.reentrant is False
    assert claim("x").available() is False
    assert liveness("x") == "running"


# Adopting.


def test_progress_that_the_store_has_not_yet_goes_along():
    first = claim("x").acquire()
    for done in range(1, 4):
        first.checkpoint(done, 5)

    hold = claim("x").adopt(first.hand_over())

    assert hold.lease.progress.done == 3
    hold.release()


def test_a_store_that_takes_no_progress_does_not_keep_it_from_being_handed_over():
    first = claim("x").acquire()
    first.checkpoint(1, 5)
    faults.fail("renew")

    ticket = first.hand_over()

    faults.clear()
    assert claim("x").adopt(ticket).release()


def test_the_run_goes_on_with_its_fence_start_and_progress(heard):
    first = claim("x", label="view").acquire()
    first.checkpoint(2, 5, "two")
    first.renew()
    before = first.lease
    ticket = first.hand_over()

    hold = claim("x", label="task", ttl=30).adopt(ticket)

    assert hold.held
    assert hold.fence == first.fence
    assert hold.lease.acquired_at == before.acquired_at
    assert hold.lease.progress == before.progress
    assert current_hold() is hold
    lease = claim("x").lease()
    assert (lease.state, lease.holder.label, lease.ttl, lease.progress) == ("held", "task", 30.0, before.progress)
    assert hold.verify()
    assert hold.release() is ReleaseResult.RELEASED
    assert heard.one("claim_handed_over")["lease"].fence == hold.fence
    assert heard.one("claim_handed_over")["valid"] == 60.0
    assert heard.one("claim_adopted")["lease"].holder.label == "task"
    assert len(heard.all("claim_acquired")) == 1


def test_what_was_adopted_is_renewed_by_the_adopters_recipe():
    ticket = claim("x").acquire().hand_over()

    with claim("x", ttl=0.6).adopt(ticket) as hold:
        wait_until(lambda: claim("x").lease().age > 1.5)
        assert hold.held
        hold.checkpoint()

    assert claim("x").lease() is None


def test_a_ticket_is_good_once_and_says_who_came_first():
    ticket = claim("x").acquire().hand_over()
    with claim("x", label="first").adopt(ticket):
        with pytest.raises(ClaimHeld, match="first") as caught:
            run_in_thread(lambda: claim("x").adopt(ticket))
        assert caught.value.lease.holder.label == "first"

    with pytest.raises(ClaimLost, match="the run of this ticket is over") as caught:
        claim("x").adopt(ticket)
    assert caught.value.reason is LossReason.EXPIRED
    assert pickle.loads(pickle.dumps(caught.value)).detail == caught.value.detail


def test_a_ticket_that_ran_out_is_of_no_use():
    ticket = claim("x").acquire().hand_over(valid=0.05)
    wait_until(lambda: claim("x").lease() is None)

    with pytest.raises(ClaimLost, match="nobody adopted it in time"):
        claim("x").adopt(ticket)
    with claim("x"), pytest.raises(ClaimHeld):
        run_in_thread(lambda: claim("x").adopt(ticket))


def test_a_ticket_of_a_run_that_was_force_released_says_so():
    hold = claim("x").acquire()
    ticket = hold.hand_over()
    force_release("x", fence=hold.fence, by="ann")

    with pytest.raises(ClaimLost, match="operator") as caught:
        claim("x").adopt(ticket)

    assert caught.value.reason is LossReason.FORCED


@pytest.mark.parametrize("text", ["", "nonsense", "a" * 5000, "W10", "\N{PARTY POPPER}", "x\n", "[" * 5000], ids=repr)
def test_what_is_no_ticket_is_good_for_nothing(text):
    with pytest.raises(ClaimLost, match="no ticket"):
        claim("x").adopt(text)

    ticket = claim("x").acquire().hand_over()
    with pytest.raises(ClaimHeld):
        claim("x").adopt(text)
    with pytest.raises((ClaimHeld, ClaimLost)):
        claim("x").adopt(ticket[:-4])
    assert claim("x").adopt(ticket).release()


@pytest.mark.parametrize("ticket", [None, 5, b"bytes", object()], ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_wrong(ticket):
    with pytest.raises(InvalidClaim, match="ticket should be the text"):
        claim("x").adopt(ticket)


def test_a_ticket_survives_blanks_around_it():
    ticket = claim("x").acquire().hand_over()

    assert claim("x").adopt(f" {ticket}\n").release()


def test_several_names_go_together_by_the_same_recipe_only():
    ticket = claim_all("b", "a").acquire().hand_over()

    for wrong in (claim("a"), claim_all("a", "c"), claim_all("a", "b", "c"), claim("a", key=1)):
        with pytest.raises(InvalidClaim, match="The ticket is for 'a', 'b'"):
            wrong.adopt(ticket)

    hold = claim_all("a", "b").adopt(ticket)
    assert hold.names == ("a", "b")
    assert hold.verify()
    assert hold.release()
    assert list_claims().total == 0


def test_names_of_any_letters_go_along():
    name = "é\N{PARTY POPPER}" * 250
    ticket = claim(name).acquire().hand_over()

    assert ticket.isascii()
    assert claim(name).adopt(ticket).release()


def test_a_stop_that_was_asked_for_before_is_still_asked_for():
    first = claim("x").acquire()
    request_stop("x", reason="wrong file", by="ann")
    ticket = first.hand_over()

    hold = claim("x").adopt(ticket)

    assert hold.stop_requested
    with pytest.raises(StopRequested, match="wrong file"):
        hold.checkpoint()
    wait_until(lambda: stop_flag("x").seen_at)
    hold.release()


def test_a_stop_that_is_asked_for_between_the_two_reaches_the_adopter():
    first = claim("x").acquire()
    ticket = first.hand_over()
    assert request_stop("x", fence=first.fence) is not None
    assert not first.stop_requested

    with claim("x").adopt(ticket) as hold:
        assert hold.stop_event.is_set()


def test_max_hold_counts_from_the_first_acquire():
    ticket = claim("x").acquire().hand_over()
    wait_until(lambda: claim("x").lease().age > 0.3)

    with pytest.raises(ClaimLost) as caught:
        claim("x", max_hold=0.2).adopt(ticket)

    assert caught.value.reason is LossReason.MAX_HOLD
    assert claim("x").lease() is None, "there is no use in keeping it"

    ticket = claim("x").acquire().hand_over()
    wait_until(lambda: claim("x").lease().age > 0.3)
    hold = claim("x", max_hold=10).adopt(ticket)
    assert 9 < hold.remaining() <= 9.7
    hold.release()


def test_min_hold_counts_from_the_first_acquire():
    ticket = claim("x").acquire().hand_over()
    wait_until(lambda: claim("x").lease().age > 0.3)

    claim("x", min_hold=20).adopt(ticket).release()

    lease = claim("x").lease()
    assert lease.state == "resting"
    assert 19 < lease.remaining <= 19.75


def test_a_store_that_is_down_leaves_the_ticket_good():
    ticket = claim("x").acquire().hand_over()
    faults.fail("adopt")
    with pytest.raises(BackendUnavailable):
        claim("x").adopt(ticket)
    faults.off("adopt")

    assert claim("x").adopt(ticket).release()


def test_a_lost_reply_burns_no_ticket_for_the_same_process():
    ticket = claim("x").acquire().hand_over()
    faults.lose_reply("adopt")
    with pytest.raises(BackendUnavailable):
        claim("x").adopt(ticket)
    faults.off("adopt")

    hold = claim("x").adopt(ticket)

    assert hold.verify()
    with pytest.raises(ClaimHeld):
        run_in_thread(lambda: claim("x").adopt(ticket))
    assert hold.release()
    assert adopting._unsure == {}


def test_a_child_has_no_part_in_what_its_parent_may_have_adopted():
    faults.fail("adopt")
    with pytest.raises(BackendUnavailable):
        claim("x").adopt("some ticket")
    assert len(adopting._unsure) == 1

    assert in_child(lambda: len(adopting._unsure)) == 0


def test_a_signal_in_the_middle_burns_none_either():
    ticket = claim("x").acquire().hand_over()

    def interrupted(real, *args):
        real(*args)
        raise KeyboardInterrupt

    faults.on("adopt", interrupted)
    with pytest.raises(KeyboardInterrupt):
        claim("x").adopt(ticket)
    faults.off("adopt")

    assert claim("x").adopt(ticket).release()


@pytest.mark.parametrize("when", ["before the store is asked", "once it has answered"])
def test_a_signal_in_the_middle_of_handing_over_leaves_it_with_nobody(monkeypatch, when):
    hold = claim("x").acquire()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "before the store is asked":
            patch.setattr(registry, "remove", interrupted)
        else:
            patch.setattr(signals, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hold.hand_over()

    wait_until(lambda: claim("x").lease() is None)
    assert not hold.held and not hold.lost


def test_what_is_remembered_of_unknown_outcomes_is_bounded(monkeypatch):
    monkeypatch.setattr(adopting, "_MOST_UNSURE", 3)
    faults.fail("adopt")

    for number in range(5):
        with pytest.raises(BackendUnavailable):
            claim("x").adopt(str(number))

    assert len(adopting._unsure) == 3


def test_an_answer_that_comes_too_late_is_no_hold_yet():
    ticket = claim("x").acquire().hand_over()
    faults.delay("adopt", 1.9)
    with pytest.raises(BackendUnavailable, match="too late"):
        claim("x", ttl=60, renew_deadline=2, heartbeat=1).adopt(ticket)
    faults.off("adopt")

    assert claim("x").adopt(ticket).release()


def test_on_lost_keeps_its_rules():
    ticket = claim("x").acquire().hand_over()

    with pytest.raises(InvalidClaim, match="cancel"):
        claim("x", on_lost="cancel").adopt(ticket)
    with pytest.raises(InvalidClaim, match="interrupt"):
        run_in_thread(lambda: claim("x", on_lost="interrupt").adopt(ticket))
    with pytest.raises(ClaimLost), claim("x", on_lost="interrupt").adopt(ticket) as hold:
        force_release("x", fence=hold.fence)
        hold.renew()


def test_a_drain_is_seen_by_who_adopts():
    ticket = claim("x").acquire().hand_over()
    start_draining("SIGTERM")

    with claim("x", stop_on_shutdown=True).adopt(ticket) as hold:
        assert hold.stop_requested


def test_who_handed_over_may_take_it_back():
    first = claim("x").acquire()
    ticket = first.hand_over()

    hold = claim("x").adopt(ticket)

    assert hold is not first
    assert hold.fence == first.fence
    assert hold.release()


def test_a_run_may_be_handed_on_and_on():
    ticket = claim("x").acquire().hand_over()
    fences = []
    for _ in range(3):
        hold = claim("x").adopt(ticket)
        fences.append(hold.fence)
        ticket = hold.hand_over()

    assert len(set(fences)) == 1
    assert claim("x").adopt(ticket).release()


def test_the_twins():
    async def main():
        hold = await claim("x").aacquire()
        ticket = await hold.ahand_over(valid=30)
        async with await claim("x", on_lost="cancel").aadopt(ticket) as adopted:
            assert adopted.held
            assert current_hold() is adopted
            await adopted.acheckpoint()
        return hold.fence == adopted.fence

    assert asyncio.run(main()) is True
    assert claim("x").lease() is None


def test_a_task_that_is_cancelled_while_it_adopts_leaves_no_lease():
    ticket = claim("x").acquire().hand_over()
    entered, go = threading.Event(), threading.Event()

    def slow(real, *args):
        entered.set()
        go.wait(10)
        return real(*args)

    faults.on("adopt", slow)

    async def main():
        task = asyncio.create_task(claim("x").aadopt(ticket))
        while not entered.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()

    asyncio.run(main())

    wait_until(lambda: claim("x").lease() is None)


def test_a_task_that_leaves_its_block_after_handing_over_is_silent(caplog):
    async def main():
        async with claim("x") as hold:
            return await hold.ahand_over()

    ticket = asyncio.run(main())

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert claim("x").adopt(ticket).release()


# Around it.


def test_people_see_what_it_is(capsys):
    hold = claim("x", label="view").acquire()
    hold.hand_over()

    call_command("claims", "show", "x")
    shown = capsys.readouterr().out
    call_command("claims", "list")
    listed = capsys.readouterr().out

    assert "handed_over" in shown
    assert "Had it" in shown
    assert "to whoever has the ticket" in shown
    assert "unless adopted" in shown
    assert "Heartbeat" not in shown
    assert f"--fence {hold.fence}" in shown
    assert "handed_over" in listed


def test_claims_off_hand_over_and_adopt_all_the_same(settings):
    settings.CLAIMS = None
    with claim("x") as hold:
        ticket = hold.hand_over()
        assert (hold.held, hold.lost) == (False, False)
        with pytest.raises(ClaimLost, match="handed over"):
            hold.checkpoint()
        with pytest.raises(ClaimLost):
            hold.hand_over()

    adopted = claim("x").adopt(ticket)

    assert (adopted.held, adopted.fence, adopted.lease) == (True, 0, None)
    assert adopted.release() is ReleaseResult.RELEASED
    assert claim("x").adopt("anything").held
    with pytest.raises(InvalidClaim):
        claim("y").adopt(ticket)


def test_claims_turned_off_and_on_in_between(settings):
    before = settings.CLAIMS
    settings.CLAIMS = None
    ticket = claim("x").acquire().hand_over()
    settings.CLAIMS = before

    with pytest.raises(ClaimLost):
        claim("x").adopt(ticket)


def test_a_hand_over_leaves_nothing_behind():
    gc.collect()
    keeper = keeper_of("default")
    before = len(registry._holds), len(keeper._due), len(keeper._watched)

    for _ in range(50):
        claim("x").adopt(claim("x").acquire().hand_over()).release()

    gc.collect()
    assert (len(registry._holds), len(keeper._due), len(keeper._watched)) == before
    assert keeper.orphans() == []
    assert adopting._unsure == {}


def test_a_ticket_of_another_kind_is_good_for_nothing():
    packed = base64.urlsafe_b64encode(json.dumps([2, "secret", 5, "x"]).encode()).decode()

    assert read_ticket(packed).names is None
    with pytest.raises(ClaimLost):
        claim("x").adopt(packed)
