"""What may happen to a run that is handed over."""

from __future__ import annotations

from django_claims.backends.base import (
    Released,
    ReleaseRequest,
    new_token,
)
from django_claims.test.contract.asking import ODD_NAMES, SHORT, Asking


class HandedOverContract(Asking):
    """Runs that are between two processes, or were."""

    def test_what_is_handed_over_can_be_force_released(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        ticket = self.hand_over(run)

        assert self.backend.force_release("job", run.fence) is True

        assert self.adopt("job", ticket=ticket) is None
        assert self.forced() == {("job", run.fence)}
        assert self.backend.lease("job") is None

    def test_what_is_handed_over_can_be_ended_by_who_handed_it_over(self) -> None:
        if not self.hands_over():
            return
        runs = self.take_all("a", "b")
        alone = self.take("c")
        ticket, other = self.hand_over(*runs), self.hand_over(alone)

        assert self.backend.release([ReleaseRequest("c", other)]) == [Released.RELEASED]
        answers = self.backend.release([ReleaseRequest(name, ticket) for name in ("a", "b")])

        assert answers == [Released.RELEASED] * 2
        assert self.listed() == []

    def test_what_is_handed_over_is_not_taken_over_from_its_dead_holder(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        self.hand_over(run)

        self.refusal("job", over_fence=run.fence)

        assert self.read("job").is_followed is False

    def test_a_stop_of_the_run_outlives_the_hand_over(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job", ttl_ms=SHORT * 10)
        self.ask_to_stop("job")

        ticket, token = self.hand_over(run), new_token()

        flag = self.read("job").stop_flag
        assert flag is not None and flag.fence == run.fence
        assert self.backend.flag("job") == flag
        answers = self.adopt("job", ticket=ticket, token=token)
        assert answers is not None and answers[0].flag is not None
        assert (answers[0].flag.fence, answers[0].flag.by, answers[0].flag.reason) == (run.fence, "ann", "wrong file")
        assert self.renew(run._replace(token=token)).flag is not None
        self.release(run._replace(token=token))
        assert self.backend.flag("job") is None

    def test_what_is_handed_over_can_be_asked_to_stop(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        ticket = self.hand_over(run)

        assert self.ask_to_stop("job", fence=run.fence + 1) is None
        flag = self.ask_to_stop("job")

        assert flag is not None and flag.fence == run.fence
        assert [other.name for other in self.backend.flags()] == ["job"]
        answers = self.adopt("job", ticket=ticket)
        assert answers is not None and answers[0].flag is not None
        assert self.read("job").state == "stop_asked"

    def test_a_run_of_a_name_kept_stopped_is_adopted_and_asked(self) -> None:
        if not self.hands_over():
            return
        ticket = self.hand_over(self.take("job"))
        self.keep_stopped("job")

        answers = self.adopt("job", ticket=ticket)

        assert answers is not None and answers[0].flag is not None
        assert answers[0].flag.keep is True

    def test_what_was_adopted_can_be_handed_over_again(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        token = new_token()
        self.adopt("job", ticket=self.hand_over(run), token=token)

        second = self.hand_over(run._replace(token=token))

        answers = self.adopt("job", ticket=second)
        assert answers is not None
        assert (answers[0].fence, answers[0].acquired_us) == (run.fence, run.acquired_us)

    def test_the_holder_of_an_adopted_run_that_is_dead_is_taken_over(self) -> None:
        if not self.hands_over():
            return
        run = self.take("job")
        self.adopt("job", ticket=self.hand_over(run))

        assert self.take("job", over_fence=run.fence).fence > run.fence

    def test_odd_names_are_handed_over_and_adopted(self) -> None:
        if not self.hands_over():
            return
        for name in ODD_NAMES:
            run, token = self.take(name), new_token()
            assert self.adopt(name, ticket=self.hand_over(run), token=token) is not None, name
            assert self.release(run._replace(token=token)) is Released.RELEASED, name
