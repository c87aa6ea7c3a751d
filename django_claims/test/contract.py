"""What every backend must do, as tests that any backend can inherit."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from django_claims.backends.base import (
    AcquireRequest,
    Adopted,
    AdoptRequest,
    BaseClaimBackend,
    Grant,
    HandOverRequest,
    Notice,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    new_token,
)
from django_claims.clock import clock
from django_claims.exceptions import UnsupportedFeature
from django_claims.holders import Holder, ProcessId
from django_claims.leases import Lease, LeasePage, Progress, StopFlag
from django_claims.test.waiting import wait_until
from django_claims.tickets import new_ticket

T = TypeVar("T")

LONG = 60_000
"""A TTL, in ms, that no test outlives."""

SHORT = 300
"""A TTL, in ms, that a test waits out."""

DAYS_31 = 31 * 24 * 3600 * 1000

HOLDER = Holder(
    host="web-1",
    pid=4242,
    started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    label="manage.py import",
    node="celery@web-1",
    task_id="2d0b7d7e",
    processes=(ProcessId("0123456789abcdef", 4242, 987654),),
)

OTHER = Holder(
    host="worker-1",
    pid=77,
    started_at=datetime(2026, 1, 2, 3, 4, 9, tzinfo=UTC),
    label="celery worker",
    processes=(ProcessId("0123456789abcdef", 77, 987655),),
)

ODD_NAMES = [
    "x" * 500,
    "\N{PARTY POPPER}" * 500,
    "é" * 500,
    "two words  and  more",
    "no\N{NO-BREAK SPACE}break, zero\N{ZERO WIDTH SPACE}width",
    """it's "quoted" `thrice`""",
    "a/b/../c",
    "../../etc/passwd",
    "/",
    "..",
    "back\\slash",
    "{claims}:lease:x",
    "{",
    "}",
    "index",
    "fence",
    "stops",
    "lease",
    "lease:x",
    "lease:lease:x",
    "stop:x",
    "x:stop",
    "*",
    "[a-z]?",
    "100 %s %(x)s %%",
    "'; DROP TABLE x; --",
    "<script>alert(1)</script>",
    "line\N{LINE SEPARATOR}separator",
    "None",
    "0",
    "1 2 3",
    "con",
    "name.",
    "name",
]


class Run(NamedTuple):
    """One grant, as its holder knows it."""

    name: str
    token: str
    fence: int
    acquired_us: int


class BackendContract:
    """
    What every backend must do. Inherit it; add tests, never skip one.

    A subclass sets `self.backend` before each test: a backend whose store has no claim and no
    stop flag yet. With pytest that is a fixture::

        class TestMyBackend(BackendContract):
            @pytest.fixture(autouse=True)
            def _backend(self):
                settings = AliasSettings(alias="default", backend="my.Backend", options={...})
                self.backend = MyBackend(settings)
                yield
                self.backend.close()

    What else it may override:

    - `may_end_late`, if the store rounds a TTL up: the seconds by which a lease may outlive it;
    - `another()`, if a second backend object of the same store is made in some other way;
    - `until()`, if the store's clock can be moved and nobody has to wait for it; `by_real_time`
      is then False.
    """

    backend: BaseClaimBackend
    may_end_late: float = 0.0
    by_real_time: bool = True

    # -- what a subclass may override ------------------------------------------------------------

    def another(self) -> BaseClaimBackend:
        """Return one more backend object of the same store, as another thread or process has it."""
        return type(self.backend)(self.backend.settings)

    def until(self, condition: Callable[[], T | None], seconds: float = 5.0) -> T:
        """Return the first true answer of a condition that comes true by the store's clock."""
        return wait_until(condition, seconds + self.may_end_late)

    # -- how the tests speak ---------------------------------------------------------------------

    def ask(
        self,
        names: Sequence[str],
        *,
        token: str = "",
        ttl_ms: int = LONG,
        heartbeat_ms: int = LONG // 3,
        holder: Holder = HOLDER,
        over_fence: int | None = None,
        backend: BaseClaimBackend | None = None,
    ) -> list[Grant] | Refusal:
        token = token or new_token()
        requests = [AcquireRequest(name, token, ttl_ms, heartbeat_ms, holder, over_fence) for name in names]
        return (backend or self.backend).acquire(requests)

    def take_all(
        self,
        *names: str,
        token: str = "",
        ttl_ms: int = LONG,
        heartbeat_ms: int = LONG // 3,
        holder: Holder = HOLDER,
        over_fence: int | None = None,
    ) -> list[Run]:
        """Acquire names that have to be granted."""
        token = token or new_token()
        grants = self.ask(
            names, token=token, ttl_ms=ttl_ms, heartbeat_ms=heartbeat_ms, holder=holder, over_fence=over_fence
        )
        assert not isinstance(grants, Refusal), grants
        assert len(grants) == len(names)
        return [Run(name, token, *grant) for name, grant in zip(names, grants, strict=True)]

    def take(
        self,
        name: str,
        *,
        token: str = "",
        ttl_ms: int = LONG,
        heartbeat_ms: int = LONG // 3,
        holder: Holder = HOLDER,
        over_fence: int | None = None,
    ) -> Run:
        """Acquire a name that has to be granted."""
        return self.take_all(
            name, token=token, ttl_ms=ttl_ms, heartbeat_ms=heartbeat_ms, holder=holder, over_fence=over_fence
        )[0]

    def refusal(self, *names: str, token: str = "", over_fence: int | None = None) -> Refusal:
        """Ask for names that have to be refused."""
        answer = self.ask(names, token=token, over_fence=over_fence)
        assert isinstance(answer, Refusal), answer
        return answer

    def renew(self, run: Run, *, ttl_ms: int = LONG, progress: str | None = None, seen: bool = False) -> RenewAnswer:
        (answer,) = self.backend.renew([RenewRequest(run.name, run.token, run.fence, ttl_ms, progress, seen)])
        return answer

    def release(self, run: Run, *, rest_ms: int = 0) -> Released:
        (answer,) = self.backend.release([ReleaseRequest(run.name, run.token, run.fence, rest_ms)])
        return answer

    def try_to_take(self, name: str) -> Run | None:
        """Acquire a name that may be refused."""
        token = new_token()
        answer = self.ask([name], token=token)
        return None if isinstance(answer, Refusal) else Run(name, token, *answer[0])

    def read(self, name: str) -> Lease:
        """Read a lease that has to be there."""
        lease = self.backend.lease(name)
        assert lease is not None
        return lease

    def expire(self, name: str) -> None:
        """Return when the lease of a name has run out."""
        self.until(lambda: self.backend.lease(name) is None)

    def ask_to_stop(self, name: str, *, fence: int | None = None, reason: str = "wrong file") -> StopFlag | None:
        return self.backend.set_flag(name, keep=False, fence=fence, reason=reason, by="ann", ttl_ms=None)

    def keep_stopped(self, name: str, *, ttl_ms: int | None = None, reason: str = "kept") -> StopFlag:
        flag = self.backend.set_flag(name, keep=True, fence=None, reason=reason, by="ann", ttl_ms=ttl_ms)
        assert flag is not None
        return flag

    def page(self, match: str = "", page: int = 1, per_page: int = 100) -> LeasePage:
        return self.backend.leases(match=match, page=page, per_page=per_page)

    def listed(self, match: str = "") -> list[str]:
        return [lease.name for lease in self.page(match, per_page=10_000)]

    def forced(self) -> set[tuple[str, int | None]]:
        """Return the word that is left for holders whose run was force-released."""
        return {(n.name, n.forced_fence) for n in self.backend.poll() if n.forced_fence is not None}

    def in_threads(self, work: Callable[[int, BaseClaimBackend], T], threads: int = 8) -> list[T]:
        """Do some work in several threads that start together, each with a backend of its own."""
        barrier = threading.Barrier(threads)
        answers: list[T] = []
        errors: list[BaseException] = []

        def body(number: int) -> None:
            backend = self.another()
            barrier.wait(30)
            try:
                answers.append(work(number, backend))
            except BaseException as error:
                errors.append(error)

        running = [threading.Thread(target=body, args=(number,), daemon=True) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(60)
        assert not any(thread.is_alive() for thread in running)
        assert errors == []
        return answers

    # -- acquire ---------------------------------------------------------------------------------

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

    # -- fences ----------------------------------------------------------------------------------

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

    # -- renew -----------------------------------------------------------------------------------

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

    # -- release ---------------------------------------------------------------------------------

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

    # -- held, lease -----------------------------------------------------------------------------

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

    # -- leases ----------------------------------------------------------------------------------

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
        self.take("one")
        self.until(lambda: not self.backend.marked("brief"))
        assert self.backend.marked("one")

    # -- force_release ---------------------------------------------------------------------------

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

    # -- stop flags of a run ---------------------------------------------------------------------

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

    # -- names kept stopped ----------------------------------------------------------------------

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

    # -- poll, wait and the rest -----------------------------------------------------------------

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

    # -- hand over -------------------------------------------------------------------------------

    def hands_over(self) -> bool:
        """Say whether the backend hands over; if not, see to it that it says so."""
        if self.backend.supports_hand_over:
            return True
        for ask in (self.backend.hand_over, self.backend.adopt):
            try:
                ask([])
            except UnsupportedFeature:
                continue
            raise AssertionError("what is not supported is to be refused")
        return False

    def hand_over(self, *runs: Run, valid_ms: int = LONG, ticket: str = "") -> str:
        """Hand over runs that were granted together; return the digest of the ticket, or '' if that was refused."""
        digest = ticket or new_ticket(tuple(run.name for run in runs), runs[0].fence).digest
        requests = [HandOverRequest(run.name, run.token, digest, valid_ms) for run in runs]
        return digest if self.backend.hand_over(requests) else ""

    def adopt(
        self,
        *names: str,
        ticket: str,
        token: str = "",
        ttl_ms: int = LONG,
        holder: Holder = OTHER,
        backend: BaseClaimBackend | None = None,
    ) -> list[Adopted] | None:
        token = token or new_token()
        requests = [AdoptRequest(name, ticket, token, ttl_ms, ttl_ms // 3, holder) for name in names]
        return (backend or self.backend).adopt(requests)

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

    def test_requests_do_not_show_tickets_and_tokens(self) -> None:
        for request in (HandOverRequest("job", "tok", "tick", 1), AdoptRequest("job", "tick", "tok", 1, 1, HOLDER)):
            assert "tok" not in repr(request).replace("token", "")
            assert "tick" not in repr(request)

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

    # -- odd names -------------------------------------------------------------------------------

    def test_odd_names_are_claims_like_all_others(self) -> None:
        runs = [self.take(name, holder=Holder(host="h", pid=at)) for at, name in enumerate(ODD_NAMES)]

        for at, run in enumerate(runs):
            holder = self.read(run.name).holder
            assert holder is not None and holder.pid == at, run.name
            assert self.refusal(run.name).name == run.name
            assert self.renew(run).outcome is Renewal.RENEWED, run.name
        assert sorted(self.listed()) == sorted(ODD_NAMES)
        for run in runs:
            assert self.release(run) is Released.RELEASED, run.name
        assert self.listed() == []

    def test_odd_names_can_be_stopped_and_force_released(self) -> None:
        runs = [self.take(name) for name in ODD_NAMES]

        for at, run in enumerate(runs):
            flag = self.ask_to_stop(run.name, reason=str(at))
            assert flag is not None and flag.fence == run.fence, run.name
        for at, run in enumerate(runs):
            flag = self.renew(run).flag
            assert flag is not None and (flag.name, flag.reason) == (run.name, str(at)), run.name
        assert [flag.name for flag in self.backend.flags()] == sorted(ODD_NAMES)
        for run in runs:
            assert self.backend.force_release(run.name, run.fence) is True, run.name
        assert self.forced() == {(run.name, run.fence) for run in runs}
        assert self.backend.flags() == []

    def test_names_that_differ_in_little_are_different_claims(self) -> None:
        pairs = [
            ("x" * 499 + "a", "x" * 499 + "b"),
            ("\N{PARTY POPPER}" * 499 + "a", "\N{PARTY POPPER}" * 499 + "b"),
            ("job", "Job"),
            ("jób", "job"),
            ("j\N{LATIN SMALL LETTER O WITH ACUTE}b 2", "jo\N{COMBINING ACUTE ACCENT}b 2"),
            ("straße", "strasse"),
            ("a b", "a  b"),
            ("a b 2", "a\N{NO-BREAK SPACE}b 2"),
            ("a/b", "a//b"),
            ("1", "01"),
            ("k", "\N{KELVIN SIGN}"),
        ]
        for first, second in pairs:
            mine, theirs = self.take(first), self.take(second)

            self.ask_to_stop(first)
            assert self.backend.flag(second) is None, second
            assert self.release(mine) is Released.RELEASED
            assert self.backend.held(second, theirs.token) is True, second
            assert self.backend.lease(first) is None, first

    # -- TTLs ------------------------------------------------------------------------------------

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
