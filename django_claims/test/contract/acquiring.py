"""What acquire promises."""

from __future__ import annotations

import itertools
import threading

from django_claims.backends.base import (
    BaseClaimBackend,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    new_token,
)
from django_claims.clock import clock
from django_claims.leases import Progress
from django_claims.test.contract.asking import HOLDER, LONG, SHORT, Asking


class AcquireContract(Asking):
    """Names that are granted and refused."""

    def test_a_free_name_is_granted(self) -> None:
        run = self.take("job")

        assert run.fence > 0
        assert self.backend.held("job", run.token) is True

    def test_a_held_name_is_refused_with_the_lease_that_has_it(self) -> None:
        run = self.take("job")

        refusal = self.refusal("job")

        assert (refusal.name, refusal.flag) == ("job", None)
        assert refusal.lease is not None
        assert (refusal.lease.name, refusal.lease.fence, refusal.lease.holder) == ("job", run.fence, HOLDER)
        assert refusal.lease.state == "held"
        assert LONG / 1000 - 10 < refusal.lease.remaining <= LONG / 1000 + self.may_end_late

    def test_a_refused_acquire_changes_nothing(self) -> None:
        run = self.take("job")
        before = self.read("job")
        self.until(lambda: self.read("job").age > 0.02)

        self.refusal("job")

        after = self.read("job")
        assert after.expires_at is not None and before.expires_at is not None
        assert abs((after.expires_at - before.expires_at).total_seconds()) < 0.005
        assert (after.fence, after.holder) == (before.fence, before.holder)
        assert self.backend.held("job", run.token) is True

    def test_names_do_not_stand_in_each_others_way(self) -> None:
        first, second = self.take("job"), self.take("other")

        assert self.release(first) is Released.RELEASED
        assert self.backend.held("other", second.token) is True

    def test_the_same_token_is_granted_again_with_the_same_fence(self) -> None:
        run = self.take("job")

        again = self.take("job", token=run.token)

        assert again == run
        assert self.backend.held("job", run.token) is True

    def test_a_list_is_granted_again_to_the_same_token_with_the_same_fence(self) -> None:
        runs = self.take_all("a", "b", "c")

        again = self.take_all("a", "b", "c", token=runs[0].token)

        assert again == runs

    def test_what_is_granted_again_lives_for_a_whole_ttl_from_then(self) -> None:
        # The holder counts its deadline from the request that was answered last.
        run = self.take("job")
        before = self.read("job")
        self.until(lambda: self.read("job").age > before.age + 0.05)

        self.take("job", token=run.token)

        assert self.read("job").remaining > LONG / 1000 - 0.05 - 0.5
        assert self.read("job").expires_at != before.expires_at

    def test_a_list_is_granted_whole_with_one_fence_above_the_last_of_each_name(self) -> None:
        for name in ("c", "a", "b"):
            assert self.release(self.take(name)) is Released.RELEASED
        last = self.take("b")
        self.release(last)

        runs = self.take_all("a", "b", "c")

        assert len({run.fence for run in runs}) == 1
        assert runs[0].fence > last.fence
        assert [self.read(name).fence for name in "abc"] == [runs[0].fence] * 3

    def test_a_list_is_refused_whole_if_one_name_is_held(self) -> None:
        held = self.take("b")

        refusal = self.refusal("a", "b", "c")

        assert refusal.name == "b"
        assert refusal.lease is not None and refusal.lease.fence == held.fence
        assert self.backend.lease("a") is None
        assert self.backend.lease("c") is None
        assert self.listed() == ["b"]

    def test_a_list_of_which_the_token_has_one_is_refused_whole_and_leaves_that_one(self) -> None:
        mine, theirs = self.take("a"), self.take("b")

        refusal = self.refusal("a", "b", "c", token=mine.token)

        assert refusal.name == "b"
        assert self.read("a").fence == mine.fence
        assert self.read("b").fence == theirs.fence
        assert self.backend.lease("c") is None

    def test_the_run_of_a_dead_holder_is_taken_over_by_its_fence(self) -> None:
        dead = self.take("job")

        run = self.take("job", over_fence=dead.fence)

        assert run.fence > dead.fence
        assert self.backend.held("job", run.token) is True
        assert self.backend.held("job", dead.token) is False
        assert self.renew(dead).outcome is Renewal.TAKEN
        assert self.release(dead) is Released.NOT_OWNER
        assert self.read("job").fence == run.fence

    def test_a_run_with_another_fence_is_not_taken_over(self) -> None:
        run = self.take("job")

        for fence in (0, run.fence - 1, run.fence + 1):
            assert self.refusal("job", over_fence=fence).lease is not None

        assert self.read("job").fence == run.fence

    def test_a_free_name_is_granted_though_a_takeover_was_asked_for(self) -> None:
        run = self.take("job", over_fence=12345)

        assert self.backend.held("job", run.token) is True

    def test_a_takeover_starts_without_the_progress_and_the_stop_flag_of_the_dead(self) -> None:
        dead = self.take("job")
        self.ask_to_stop("job")
        self.renew(dead, progress=Progress(done=1, note="half way").pack())

        run = self.take("job", over_fence=dead.fence)

        assert self.read("job").progress is None
        assert self.read("job").stop_flag is None
        assert self.backend.flag("job") is None
        assert self.renew(run).flag is None

    def test_an_expired_lease_is_free(self) -> None:
        old = self.take("job", ttl_ms=SHORT)
        self.expire("job")

        run = self.take("job")

        assert run.fence > old.fence
        assert self.backend.held("job", old.token) is False
        assert self.backend.held("job", run.token) is True

    def test_of_eight_threads_one_gets_a_new_name(self) -> None:
        names = [f"job-{number}" for number in range(20)]
        together = threading.Barrier(8)

        def work(number: int, backend: BaseClaimBackend) -> list[str]:
            got = []
            for name in names:
                together.wait(30)
                if not isinstance(self.ask([name], backend=backend), Refusal):
                    got.append(name)
            return got

        assert sorted(itertools.chain(*self.in_threads(work))) == sorted(names)

    def test_of_eight_threads_one_gets_an_expired_name(self) -> None:
        names = [f"job-{number}" for number in range(4)]
        self.take_all(*names, ttl_ms=SHORT)
        if not self.by_real_time:
            self.expire(names[0])
        taken = {name: threading.Event() for name in names}

        def work(number: int, backend: BaseClaimBackend) -> list[str]:
            got = []
            for name in names:
                ends = clock() + 10 + self.may_end_late
                while not taken[name].is_set() and clock() < ends:
                    if not isinstance(self.ask([name], backend=backend), Refusal):
                        taken[name].set()
                        got.append(name)
            return got

        assert sorted(itertools.chain(*self.in_threads(work))) == sorted(names)

    def test_of_eight_threads_one_gets_two_names_that_all_want_in_different_order(self) -> None:
        def work(number: int, backend: BaseClaimBackend) -> bool:
            names = ["a", "b"] if number % 2 else ["b", "a"]
            return not isinstance(self.ask(names, backend=backend), Refusal)

        assert sum(self.in_threads(work)) == 1


class FenceContract(Asking):
    """The number of a grant."""

    def test_each_grant_has_a_larger_fence_whatever_ended_the_last(self) -> None:
        fences = []
        run = self.take("job", ttl_ms=SHORT)
        fences.append(run.fence)
        self.expire("job")
        run = self.take("job")
        fences.append(run.fence)
        self.release(run)
        run = self.take("job")
        fences.append(run.fence)
        self.backend.force_release("job", run.fence)
        run = self.take("job")
        fences.append(run.fence)
        fences.append(self.take("job", over_fence=run.fence).fence)

        assert fences == sorted(set(fences))

    def test_fences_grow_in_the_order_of_grants_among_threads(self) -> None:
        fences: list[int] = []  # written by the holder only

        def work(number: int, backend: BaseClaimBackend) -> None:
            done, ends = 0, clock() + 30
            while done < 10 and clock() < ends:
                token = new_token()
                grants = self.ask(["job"], token=token, backend=backend)
                if not isinstance(grants, Refusal):
                    fences.append(grants[0].fence)
                    done += 1
                    assert backend.release([ReleaseRequest("job", token)]) == [Released.RELEASED]

        self.in_threads(work, threads=4)

        assert len(fences) == 40
        assert fences == sorted(set(fences))
