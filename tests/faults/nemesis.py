"""What a nemesis is. Each strike returns what it did, or nothing if it could not."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from tests.faults.checker import Terms
from tests.faults.stores import Store

if TYPE_CHECKING:
    from tests.faults.rounds import Round


class Nemesis:
    """
    `lane`: those of one lane strike one after the other, those of two at the same time.

    `turns_clocks`: it needs workers whose wall clock can be turned.
    """

    name: str
    lane = "processes"
    turns_clocks = False
    operations: dict[str, float] = {}

    def __init__(self, round: Round) -> None:
        self.round = round
        self.store: Store = round.store
        self.ttl = round.ttl

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        """Say whether there is anything to hurt in that way."""
        return True

    def strike(self, chance: Random) -> Any:
        raise NotImplementedError

    def terms(self, terms: Terms) -> Terms:
        """Return what is still promised under this nemesis."""
        return terms

    def before(self) -> None:
        """Get the store and what workers are told ready, before the first of them starts."""

    def heal(self) -> None:
        """Undo what a strike has left."""

    def after(self) -> None:
        """Undo what `before` did, when all have ended."""


class OfProcesses(Nemesis):
    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.shares

    def victim(self, chance: Random, *, holding: float = 0.7) -> Any:
        if chance.random() < holding and (slot := self.round.holder()):
            return slot
        alive = self.round.alive()
        return chance.choice(alive) if len(alive) > 1 else None


class OfServer(Nemesis):
    lane = "store"

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.has_server


class Lossy(Nemesis):
    def terms(self, terms: Terms) -> Terms:
        # With its next heartbeat, which may find the store away: at the local deadline at the latest.
        within = self.ttl * 2 / 3 + 0.1
        return replace(terms, told_within=within if terms.told_within == inf else max(terms.told_within, within))
