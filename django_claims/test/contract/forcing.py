"""What force_release promises."""

from __future__ import annotations

from django_claims.backends.base import (
    Renewal,
)
from django_claims.test.contract.asking import SHORT, Asking


class ForceContract(Asking):
    """Leases that an operator ends."""

    def test_a_force_release_with_the_fence_ends_the_lease_whoever_has_it(self) -> None:
        run = self.take("job")

        assert self.backend.force_release("job", run.fence) is True
        assert self.backend.lease("job") is None
        assert self.backend.held("job", run.token) is False
        self.take("job")

    def test_a_force_release_with_another_fence_changes_nothing(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        before = self.read("job")

        for fence in (0, run.fence - 1, run.fence + 1):
            assert self.backend.force_release("job", fence) is False

        after = self.read("job")
        assert (after.fence, after.stop_flag) == (before.fence, before.stop_flag)
        assert self.forced() == set()
        assert self.renew(run).outcome is Renewal.RENEWED

    def test_a_force_release_of_the_last_run_does_not_hit_the_next(self) -> None:
        old = self.take("job")
        self.release(old)
        new = self.take("job")

        assert self.backend.force_release("job", old.fence) is False
        assert self.backend.held("job", new.token) is True

    def test_a_force_release_of_nothing_says_so(self) -> None:
        for fence in (0, 1):
            assert self.backend.force_release("job", fence) is False
        assert self.forced() == set()

    def test_a_force_release_leaves_word_for_the_holder(self) -> None:
        run = self.take("job")
        self.backend.force_release("job", run.fence)

        assert self.forced() == {("job", run.fence)}
        self.take("job")
        assert self.forced() == {("job", run.fence)}

    def test_each_name_of_a_list_that_is_force_released_has_word_of_its_own(self) -> None:
        first, second = self.take_all("a", "b")
        self.backend.force_release("a", first.fence)
        self.backend.force_release("b", second.fence)

        assert self.forced() == {("a", first.fence), ("b", second.fence)}
        assert [self.renew(run).outcome for run in (first, second)] == [Renewal.FORCED] * 2

    def test_word_of_a_force_release_ends_when_the_lease_would_have(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.backend.force_release("job", run.fence)

        self.until(lambda: self.forced() == set())

        assert self.renew(run).outcome is Renewal.GONE

    def test_word_of_a_force_release_is_no_stop_flag(self) -> None:
        run = self.take("job")
        self.backend.force_release("job", run.fence)

        assert self.backend.flag("job") is None
        assert self.backend.flags() == []
        assert self.backend.clear_flag("job") is None
        assert self.renew(run).outcome is Renewal.FORCED
