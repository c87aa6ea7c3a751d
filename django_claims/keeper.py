"""
Keeps the holds of an alias alive, by one thread: renews what is due, all in one round trip,
looks for stop flags once a second and when there is word of one, and deletes what nobody holds any more.

What the thread itself finds late, it is not alone to find: see deadlines.py.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from typing import Any

from django_claims import heartbeat, registry, signals
from django_claims.backends.base import Notice, Renewal, within
from django_claims.clock import clock
from django_claims.deadlines import deadlines
from django_claims.exceptions import BackendUnavailable, ClaimError, InvalidClaimsSetting
from django_claims.handler import claim_backends
from django_claims.heartbeat import Heartbeat, Schedule
from django_claims.logs import get_logger
from django_claims.orphans import Orphan, Orphans

logger = get_logger(__name__)

POLL_SECONDS = 1.0
MAX_ORPHAN_SECONDS = 3600.0
PROGRESS_SECONDS = 5.0
LISTEN_SECONDS = 0.02
"""How old a hold gets before it is worth a subscription of this process."""
STALE_SECONDS = 2.0
"""A last answer on stop flags older than this is not one to rely on."""


class Keeper:
    """The live holds of one alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.heartbeat = Heartbeat(alias, self._work, self._at_end)
        # Appended to by finalizers, which may run anywhere: a deque's append takes no lock.
        self.dropped: deque[Orphan] = deque()
        self._start_anew()

    def _start_anew(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may come in anywhere
        self._on_wire: frozenset[str] = frozenset()
        self._due: Schedule[str] = Schedule()
        self._watched: dict[str, set[str]] = {}  # name of a flag: tokens
        self._flagged: set[str] = set()
        self._orphans = Orphans(self.alias)
        self._asked_at = self._answered_at = clock()
        self._unheard = False
        self._listen_at = 0.0
        self.dropped.clear()

    # What a hold asks for.

    def ready(self, name: str) -> None:
        """See to it that both threads run, before anything is stored. Raises ClaimError."""
        if heartbeat.manual and self.dropped:
            self.heartbeat.beat()
        try:
            self.heartbeat.ensure()
            deadlines.heartbeat.ensure()
        except RuntimeError as error:
            raise ClaimError(
                f"Claim {name!r} was not taken: no thread could be started to keep it alive ({error})."
            ) from error

    def keep(self, hold: Any, due: float) -> None:
        """Renew a hold from now on, and bring it the news."""
        with self._lock:
            if not len(self._due):
                # The grant has just looked; and a loop of short holds need not wake the thread each time.
                self._asked_at = self._answered_at = clock()
                self._listen_at = self._asked_at + LISTEN_SECONDS
            self._due.set(hold.token, due)
            for name in hold.flag_names:
                self._watched.setdefault(name, set()).add(hold.token)
        deadlines.set(hold.token, hold.deadline)
        self.heartbeat.call_by(min(due, self._look_at()))

    def _look_at(self) -> float:
        """Return when to look for news next."""
        poll_at = self._asked_at + POLL_SECONDS
        try:
            if poll_at > self._listen_at and claim_backends[self.alias].may_listen:
                return max(self._listen_at, clock())
        except InvalidClaimsSetting:
            pass  # the alias was there for a test
        return poll_at

    def heard(self, name: str | None) -> None:
        """There may be news of a name, or (None) of any: look at the store."""
        if (name in self._watched if name is not None else self._watched) and self.heartbeat.running:
            self.heartbeat.poked = True
            self.heartbeat.call_by(0.0)

    def renew_by(self, token: str, when: float) -> None:
        """Renew a hold by that time, if it is not renewed before: it has something to write."""
        with self._lock:
            self._due.bring_forward(token, when)
        self.heartbeat.call_by(when)

    def drop(self, hold: Any, wait: float = 0.0) -> float:
        """Renew a hold no more; wait some seconds for a renewal that is under way. Return how long it took."""
        waited = 0.0
        with self._lock:
            self._due.discard(hold.token)
            self._flagged.discard(hold.token)
            for name in hold.flag_names:
                tokens = self._watched.get(name, set())
                tokens.discard(hold.token)
                if not tokens:
                    self._watched.pop(name, None)
        if wait and threading.current_thread() is not self.heartbeat.thread:
            started = clock()
            # By looking, not by a condition, which a signal's exception in the middle would leave broken.
            while hold.token in self._on_wire and waited < wait:
                time.sleep(0.002)
                waited = clock() - started
        deadlines.discard(hold.token)
        return waited

    def delete_later(self, orphan: Orphan) -> None:
        """Delete a token, if it has a lease, now and again until a late request is over."""
        with self._lock:
            self._orphans.add(orphan)
        try:
            self.heartbeat.call_by(0.0)
        except RuntimeError:
            logger.exception("No thread to delete a lease that may be left; it ends with its TTL alias=%s", self.alias)

    def orphans(self) -> list[Orphan]:
        """Return the tokens that are still to be deleted, for the last try at exit."""
        with self._lock:
            return [*self._orphans.all(), *self.dropped]

    def adopt_vanished(self) -> None:
        """Have deleted what was held, and was neither released nor dropped by its finalizer."""
        until, known = clock() + MAX_ORPHAN_SECONDS, {orphan.token for orphan in self.dropped}
        self.dropped += [
            Orphan(names, token, until, STALE_SECONDS, dropped=True)
            for token, names in registry.vanished(self.alias).items()
            if token not in known
        ]

    def listen_if_stale(self) -> None:
        """Ask for news in this thread, if the last answer is too old. Briefly, and not more than once in a while."""
        if self.is_stale():
            with within(1.0):
                self._listen()

    def is_stale(self) -> bool:
        """Say whether the last answer on stop flags is too old, and none is being waited for."""
        return clock() - max(self._answered_at, self._asked_at) > STALE_SECONDS

    # What the thread does.

    def _work(self) -> float | None:
        self._adopt_dropped()
        with self._lock:
            holds = self._pop_due(clock())
            if holds:
                # What is due soon goes along: else holds taken one by one would be renewed one by one for ever.
                holds += self._pop_due(clock() + min(hold.heartbeat_ms for hold in holds) / 20_000)
            self._on_wire = frozenset(hold.token for hold in holds)
        try:
            if holds:
                self._renew(holds)
        finally:
            self._on_wire = frozenset()
        holds.clear()  # or this thread would keep them from being collected
        if len(self._due) and not heartbeat.manual and clock() >= self._listen_at:
            self._begin_to_listen()
        if self.heartbeat.poked or (len(self._due) and clock() - self._asked_at >= POLL_SECONDS):
            self.heartbeat.poked = False
            if self._watched:
                self._listen()
        self._orphans.delete(self._lock)
        with self._lock:
            times = [self._due.next(), self._orphans.next()]
            if len(self._due) and not heartbeat.manual:  # else who has news brings them
                times.append(self._look_at())
        return min((time for time in times if time is not None), default=None)

    def _begin_to_listen(self) -> None:
        try:
            if claim_backends[self.alias].listen(self.heard):
                self.heartbeat.poked = True  # what was said before is unheard
        except InvalidClaimsSetting:
            pass  # the alias was there for a test

    def _pop_due(self, when: float) -> list[Any]:
        holds = [registry.get(token) for token in self._due.pop_due(when)]
        if None in holds:
            self.adopt_vanished()
            self.heartbeat.call_by(clock() + POLL_SECONDS)
        return [hold for hold in holds if hold is not None and hold.is_open]

    def _renew(self, holds: list[Any]) -> None:
        requests, spans = [], []
        for hold in holds:
            mine = hold.renew_requests()
            spans.append((hold, len(mine)))
            requests += mine
        sent_at = clock()  # before connecting: the lease may be as old as that
        try:
            with within(min(hold.patience for hold in holds)):
                answers = claim_backends[self.alias].renew(requests)
        except Exception as error:
            if not isinstance(error, BackendUnavailable):
                logger.exception("Renewal failed unexpectedly alias=%s", self.alias)
            self._try_again(holds, error)
            return
        at, unknown = 0, []
        for hold, count in spans:
            mine = answers[at : at + count]
            at += count
            if any(answer.outcome is Renewal.UNKNOWN for answer in mine):
                unknown.append(hold)
                continue
            hold.renewed(sent_at, mine)
            self._set_due(hold, min(sent_at + hold.heartbeat_ms / 1000, hold.write_by))
        if unknown:
            self._try_again(unknown, BackendUnavailable(self.alias, "its server is away"))

    def _try_again(self, holds: list[Any], error: Exception) -> None:
        now, jitter = clock(), random.uniform(0.8, 1.0)
        for hold in holds:
            retry = min(2.0, hold.heartbeat_ms / 4000) * jitter
            logger.warning(
                "Renewal failed, still held name=%s alias=%s fence=%s remaining=%.1f retry_in=%.1f error=%s",
                hold.name, self.alias, hold.fence, hold.remaining(), retry, error, extra=hold.log_extra(),
            )  # fmt: skip
            if signals.claim_renewal_failed.receivers:
                signals.send(
                    signals.claim_renewal_failed, name=hold.name, alias=self.alias, lease=hold.lease,
                    remaining=hold.remaining(), error=error,
                )  # fmt: skip
            self._set_due(hold, now + retry)

    def _set_due(self, hold: Any, when: float) -> None:
        with self._lock:
            if hold.is_open and hold.keeps_on:
                self._due.set(hold.token, when)

    def _listen(self) -> None:
        """Ask for stop flags and tell the holds that they concern."""
        self._asked_at = clock()
        try:
            notices = claim_backends[self.alias].poll()
        except Exception as error:
            if not self._unheard:  # once, not each second
                self._unheard = True
                logger.warning("Stop flags cannot be read; the last answer stands alias=%s error=%s", self.alias, error)
            return
        if self._unheard:
            self._unheard = False
            logger.info("Stop flags can be read again alias=%s", self.alias)
        self._answered_at = clock()
        by_name: dict[str, list[Notice]] = {}
        for notice in notices:
            by_name.setdefault(notice.name, []).append(notice)
        with self._lock:
            tokens = set(self._flagged)
            for name in by_name:
                tokens |= self._watched.get(name, set())
        for token in tokens:
            hold = registry.get(token)
            if hold is not None and hold.is_open:
                told = hold.told([notice for name in hold.flag_names for notice in by_name.get(name, ())])
                with self._lock:
                    (self._flagged.add if told else self._flagged.discard)(token)

    def note_flagged(self, token: str) -> None:
        """Look at a hold with each poll, since it has a flag that may be cleared."""
        with self._lock:
            self._flagged.add(token)

    def _adopt_dropped(self) -> None:
        while self.dropped:
            orphan = self.dropped[0]  # in sight of release_all() until it is among the orphans
            registry.remove(orphan.token, self.alias, orphan.names)
            deadlines.discard(orphan.token)
            if orphan.dropped:
                logger.error(
                    "A hold was dropped without release, and is released now: keep it in a variable or use 'with' "
                    "name=%s alias=%s", orphan.names[0], self.alias,
                )  # fmt: skip
            with self._lock:
                self._due.discard(orphan.token)
                self._flagged.discard(orphan.token)
                for name in [name for name, tokens in self._watched.items() if orphan.token in tokens]:
                    self._watched[name].discard(orphan.token)
                    if not self._watched[name]:
                        del self._watched[name]
                self._orphans.add(orphan)
            self.dropped.popleft()

    def _at_end(self) -> None:
        try:
            claim_backends[self.alias].close()
        except InvalidClaimsSetting:
            pass  # the alias was there for a test


_keepers: dict[str, Keeper] = {}
_keepers_lock = threading.Lock()


def keeper_of(alias: str) -> Keeper:
    """Return the keeper of an alias, of which there is one in the process."""
    keeper = _keepers.get(alias)
    if keeper is None:
        with _keepers_lock:
            keeper = _keepers.setdefault(alias, Keeper(alias))
    return keeper


def all_keepers() -> list[Keeper]:
    return list(_keepers.values())


def _after_fork_in_child() -> None:
    """The child keeps nothing of what its parent holds."""
    global _keepers_lock
    _keepers_lock = threading.Lock()
    for keeper in _keepers.values():
        keeper._start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
