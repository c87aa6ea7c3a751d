"""What hand_over and adopt promise."""

from __future__ import annotations

from datetime import UTC, datetime

from django_claims.backends.base import (
    AdoptRequest,
    HandOverRequest,
    Released,
    Renewal,
    new_token,
)
from django_claims.leases import Progress
from django_claims.test.contract.asking import HOLDER, LONG, OTHER, SHORT, Asking


class HandOverContract(Asking):
    """Runs that go from one process to another."""

    def test_what_is_handed_over_is_its_owners_no_more(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")

        assert self.hand_over(run)

        assert self.backend.held("job", run.token) is False
        assert self.renew(run).outcome is Renewal.TAKEN
        assert self.release(run) is Released.NOT_OWNER
        lease = self.read("job")
        assert (lease.state, lease.fence, lease.holder) == ("handed_over", run.fence, HOLDER)
        refused_by = self.refusal("job").lease
        assert refused_by is not None and (refused_by.state, refused_by.fence) == ("handed_over", run.fence)
        assert self.listed() == ["job"]

    def test_what_is_handed_over_goes_on_as_the_same_run_of_another_holder(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        how_far = Progress(done=3, total=10, note="three", at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        self.renew(run, progress=how_far.pack())
        ticket, token = self.hand_over(run), new_token()

        answers = self.adopt("job", ticket=ticket, token=token, ttl_ms=LONG // 2)

        assert answers is not None
        (answer,) = answers
        assert (answer.fence, answer.acquired_us, answer.progress) == (run.fence, run.acquired_us, how_far.pack())
        assert answer.flag is None
        assert 0 <= answer.now_us - answer.acquired_us < 30_000_000
        lease = self.read("job")
        assert (lease.state, lease.fence, lease.holder, lease.progress) == ("held", run.fence, OTHER, how_far)
        assert (lease.ttl, lease.heartbeat) == (LONG / 2000, LONG / 6000)
        assert LONG / 2000 - 10 < lease.remaining <= LONG / 2000 + self.may_end_late
        adopted = run._replace(token=token)
        assert self.backend.held("job", token) is True
        assert self.renew(adopted).outcome is Renewal.RENEWED
        assert self.release(adopted) is Released.RELEASED
        assert self.take("job").fence > run.fence

    def test_a_ticket_is_good_once(self) -> None:
        if not self.hands_over():
            return
        ticket, token = self.hand_over(self.take("job")), new_token()
        assert self.adopt("job", ticket=ticket, token=token) is not None

        assert self.adopt("job", ticket=ticket) is None

        assert self.backend.held("job", token) is True

    def test_a_ticket_is_good_once_among_eight_threads(self) -> None:
        if not self.hands_over():
            return
        ticket = self.hand_over(self.take("job"))

        answers = self.in_threads(lambda number, backend: self.adopt("job", ticket=ticket, backend=backend))

        assert len([answer for answer in answers if answer is not None]) == 1

    def test_an_adoption_by_the_same_token_finds_its_work_done(self) -> None:
        if not self.hands_over():
            return
        ticket, token = self.hand_over(self.take("job")), new_token()
        first = self.adopt("job", ticket=ticket, token=token)
        assert first is not None

        again = self.adopt("job", ticket=ticket, token=token)

        assert again is not None
        assert (again[0].fence, again[0].acquired_us) == (first[0].fence, first[0].acquired_us)

    def test_handing_over_twice_with_one_ticket_finds_its_work_done(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        ticket = self.hand_over(run)

        assert self.hand_over(run, ticket=ticket) == ticket
        assert self.hand_over(run) == "", "another ticket comes too late"

        assert self.adopt("job", ticket=ticket) is not None
        assert self.hand_over(run, ticket=ticket) == "", "it is the adopter's"

    def test_a_ticket_that_nobody_gave_is_no_good(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        given = self.take("given")
        self.hand_over(given)

        for name in ("job", "given", "nothing"):
            assert self.adopt(name, ticket="no-such-ticket") is None
        assert self.adopt("job", ticket=run.token) is None, "an owner token is no ticket"
        assert self.adopt("given", ticket=given.token) is None

        assert self.backend.held("job", run.token) is True
        assert self.read("given").state == "handed_over"

    def test_only_the_owner_hands_over(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")

        assert self.hand_over(run._replace(token=new_token())) == ""
        assert self.backend.held("job", run.token) is True
        self.release(run)
        assert self.hand_over(run) == ""
        assert self.backend.lease("job") is None

    def test_a_ticket_ends_with_its_lease(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        ticket = self.hand_over(run, valid_ms=SHORT)
        assert self.read("job").remaining <= SHORT / 1000 + self.may_end_late

        self.expire("job")

        assert self.adopt("job", ticket=ticket) is None
        assert self.backend.lease("job") is None
        assert self.take("job").fence > run.fence
        assert self.adopt("job", ticket=ticket) is None

    def test_a_ticket_may_be_good_for_longer_than_the_lease_was(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job", ttl_ms=SHORT)

        ticket = self.hand_over(run, valid_ms=LONG)

        lease = self.read("job")
        assert LONG / 1000 - 10 < lease.remaining <= LONG / 1000 + self.may_end_late
        assert lease.renewed_at is not None and (lease.read_at - lease.renewed_at).total_seconds() < 10
        assert self.adopt("job", ticket=ticket) is not None

    def test_several_are_handed_over_and_adopted_together(self) -> None:
        if not self.hands_over():
            return
        runs = self.take_all("a", "b", "c")
        ticket, token = self.hand_over(*runs), new_token()

        answers = self.adopt("a", "b", "c", ticket=ticket, token=token)

        assert answers is not None
        assert [answer.fence for answer in answers] == [runs[0].fence] * 3
        assert [self.backend.held(name, token) for name in "abc"] == [True] * 3

    def test_none_of_several_is_handed_over_if_one_is_another_ones(self) -> None:
        if not self.hands_over():
            return
        runs = self.take_all("a", "b", "c")
        self.release(runs[1])

        assert self.hand_over(*runs) == ""

        assert [self.backend.held(name, runs[0].token) for name in "abc"] == [True, False, True]

    def test_none_of_several_is_adopted_if_one_is_gone(self) -> None:
        if not self.hands_over():
            return
        runs = self.take_all("a", "b", "c")
        ticket = self.hand_over(*runs)
        self.backend.force_release("b", runs[1].fence)

        assert self.adopt("a", "b", "c", ticket=ticket) is None

        assert [self.read(name).state for name in "ac"] == ["handed_over"] * 2
        assert self.adopt("a", "c", ticket=ticket) is not None

    def test_requests_do_not_show_tickets_and_tokens(self) -> None:
        for request in (HandOverRequest("job", "tok", "tick", 1), AdoptRequest("job", "tick", "tok", 1, 1, HOLDER)):
            assert "tok" not in repr(request).replace("token", "")
            assert "tick" not in repr(request)
