"""How the tests of the contract ask a backend, and whom they ask for."""

from __future__ import annotations

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
    Refusal,
    Released,
    ReleaseRequest,
    RenewAnswer,
    RenewRequest,
    new_token,
)
from django_claims.exceptions import UnsupportedFeature
from django_claims.holders import Holder, ProcessId
from django_claims.leases import Lease, LeasePage, StopFlag
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


class Asking:
    """A backend, and what a subclass may override: see BackendContract."""

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
