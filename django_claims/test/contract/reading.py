"""What held, lease and leases promise."""

from __future__ import annotations

from datetime import UTC, datetime

from django_claims.backends.base import (
    new_token,
)
from django_claims.holders import Holder, ProcessId
from django_claims.leases import Progress
from django_claims.test.contract.asking import LONG, SHORT, Asking


class LeaseContract(Asking):
    """A lease as it is read."""

    def test_held_is_for_the_owner_only_and_while_it_lives(self) -> None:
        run = self.take("job", ttl_ms=SHORT)

        assert self.backend.held("job", run.token) is True
        assert self.backend.held("job", new_token()) is False
        assert self.backend.held("job", "") is False
        assert self.backend.held("job", run.token[:-1]) is False
        assert self.backend.held("other", run.token) is False
        self.expire("job")
        assert self.backend.held("job", run.token) is False

    def test_nobodys_name_has_no_lease(self) -> None:
        assert self.backend.lease("job") is None

    def test_a_lease_tells_its_times_by_the_stores_clock(self) -> None:
        run = self.take("job", ttl_ms=20_000, heartbeat_ms=5_000)

        lease = self.read("job")

        assert lease.acquired_at is not None and lease.renewed_at is not None and lease.expires_at is not None
        assert abs(lease.acquired_at.timestamp() * 1e6 - run.acquired_us) <= 2
        assert abs((lease.renewed_at - lease.acquired_at).total_seconds()) < 0.005 + self.may_end_late
        lives = (lease.expires_at - lease.renewed_at).total_seconds()
        assert abs(lives - 20) < 0.005 + self.may_end_late
        assert (lease.ttl, lease.heartbeat) == (20.0, 5.0)
        assert abs(lease.age - (lease.read_at - lease.acquired_at).total_seconds()) < 0.001
        assert abs(lease.remaining - (lease.expires_at - lease.read_at).total_seconds()) < 0.001
        assert lease.age >= 0
        assert lease.read_at.utcoffset() is not None

    def test_a_lease_brings_back_its_holder_as_it_was(self) -> None:
        holder = Holder(
            host="wéb-1",
            pid=2**22,
            started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            label='manage.py "odd" \\ ☃ \N{PARTY POPPER} h\n1 2 3 % {} $x',
            node="celery@w1",
            task_id="a-b-c",
            processes=(ProcessId("0123456789abcdef", 17, 2**40), ProcessId("", 18, 0)),
        )

        self.take("job", holder=holder)

        assert self.read("job").holder == holder
        assert self.page().leases[0].holder == holder

    def test_a_lease_names_its_claim_and_alias(self) -> None:
        self.take("job")

        assert (self.read("job").name, self.read("job").alias) == ("job", self.backend.alias)

    def test_a_lease_tells_whether_its_holder_was_asked_and_listened(self) -> None:
        run = self.take("job")
        assert self.read("job").state == "held"

        self.ask_to_stop("job", reason="wrong file")
        asked = self.read("job")
        assert asked.state == "stop_asked"
        assert asked.stop_flag is not None
        assert (asked.stop_flag.reason, asked.stop_flag.fence) == ("wrong file", run.fence)

        self.renew(run)
        assert self.read("job").state == "stop_asked"

        self.renew(run, seen=True)
        stopping = self.read("job")
        assert stopping.state == "stopping"
        assert stopping.stop_flag is not None and stopping.stop_flag.seen_at is not None

    def test_a_lease_of_a_name_kept_stopped_is_asked_too(self) -> None:
        run = self.take("job")
        self.keep_stopped("job")
        assert self.read("job").state == "stop_asked"

        self.renew(run, seen=True)

        assert self.read("job").state == "stopping"
        flag = self.backend.flag("job")
        assert flag is not None and flag.keep and flag.seen_at is not None

    def test_a_lease_that_misses_its_beats_is_overdue(self) -> None:
        run = self.take("job", heartbeat_ms=10)
        assert self.read("job").state == "held"

        self.until(lambda: self.read("job").state == "overdue", 10)
        overdue = self.read("job")
        self.renew(run)

        assert (overdue.read_at - (overdue.renewed_at or overdue.read_at)).total_seconds() > 2
        assert self.read("job").state == "held"


class ListContract(Asking):
    """Leases as they are listed."""

    def test_an_empty_store_has_an_empty_page(self) -> None:
        page = self.page()

        assert (page.leases, page.total, page.page, page.per_page) == ([], 0, 1, 100)

    def test_leases_come_in_order_of_name_and_by_pages(self) -> None:
        names = [f"job-{number:02}" for number in range(7)]
        for name in reversed(names):
            self.take(name)

        pages = [self.page(page=number, per_page=3) for number in (1, 2, 3, 4)]

        assert [[lease.name for lease in page] for page in pages] == [names[:3], names[3:6], names[6:], []]
        assert [(page.total, page.page, page.per_page) for page in pages] == [(7, number, 3) for number in (1, 2, 3, 4)]
        assert {page.complete for page in pages} == {self.backend.supports_complete_listing}

    def test_leases_are_chosen_by_a_glob_over_names_in_which_case_counts(self) -> None:
        for name in ("import-a", "import-b", "Import-c", "report", "re[p]ort"):
            self.take(name)

        assert self.listed("import-*") == ["import-a", "import-b"]
        assert self.listed("import-?") == ["import-a", "import-b"]
        assert self.listed("report") == ["report"]
        assert self.listed("[iI]mport-[bc]") == ["Import-c", "import-b"]
        assert self.listed("port") == []
        assert self.listed("re[[]p[]]ort") == ["re[p]ort"]
        assert sorted(self.listed("*mport*")) == ["Import-c", "import-a", "import-b"]
        assert self.page("import-*", per_page=1).total == 2

    def test_what_has_ended_is_not_listed(self) -> None:
        self.take("expired", ttl_ms=SHORT)
        self.release(self.take("released"))
        self.backend.force_release("forced", self.take("forced").fence)
        self.take("living")
        self.expire("expired")

        assert self.listed() == ["living"]
        assert self.page().total == 1

    def test_a_listed_lease_is_the_lease_that_is_read_alone(self) -> None:
        run = self.take("job")
        self.ask_to_stop("job")
        self.renew(run, progress=Progress(done=1, total=2, note="x").pack(), seen=True)

        (listed,) = self.page().leases
        alone = self.read("job")

        assert (listed.fence, listed.state, listed.progress) == (alone.fence, "stopping", alone.progress)
        assert listed.stop_flag == alone.stop_flag
        assert listed.holder == alone.holder

    def test_an_overview_has_what_leases_and_flags_list_in_order_and_without_marks(self) -> None:
        for name in ("b", "a", "c"):
            self.take(name)
        self.ask_to_stop("b")
        self.keep_stopped("d")
        self.backend.mark(["one"], LONG)

        assert self.backend.overview() in (None, (["a", "b", "c"], self.backend.flags()))
        assert [flag.name for flag in self.backend.flags()] == ["b", "d"]

    def test_an_overview_leaves_out_what_has_expired(self) -> None:
        self.take("a")
        self.take("brief", ttl_ms=SHORT)

        self.until(lambda: self.backend.lease("brief") is None)

        assert (self.backend.overview() or (["a"], []))[0] == ["a"]

    def test_leases_of_names_are_read_as_one_by_one_and_those_without_one_are_left_out(self) -> None:
        self.take("a")
        self.take("b")

        found = self.backend.leases_of(["b", "nobody", "a"])

        assert [lease.name for lease in found] == ["b", "a"]
        assert found[0].fence == getattr(self.backend.lease("b"), "fence", None)
        assert self.backend.leases_of([]) == []

    def test_a_mark_lasts_for_as_long_as_was_said_and_is_no_lease_of_anybody(self) -> None:
        self.backend.mark(["one", "two"], LONG)
        self.backend.mark(["brief"], SHORT)

        assert self.backend.marked("one") and self.backend.marked("two") and self.backend.marked("brief")
        assert not self.backend.marked("three")
        assert self.listed() == []
        assert self.page().total == 0
        assert self.backend.lease("one") is None
        self.backend.mark(["two", "three"], LONG)  # one of them was before
        assert self.backend.marked("three")
        self.backend.mark(["n" * 500], LONG)
        assert self.backend.marked("n" * 500) and not self.backend.marked("n" * 499)
        self.take("one")
        self.until(lambda: not self.backend.marked("brief"))
        assert self.backend.marked("one")
