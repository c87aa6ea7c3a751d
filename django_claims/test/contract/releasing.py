"""What release promises."""

from __future__ import annotations

from django_claims.backends.base import (
    Released,
    ReleaseRequest,
    Renewal,
    new_token,
)
from django_claims.leases import Progress
from django_claims.test.contract.asking import LONG, SHORT, Asking


class ReleaseContract(Asking):
    """Releases, and leases that rest."""

    def test_a_released_name_is_free_at_once(self) -> None:
        run = self.take("job")

        assert self.release(run) is Released.RELEASED
        assert self.backend.lease("job") is None
        assert self.backend.held("job", run.token) is False
        self.take("job")

    def test_a_release_by_another_token_leaves_the_lease(self) -> None:
        run = self.take("job")

        assert self.release(run._replace(token=new_token())) is Released.NOT_OWNER
        assert self.backend.held("job", run.token) is True

    def test_a_release_by_an_old_holder_leaves_the_new_lease(self) -> None:
        old = self.take("job", ttl_ms=SHORT)
        self.expire("job")
        new = self.take("job")

        for rest_ms in (0, SHORT):
            assert self.release(old, rest_ms=rest_ms) is Released.NOT_OWNER
        assert self.backend.held("job", new.token) is True
        assert self.read("job").state == "held"

    def test_a_release_of_what_is_gone_says_so_and_creates_nothing(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.expire("job")

        for rest_ms in (0, LONG):
            assert self.release(run, rest_ms=rest_ms) is Released.GONE
        assert self.backend.lease("job") is None

    def test_a_second_release_says_gone(self) -> None:
        run = self.take("job")
        self.release(run)

        assert self.release(run) is Released.GONE

    def test_a_release_after_a_force_release_says_gone(self) -> None:
        run = self.take("job")
        self.backend.force_release("job", run.fence)

        assert self.release(run) is Released.GONE

    def test_a_list_is_released_one_for_one(self) -> None:
        mine, theirs = self.take("mine"), self.take("theirs")

        answers = self.backend.release(
            [
                ReleaseRequest("theirs", new_token()),
                ReleaseRequest("mine", mine.token),
                ReleaseRequest("nobody's", new_token()),
            ]
        )

        assert answers == [Released.NOT_OWNER, Released.RELEASED, Released.GONE]
        assert self.listed() == ["theirs"]
        assert self.backend.held("theirs", theirs.token) is True

    def test_one_of_a_list_can_be_released_alone(self) -> None:
        first, second = self.take_all("a", "b")

        assert self.release(first) is Released.RELEASED
        assert self.backend.held("b", second.token) is True
        assert self.listed() == ["b"]

    def test_a_lease_left_resting_refuses_and_names_nobody(self) -> None:
        run = self.take("job")
        self.renew(run, progress=Progress(done=1).pack())

        assert self.release(run, rest_ms=20_000) is Released.RELEASED

        lease = self.refusal("job").lease
        assert lease is not None
        assert (lease.state, lease.holder, lease.fence, lease.progress) == ("resting", None, run.fence, None)
        assert 10 < lease.remaining <= 20 + self.may_end_late
        assert lease.acquired_at == self.read("job").acquired_at
        assert self.listed() == ["job"]

    def test_a_resting_lease_is_nobodys_to_keep(self) -> None:
        run = self.take("job")
        self.release(run, rest_ms=20_000)

        assert self.backend.held("job", run.token) is False
        assert self.renew(run).outcome is Renewal.TAKEN
        assert self.refusal("job", token=run.token).lease is not None
        assert self.refusal("job", over_fence=run.fence).lease is not None
        assert self.read("job").state == "resting"
        assert self.read("job").remaining <= 20 + self.may_end_late

    def test_a_resting_lease_ends_by_its_time(self) -> None:
        run = self.take("job")
        self.release(run, rest_ms=SHORT)
        self.expire("job")

        assert self.take("job").fence > run.fence

    def test_a_lease_that_rests_for_longer_than_its_ttl_is_listed_to_its_end(self) -> None:
        run = self.take("job", ttl_ms=SHORT)
        self.release(run, rest_ms=1900)
        self.until(lambda: self.read("job").remaining < 0.45)

        assert self.listed() == ["job"]

    def test_a_resting_lease_can_be_force_released(self) -> None:
        run = self.take("job")
        self.release(run, rest_ms=20_000)

        assert self.backend.force_release("job", run.fence) is True
        assert self.backend.lease("job") is None

    def test_a_stop_flag_does_not_rest_with_the_lease(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        self.release(run, rest_ms=20_000)

        assert self.backend.flag("job") is None
        assert self.read("job").stop_flag is None
        assert self.ask_to_stop("job") is None
