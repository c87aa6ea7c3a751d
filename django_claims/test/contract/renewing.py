"""What renew promises."""

from __future__ import annotations

from datetime import UTC, datetime

from django_claims.backends.base import (
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
    new_token,
)
from django_claims.leases import Progress
from django_claims.test.contract.asking import LONG, SHORT, Asking, Run


class RenewContract(Asking):
    """Renewals, and what they tell."""

    def test_a_renewal_moves_the_expiry_to_now_plus_the_ttl(self) -> None:
        run = self.take("job", ttl_ms=2000, heartbeat_ms=500)
        before = self.read("job")
        self.until(lambda: self.read("job").age > 0.05)

        answer = self.renew(run, ttl_ms=2000)

        after = self.read("job")
        assert answer.outcome is Renewal.RENEWED
        assert after.expires_at is not None and before.expires_at is not None
        assert after.renewed_at is not None and before.renewed_at is not None
        assert after.expires_at > before.expires_at
        assert after.renewed_at > before.renewed_at
        assert after.acquired_at == before.acquired_at
        assert after.fence == before.fence

    def test_a_renewed_lease_outlives_its_first_ttl(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.take("beside", ttl_ms=SHORT)

        assert self.renew(run).outcome is Renewal.RENEWED

        self.expire("beside")
        assert self.backend.held("job", run.token) is True

    def test_a_renewal_tells_the_time_of_the_store(self) -> None:
        run = self.take("job")

        answer = self.renew(run)

        read_us = self.read("job").read_at.timestamp() * 1e6
        assert run.acquired_us - 1 <= answer.now_us <= read_us + 1

    def test_a_renewal_by_another_token_is_told_so_and_changes_nothing(self) -> None:
        run = self.take("job")
        before = self.read("job")

        answer = self.renew(run._replace(token=new_token()), ttl_ms=2 * LONG, progress=Progress(done=1).pack())

        assert answer.outcome is Renewal.TAKEN
        assert self.read("job").remaining <= before.remaining
        assert self.read("job").progress is None
        assert self.backend.held("job", run.token) is True

    def test_a_renewal_never_creates_a_lease(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.expire("job")

        answer = self.renew(run, progress=Progress(done=1).pack())

        assert answer.outcome is Renewal.GONE
        assert self.backend.lease("job") is None
        assert self.listed() == []

    def test_a_renewal_of_what_never_was_says_gone(self) -> None:
        assert self.renew(Run("job", new_token(), 1, 0)).outcome is Renewal.GONE
        assert self.backend.lease("job") is None

    def test_a_renewal_after_a_release_says_gone(self) -> None:
        run = self.take("job")
        self.release(run)

        assert self.renew(run).outcome is Renewal.GONE
        assert self.backend.lease("job") is None

    def test_a_renewal_by_the_old_holder_leaves_the_new_one(self) -> None:
        old = self.take("job", ttl_ms=SHORT)
        self.expire("job")
        new = self.take("job")
        before = self.read("job")

        answer = self.renew(old, ttl_ms=2 * LONG)

        assert answer.outcome is Renewal.TAKEN
        assert self.read("job").fence == new.fence
        assert self.read("job").remaining <= before.remaining

    def test_a_renewal_after_a_force_release_says_forced(self) -> None:
        run = self.take("job")
        self.backend.force_release("job", run.fence)

        assert self.renew(run).outcome is Renewal.FORCED
        assert self.backend.lease("job") is None

    def test_a_renewal_after_a_force_release_says_forced_though_another_has_it(self) -> None:
        old = self.take("job")
        self.backend.force_release("job", old.fence)
        new = self.take("job")

        assert self.renew(old).outcome is Renewal.FORCED
        assert self.renew(new).outcome is Renewal.RENEWED

    def test_word_of_a_force_release_is_for_that_name_only(self) -> None:
        first, second = self.take_all("a", "b")
        self.backend.force_release("a", first.fence)
        self.release(second)

        assert self.renew(first).outcome is Renewal.FORCED
        assert self.renew(second).outcome is Renewal.GONE

    def test_a_long_progress_is_kept_whole(self) -> None:
        run = self.take("job")
        long = Progress(note="x", kept='ünïcode, "quoted"\n' * 1_500)

        assert self.renew(run, ttl_ms=28 * 24 * 3600 * 1000, progress=long.pack()).outcome is Renewal.RENEWED
        found = self.read("job").progress
        assert found is not None and found.kept == long.kept
        assert self.renew(run, progress=Progress(note="y").pack()).outcome is Renewal.RENEWED
        found = self.read("job").progress
        assert found is not None and (found.note, found.kept) == ("y", "")

    def test_a_renewal_keeps_progress_unless_it_brings_some(self) -> None:
        run = self.take("job")
        progress = Progress(done=3, total=10.5, note='half "way"\n☃', at=datetime(2026, 1, 2, tzinfo=UTC))
        assert self.read("job").progress is None

        self.renew(run, progress=progress.pack())
        assert self.read("job").progress == progress
        self.renew(run)
        assert self.read("job").progress == progress
        self.renew(run, progress="")
        assert self.read("job").progress is None

    def test_a_list_is_renewed_one_for_one(self) -> None:
        mine, theirs, forced = self.take("mine", ttl_ms=SHORT), self.take("theirs"), self.take("forced")
        self.backend.force_release("forced", forced.fence)
        self.ask_to_stop("mine")

        answers = self.backend.renew(
            [
                RenewRequest("theirs", new_token(), theirs.fence, LONG),
                RenewRequest("mine", mine.token, mine.fence, LONG),
                RenewRequest("nobody's", new_token(), 1, LONG),
                RenewRequest("forced", forced.token, forced.fence, LONG),
            ]
        )

        outcomes = [answer.outcome for answer in answers]
        assert outcomes == [Renewal.TAKEN, Renewal.RENEWED, Renewal.GONE, Renewal.FORCED]
        assert [answer.flag is not None for answer in answers] == [False, True, False, False]
        assert self.read("mine").remaining > SHORT / 1000
        assert self.listed() == ["mine", "theirs"]

    def test_an_empty_list_is_renewed_and_released_to_an_empty_answer(self) -> None:
        assert self.backend.renew([]) == []
        assert self.backend.release([]) == []

    def test_many_are_renewed_and_released_at_once(self) -> None:
        names = [f"job-{number:04}" for number in range(2100)]
        runs = self.take_all(*names)
        self.ask_to_stop(names[1500])

        answers = self.backend.renew([RenewRequest(run.name, run.token, run.fence, LONG) for run in runs])
        released = self.backend.release([ReleaseRequest(run.name, run.token) for run in runs])

        assert {answer.outcome for answer in answers} == {Renewal.RENEWED}
        assert [at for at, answer in enumerate(answers) if answer.flag] == [1500]
        assert released == [Released.RELEASED] * len(names)
        assert self.listed() == []
