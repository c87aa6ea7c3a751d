"""
What a backend is: its verbs, each documented here and nowhere else.

A backend object is cheap and holds no state of its own: there is one per thread and one
per asyncio task. Data lives in the store, connections in the module of the backend.

Three answers: a verb that got none from its store raises BackendUnavailable, whatever
its client raised. Every verb may be sent twice: a token is the same for the life of a
hold, so that a resent request finds its own work done.

Durations are whole milliseconds. Expiry is counted by the store's clock, never sent as a
date by a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

from django_claims.backends.messages import (
    FORMAT,
    AcquireRequest,
    Adopted,
    AdoptRequest,
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
    sure,
)
from django_claims.backends.waiters import GRANT_SECONDS, LEAVE, Waiter
from django_claims.clock import clock
from django_claims.conf import AliasSettings, Problem, option_problem
from django_claims.exceptions import InvalidClaimsSetting, UnsupportedFeature
from django_claims.holders import Holder
from django_claims.leases import Lease, LeasePage, StopFlag
from django_claims.names import mark_of, matches

__all__ = [
    "BaseClaimBackend",
    "FORMAT",
    "AcquireRequest",
    "Adopted",
    "AdoptRequest",
    "Grant",
    "HandOverRequest",
    "Notice",
    "Refusal",
    "Released",
    "ReleaseRequest",
    "Renewal",
    "RenewAnswer",
    "RenewRequest",
    "new_token",
    "sure",
    "GRANT_SECONDS",
    "LEAVE",
    "Waiter",
    "last_acts",
    "within",
]

last_acts: list[Callable[[], object]] = []
"""What modules of backends do at exit, after all holds were released."""


class BaseClaimBackend:
    """The interface; a subclass of it may be named in CLAIMS."""

    # Does leases() see every live lease? If not, the page says so.
    supports_complete_listing: ClassVar[bool] = True
    # Can a lease be handed over to another process?
    supports_hand_over: ClassVar[bool] = False
    # Is the store of this process alone? Then it can shut out no other process.
    is_process_local: ClassVar[bool] = False
    # How long does a waiter sleep between two tries, in seconds: at first, and at most?
    poll_interval: ClassVar[tuple[float, float]] = (0.02, 0.02)
    # Which keys may stand in OPTIONS?
    known_options: ClassVar[tuple[str, ...]] = ()
    # The handler's mark of the settings that it was made from.
    made_for: object = None

    def __init__(self, settings: AliasSettings) -> None:
        """Judge the OPTIONS; touch no store. Raises InvalidClaimsSetting."""
        self.settings = settings
        self.alias = settings.alias
        problem = option_problem(settings.options, self.known_options, settings.alias)
        if problem:
            raise InvalidClaimsSetting(problem)

    @classmethod
    def build(cls, settings: AliasSettings) -> BaseClaimBackend:
        """Return the backend for these settings. Raises InvalidClaimsSetting."""
        return cls(settings)

    def is_current(self) -> bool:
        """Say whether this object still speaks to what the settings name. Asked at each use, so cheap."""
        return True

    @property
    def is_machine_local(self) -> bool:
        """
        Whether the store serves one machine: the names of things there need not tell machines apart.

        Memory says no: it stands in for another store in tests, and names are the same in both.
        """
        return False

    @property
    def parts(self) -> Sequence[BaseClaimBackend]:
        """The backends that it is over, with a store each; or itself alone."""
        return (self,)

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        """
        Grant all of the names or none, in one step that only one caller can win.

        A lease with the same token is granted again, with the same fence. All grants of one
        call share one fence, which is above each name's last one. An expired lease is free;
        an unreadable one is not.
        """
        raise NotImplementedError

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        """
        Move the expiry of each lease to now plus its TTL, if its owner asks.

        Never creates a lease. Answers one for one, with the stop flag aimed at each run.
        """
        raise NotImplementedError

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        """End each lease, or leave it resting, if its owner asks. Answers one for one."""
        raise NotImplementedError

    def held(self, name: str, token: str) -> bool:
        """Say whether the live lease of the name is the token's."""
        raise NotImplementedError

    def lease(self, name: str) -> Lease | None:
        """Return the live lease of a name, or None."""
        raise NotImplementedError

    def leases(self, *, match: str, page: int, per_page: int) -> LeasePage:
        """Return one page of live leases in order of name, of those that fit the glob."""
        if (overview := self.overview()) is None:
            raise NotImplementedError
        names = [name for name in overview[0] if matches(name, match)]
        found = self.leases_of(names[(page - 1) * per_page : page * per_page])
        return LeasePage(leases=found, total=len(names), page=page, per_page=per_page)

    def overview(self) -> tuple[list[str], list[StopFlag]] | None:
        """
        Return the names of all live leases, and all live stop flags, both in order of name.

        Or None, where leases() and flags() are as cheap a way to them.
        """
        return None

    def leases_of(self, names: Sequence[str]) -> list[Lease]:
        """Return the live leases of these names, in their order; names without one are left out."""
        return [lease for name in names if (lease := self.lease(name)) is not None]

    def force_release(self, name: str, fence: int) -> bool:
        """
        End the live lease with that fence, whoever has it, and leave word for its holder.

        Fence 0 means an unreadable one. Return False, and change nothing, if there is no such lease.
        """
        raise NotImplementedError

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        """
        Ask the living run of a name to stop, or (keep) whoever has or wants it.

        Without keep: bound to the living run, or to the one with `fence`; None if that does not
        live. A run that was asked before keeps its first flag. With keep: lasts until cleared,
        or for ttl_ms.
        """
        raise NotImplementedError

    def flag(self, name: str) -> StopFlag | None:
        """Return the live stop flag of a name, or None."""
        raise NotImplementedError

    def flags(self) -> list[StopFlag]:
        """Return all live stop flags in order of name."""
        raise NotImplementedError

    def clear_flag(self, name: str) -> StopFlag | None:
        """Remove the stop flag of a name and return it, or None if there was none."""
        raise NotImplementedError

    def poll(self) -> list[Notice]:
        """Return what holders should know now. Cheap: asked once a second by each process that holds."""
        raise NotImplementedError

    @property
    def may_listen(self) -> bool:
        """Whether listen() would be of use now: the store pushes, and this process does not listen yet."""
        return False

    def listen(self, heard: Callable[[str | None], object]) -> bool:
        """
        Have `heard(name)` called, from another thread, when there may be news of a name; None for all names.

        A hint that may be lost: poll() tells. Return True if this process has just begun to listen,
        and so has to poll. Connects, within a second; raises nothing of the store's.
        """
        return False

    def wait(self, names: tuple[str, ...], bell: Callable[[], object]) -> Waiter:
        """
        Return what says how to wait for the names. It calls `bell`, from any thread, when a try may succeed.

        Touches no store, and raises nothing of it: who cannot be told has to look.
        """
        return Waiter(self.poll_interval)

    def promised(self, name: str) -> bool:
        """Say whether a name that is free is owed to somebody who waits for it, where the store keeps a line."""
        return False

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        """
        Put a ticket in the owner's place, on all of the leases or on none; each then ends by its valid_ms.

        Fence, holder, progress and stop flag stay. Return False if one of them is not the
        owner's. A release with the ticket's digest as its token ends what was handed over.
        """
        raise UnsupportedFeature("handing over a hold", self.alias)

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        """
        Make all of the leases the token's, or none. None if the ticket is not good for each of them.

        Fence, start, progress and stop flag stay. What has the token already is adopted again,
        and lives for a whole TTL from then.
        """
        raise UnsupportedFeature("handing over a hold", self.alias)

    def mark(self, names: Sequence[str], ttl_ms: int) -> None:
        """
        Remember names for so long: `marked()` then says so, also after this process has ended.

        What has been marked before stays so for as long as was said then. Marks are in no listing.
        """
        token = new_token()
        for name in names:
            self.acquire([AcquireRequest(mark_of(name), token, ttl_ms, ttl_ms, Holder(host="", pid=0))])

    def marked(self, name: str) -> bool:
        """Say whether a name is marked."""
        return self.lease(mark_of(name)) is not None

    def close(self) -> None:
        """Close connections that nobody uses now. Called when this process has had no hold for some seconds."""

    def check(self) -> list[Problem]:
        """Return what is wrong with the settings of this alias, without any network."""
        return []

    def check_deployment(self) -> list[Problem]:
        """Return what does for development and not for a site, without any network."""
        return []

    def verb_timeout(self) -> float:
        """Return the seconds that a verb which starts now may take."""
        ends = _limit.get()
        if ends is None:
            return self.settings.store_timeout
        return max(min(self.settings.store_timeout, ends - clock()), 0.01)

    def describe(self) -> str:
        """Return the store in a few words, without secrets, for people."""
        return type(self).__name__


# By context: a local of threads that is older than gevent's patches is one for all greenlets.
_limit: ContextVar[float | None] = ContextVar("django_claims_limit", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound all verbs that this thread or greenlet asks for in the block, together."""
    before = _limit.get()
    ends = clock() + seconds
    _limit.set(ends if before is None else min(before, ends))
    try:
        yield
    finally:
        _limit.set(before)
