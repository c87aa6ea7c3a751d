"""Clocks that jump. Nothing may depend on a client's wall clock; a store's may be set back."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.faults import clocks
from tests.faults.checker import Terms
from tests.faults.nemesis import Nemesis, OfProcesses
from tests.faults.stores import Store

MOST_BACK = 3
"""TTLs by which a store is set back in one round, at most: for so much longer its leases may live."""


class ClientClock(OfProcesses):
    """The wall clock of a process jumps, forward or back."""

    name = "client_clock"
    turns_clocks = True

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.shares and not store.expires_by_wall_clock

    def strike(self, chance: Random) -> Any:
        slot = self.victim(chance)
        if not slot:
            return None
        seconds = chance.choice((-1, 1)) * chance.choice((chance.uniform(0.1, 3) * self.ttl, 3600, 86400 * 40))
        clocks.turn(self.round.clock_of(slot.process), seconds)
        return f"{slot.process} by {seconds:.1f} s"

    def terms(self, terms: Terms) -> Terms:
        return terms if self.store.has_clock else replace(terms, fences_after_loss=False)


class ClockSetBack(Nemesis):
    """The clock of the store is set back, by less than a lease lives each time."""

    name = "clock_set_back"
    lane = "store"
    _back = 0.0

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return bool(clocks.library()) and (store.name == "redis" or store.expires_by_wall_clock)

    @property
    def turns_clocks(self) -> bool:  # type: ignore[override]
        return self.store.expires_by_wall_clock

    def before(self) -> None:
        self.path = self.round.clock_of("")
        clocks.turn(self.path, 0.0)
        if self.store.server:
            self.store.server.env = clocks.environment(self.path)
            self.store.restart(keep=True)

    def strike(self, chance: Random) -> Any:
        seconds = min(chance.uniform(0.2, 0.9) * self.ttl, MOST_BACK * self.ttl - self._back)
        if seconds < 0.1:
            return None
        self._back += seconds
        clocks.turn(self.path, -self._back)
        self.round.pause_for(chance.uniform(0.3, 0.8) * self.ttl)
        return f"by {seconds:.2f} s"

    def terms(self, terms: Terms) -> Terms:
        # A counter that was lost starts anew by the clock.
        return replace(terms, overrun=terms.overrun + MOST_BACK * self.ttl, fences_after_loss=False)

    def after(self) -> None:
        if self.store.server:
            self.store.server.env = {}
            self.store.restart(keep=True)
