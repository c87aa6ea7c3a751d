"""What poll and wait promise, and a backend as an object."""

from __future__ import annotations

import threading

from django_claims.backends.base import (
    AcquireRequest,
    Notice,
    Refusal,
    Released,
    ReleaseRequest,
    new_token,
)
from django_claims.test.contract.asking import LONG, OTHER, Asking


class StoreContract(Asking):
    """News, waiters, and several backends of one store."""

    def test_poll_has_no_news_of_an_empty_store(self) -> None:
        self.take("job")

        assert self.backend.poll() == []

    def test_poll_brings_flags_and_forced_runs(self) -> None:
        self.take("a")
        forced = self.take("b")
        flag, kept = self.ask_to_stop("a"), self.keep_stopped("c")
        self.backend.force_release("b", forced.fence)

        notices = sorted(self.backend.poll(), key=lambda notice: notice.name)

        assert notices == [Notice("a", flag), Notice("b", forced_fence=forced.fence), Notice("c", kept)]

    def test_a_waiter_says_when_to_try_again(self) -> None:
        """At the end of its pause, or when its bell has rung, a try finds what has become free."""
        run = self.take("job")
        rung = threading.Event()
        waiter = self.backend.wait(("job",), rung.set)
        waiting = AcquireRequest("job", new_token(), LONG, LONG // 3, OTHER)
        try:
            for attempt in range(3):
                waiter.prepare(2.0)
                outcome = self.backend.acquire([waiting._replace(place=waiter.place)])
                assert isinstance(outcome, Refusal)
                pause = waiter.pause(outcome)
                assert 0 <= pause <= 2.0
                if attempt < 2:
                    rung.wait(pause)
                    rung.clear()
            self.release(run)

            rung.wait(pause)
            waiter.prepare(2.0)
            outcome = self.backend.acquire([waiting._replace(place=waiter.place)])

            assert isinstance(outcome, list)
        finally:
            waiter.close()

    def test_a_backend_that_was_closed_can_be_used(self) -> None:
        run = self.take("job")

        self.backend.close()
        self.backend.close()

        assert self.backend.held("job", run.token) is True

    def test_backends_of_one_store_see_the_same_claims(self) -> None:
        run = self.take("job")
        other = self.another()

        assert other.held("job", run.token) is True
        assert isinstance(self.ask(["job"], backend=other), Refusal)
        assert other.release([ReleaseRequest("job", run.token)]) == [Released.RELEASED]
        assert self.backend.lease("job") is None

    def test_settings_that_work_have_no_problems_and_the_store_has_a_name(self) -> None:
        assert [problem for problem in self.backend.check() if problem.is_error] == []
        assert self.backend.describe()
