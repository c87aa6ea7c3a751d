"""What stop flags promise."""

from __future__ import annotations

from django_claims.backends.base import (
    Released,
)
from django_claims.test.contract.asking import LONG, SHORT, Asking


class StopContract(Asking):
    """Stop flags of a run."""

    def test_a_living_run_is_asked_to_stop(self) -> None:
        run = self.take("job")

        flag = self.ask_to_stop("job", reason='wrong "file"\n☃')

        assert flag is not None
        assert (flag.name, flag.alias, flag.fence, flag.keep) == ("job", self.backend.alias, run.fence, False)
        assert (flag.reason, flag.by, flag.seen_at) == ('wrong "file"\n☃', "ann", None)
        assert flag.requested_at is not None
        assert abs((flag.requested_at - self.read("job").read_at).total_seconds()) < 10
        assert self.backend.flag("job") == flag
        assert self.backend.flags() == [flag]
        assert self.read("job").stop_flag == flag

    def test_a_renewal_brings_the_stop_flag(self) -> None:
        run = self.take("job")
        assert self.renew(run).flag is None

        flag = self.ask_to_stop("job")

        assert self.renew(run).flag == flag

    def test_a_renewal_that_has_seen_the_flag_marks_it_once(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")

        answer = self.renew(run, seen=True)
        first = self.backend.flag("job")
        self.until(lambda: self.read("job").age > 0.02)
        self.renew(run, seen=True)

        assert answer.flag == first
        assert first is not None and first.seen_at is not None and first.requested_at is not None
        assert first.seen_at >= first.requested_at
        assert self.backend.flag("job") == first

    def test_seen_marks_nothing_where_there_is_no_flag(self) -> None:
        run = self.take("job")

        assert self.renew(run, seen=True).flag is None
        assert self.backend.flag("job") is None

    def test_a_stop_with_nobody_running_says_so_and_leaves_no_flag(self) -> None:
        assert self.ask_to_stop("job") is None
        assert self.ask_to_stop("job", fence=5) is None
        assert self.backend.flag("job") is None
        assert self.backend.flags() == []
        assert self.renew(self.take("job")).flag is None

    def test_a_stop_aimed_at_a_fence_hits_that_run_only(self) -> None:
        run = self.take("job")

        assert self.ask_to_stop("job", fence=run.fence - 1) is None
        assert self.ask_to_stop("job", fence=run.fence + 1) is None
        assert self.backend.flag("job") is None
        flag = self.ask_to_stop("job", fence=run.fence)
        assert flag is not None and flag.fence == run.fence

    def test_the_first_of_two_stops_stands(self) -> None:
        run = self.take("job")
        first = self.ask_to_stop("job", reason="one")

        assert self.ask_to_stop("job", reason="two") == first
        assert self.ask_to_stop("job", reason="three", fence=run.fence) == first
        assert self.backend.flag("job") == first

    def test_a_stop_of_a_name_kept_stopped_leaves_that_as_it_is(self) -> None:
        self.take("job")
        kept = self.keep_stopped("job")

        assert self.ask_to_stop("job") == kept
        assert self.backend.flag("job") == kept

    def test_a_stop_flag_is_gone_with_the_release(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        self.release(run)

        self.assert_next_run_is_not_stopped()

    def test_a_stop_flag_is_gone_with_the_expiry(self) -> None:
        self.take("job", ttl_ms=SHORT)
        self.ask_to_stop("job")
        self.expire("job")

        self.assert_next_run_is_not_stopped()

    def test_a_stop_flag_is_gone_with_a_force_release(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        self.backend.force_release("job", run.fence)

        self.assert_next_run_is_not_stopped()

    def assert_next_run_is_not_stopped(self) -> None:
        assert self.backend.flag("job") is None
        assert self.backend.flags() == []
        assert [notice for notice in self.backend.poll() if notice.flag] == []
        run = self.take("job")
        assert self.backend.flag("job") is None
        assert self.read("job").state == "held"
        assert self.renew(run).flag is None
        assert self.ask_to_stop("job", fence=run.fence - 1) is None

    def test_a_stop_flag_lives_as_long_as_its_run(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.take("beside", ttl_ms=SHORT)
        flag = self.ask_to_stop("job")
        self.renew(run)
        self.expire("beside")

        assert self.backend.flag("job") == flag
        assert self.backend.flags() == [flag]
        assert self.renew(run).flag == flag

    def test_a_stop_flag_of_one_name_of_a_list_is_not_for_the_others(self) -> None:
        first, second = self.take_all("a", "b")
        flag = self.ask_to_stop("a")

        assert self.renew(first).flag == flag
        assert self.renew(second).flag is None
        assert self.read("b").state == "held"


class KeptStoppedContract(Asking):
    """Names that are kept stopped."""

    def test_a_name_kept_stopped_refuses_whoever_wants_it(self) -> None:
        flag = self.keep_stopped("job", reason="until Monday")

        refusal = self.refusal("job")

        assert (flag.keep, flag.fence, flag.reason, flag.by, flag.expires_at) == (
            True,
            None,
            "until Monday",
            "ann",
            None,
        )
        assert (refusal.name, refusal.lease, refusal.flag) == ("job", None, flag)
        assert self.backend.lease("job") is None
        assert self.backend.flag("job") == flag

    def test_one_name_kept_stopped_refuses_the_whole_list(self) -> None:
        flag = self.keep_stopped("b")

        refusal = self.refusal("a", "b")

        assert (refusal.name, refusal.flag) == ("b", flag)
        assert self.backend.lease("a") is None

    def test_a_name_kept_stopped_is_not_taken_over_either(self) -> None:
        run = self.take("job")
        flag = self.keep_stopped("job")

        assert self.refusal("job", over_fence=run.fence).flag == flag
        assert self.backend.held("job", run.token) is True

    def test_a_name_kept_stopped_asks_the_run_that_is_and_outlives_it(self) -> None:
        run = self.take("job")
        flag = self.keep_stopped("job")

        assert self.renew(run).flag == flag
        assert self.release(run) is Released.RELEASED
        assert self.backend.flag("job") == flag
        assert self.refusal("job").flag == flag

    def test_a_name_kept_stopped_stays_so_after_expiry_and_force_release(self) -> None:
        self.take("a", ttl_ms=SHORT)
        forced = self.take("b")
        flags = [self.keep_stopped("a"), self.keep_stopped("b")]
        self.backend.force_release("b", forced.fence)
        self.expire("a")

        assert self.backend.flags() == flags
        assert [self.refusal(name).flag for name in "ab"] == flags

    def test_keeping_a_name_stopped_takes_the_place_of_a_stop_of_its_run(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        kept = self.keep_stopped("job")

        assert self.renew(run).flag == kept
        self.release(run)
        assert self.refusal("job").flag == kept

    def test_a_name_kept_stopped_for_a_time_is_free_after_it(self) -> None:
        flag = self.keep_stopped("job", ttl_ms=SHORT)
        assert flag.expires_at is not None and flag.requested_at is not None
        assert abs((flag.expires_at - flag.requested_at).total_seconds() - SHORT / 1000) < 0.005 + self.may_end_late
        assert self.refusal("job").flag == flag

        self.until(lambda: self.backend.flag("job") is None)

        assert self.backend.flags() == []
        assert [notice for notice in self.backend.poll() if notice.flag] == []
        self.take("job")

    def test_a_name_kept_stopped_is_not_free_before_its_time(self) -> None:
        flag = self.keep_stopped("job", ttl_ms=SHORT)

        run = self.until(lambda: self.try_to_take("job"))

        assert flag.requested_at is not None
        assert run.acquired_us / 1e6 - flag.requested_at.timestamp() >= SHORT / 1000 - 0.002

    def test_a_renewal_brings_no_flag_that_has_ended(self) -> None:
        run = self.take("job")
        self.keep_stopped("job", ttl_ms=SHORT)

        self.until(lambda: self.renew(run).flag is None)

        assert self.backend.flag("job") is None
        assert self.read("job").state == "held"

    def test_a_flag_that_is_cleared_is_given_back_and_gone(self) -> None:
        flag = self.keep_stopped("job")

        assert self.backend.clear_flag("job") == flag
        assert self.backend.clear_flag("job") is None
        assert self.backend.flag("job") is None
        self.take("job")

    def test_a_stop_of_a_run_can_be_taken_back(self) -> None:
        run = self.take("job")
        flag = self.ask_to_stop("job")

        assert self.backend.clear_flag("job") == flag
        assert self.renew(run).flag is None
        assert self.read("job").state == "held"
        assert self.backend.held("job", run.token) is True

    def test_a_flag_that_has_ended_is_not_there_to_be_cleared(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        self.release(run)

        assert self.backend.clear_flag("job") is None

    def test_flags_come_in_order_of_name(self) -> None:
        self.keep_stopped("c")
        self.take("b")
        self.ask_to_stop("b")
        self.keep_stopped("a", ttl_ms=LONG)

        assert [(flag.name, flag.keep) for flag in self.backend.flags()] == [("a", True), ("b", False), ("c", True)]
