"""What a TTL means."""

from __future__ import annotations

from django_claims.backends.base import (
    Renewal,
)
from django_claims.clock import clock
from django_claims.test.contract.asking import DAYS_31, SHORT, Asking


class TTLContract(Asking):
    """TTLs of all lengths."""

    def test_a_ttl_means_the_same_to_the_millisecond_whatever_its_length(self) -> None:
        for ttl_ms in (SHORT, 500, 999, 1000, 1001, 1900, 59_999, DAYS_31):
            self.take(f"job-{ttl_ms}", ttl_ms=ttl_ms)
            lease = self.read(f"job-{ttl_ms}")

            assert lease.ttl == ttl_ms / 1000
            assert lease.acquired_at is not None and lease.expires_at is not None
            lives = (lease.expires_at - lease.acquired_at).total_seconds()
            assert abs(lives - ttl_ms / 1000) < 0.005 + self.may_end_late
            assert lease.remaining <= ttl_ms / 1000 + self.may_end_late

    def test_a_ttl_of_half_a_second_and_one_of_1_9_seconds_end_then(self) -> None:
        ends_after = {"half": 0.5, "long": 1.9}
        asked_at, runs = clock(), {}
        for name, ttl in ends_after.items():
            runs[name] = self.take(name, ttl_ms=int(ttl * 1000))
        got_at = clock()

        for name, ttl in ends_after.items():
            # mypy infers no type for a lambda with defaults.
            next_run = self.until(lambda name=name: self.try_to_take(name), ttl + 5)  # type: ignore[misc]

            assert next_run.fence > runs[name].fence
            assert (next_run.acquired_us - runs[name].acquired_us) / 1e6 >= ttl - 0.002
            if self.by_real_time:
                assert clock() - asked_at >= ttl - 0.002
                assert clock() - got_at <= ttl + self.may_end_late + 2  # what a busy machine may take

    def test_a_ttl_of_31_days_is_31_days(self) -> None:
        run = self.take("job", ttl_ms=DAYS_31)

        lease = self.refusal("job").lease
        answer = self.renew(run, ttl_ms=DAYS_31)

        assert lease is not None and lease.ttl == DAYS_31 / 1000
        assert -60 < lease.remaining - DAYS_31 / 1000 <= self.may_end_late
        assert answer.outcome is Renewal.RENEWED
        assert self.listed() == ["job"]
        assert -60 < self.read("job").remaining - DAYS_31 / 1000 <= self.may_end_late

    def test_a_name_is_kept_stopped_for_31_days(self) -> None:
        flag = self.keep_stopped("job", ttl_ms=DAYS_31)

        assert flag.expires_at is not None and flag.requested_at is not None
        lasts = (flag.expires_at - flag.requested_at).total_seconds()
        assert abs(lasts - DAYS_31 / 1000) < 0.005 + self.may_end_late
        assert self.refusal("job").flag == flag
