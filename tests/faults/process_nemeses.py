"""What hurts processes, and what operators and programs do to them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.faults.checker import Terms
from tests.faults.nemesis import Nemesis, OfProcesses
from tests.faults.stores import Store

if TYPE_CHECKING:
    from tests.faults.rounds import Round


class Kill(OfProcesses):
    """SIGKILL of holders and waiters."""

    name = "kill"

    def strike(self, chance: Random) -> Any:
        slot = self.victim(chance)
        if not slot:
            return None
        process = slot.process
        if self.round.signal(slot, signal.SIGKILL):
            self.round.replace(slot)
        return process


class Terminate(OfProcesses):
    """SIGTERM of several at once, some of them twice."""

    name = "terminate"

    def strike(self, chance: Random) -> Any:
        slots = chance.sample(self.round.slots, chance.randint(1, len(self.round.slots)))
        struck = [slot for slot in slots if self.round.signal(slot, signal.SIGTERM)]
        if chance.random() < 0.3:
            for slot in struck:
                self.round.signal(slot, signal.SIGTERM)
        for slot in struck:
            self.round.replace(slot)
        return len(struck)


class Stop(OfProcesses):
    """SIGSTOP for shorter or longer than a lease lives, of holders more often than of others."""

    name = "stop"

    def strike(self, chance: Random) -> Any:
        slot = self.victim(chance, holding=1.0 if self.round.long_stops else 0.7)
        if not slot or not self.round.signal(slot, signal.SIGSTOP):
            return None
        shorter, longer = chance.uniform(0.1, 0.6), chance.uniform(1.0, 1.8)
        seconds = (longer if self.round.long_stops else chance.choice((shorter, longer))) * self.ttl
        self.round.pause_for(seconds)
        self.round.signal(slot, signal.SIGCONT)
        return f"{slot.process} for {seconds:.2f} s"


class StopAtWrite(OfProcesses):
    """A worker stops itself between its check and its write; here it is made to go on when another has had its turn."""

    name = "stop_at_write"
    operations = {"write": 25}

    def __init__(self, round: Round) -> None:
        super().__init__(round)
        round.spec.setdefault("stops_itself", 0.06)

    def strike(self, chance: Random) -> Any:
        woken = 0
        for path in self.round.directory.glob("stopped-*"):
            if time.time() - path.stat().st_mtime > 1.3 * self.ttl:
                woken += self.wake(path)
        return woken

    def heal(self) -> None:
        self.round.spec["stops_itself"] = 0
        for path in self.round.directory.glob("stopped-*"):
            self.wake(path)

    def wake(self, path: Path) -> bool:
        path.unlink()
        try:
            os.kill(int(path.name.partition("-")[2]), signal.SIGCONT)
        except ProcessLookupError:  # somebody has killed it meanwhile
            return False
        return True


class Fork(Nemesis):
    """Forks in the middle of holds."""

    name = "fork"
    operations = {"fork": 25}

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.shares

    def strike(self, chance: Random) -> Any:
        return None


class Crowd(Nemesis):
    """Threads and asyncio tasks by the hundred, some of them cancelled."""

    name = "crowd"
    operations = {"threads": 6, "tasks": 6}

    def strike(self, chance: Random) -> Any:
        return None


class Starve(Nemesis):
    """Code that lets no other thread run."""

    name = "starve"
    operations = {"starve": 10}

    def strike(self, chance: Random) -> Any:
        return None


class Force(Nemesis):
    """An operator who ends what runs."""

    name = "force"
    operations = {"force": 8}

    def strike(self, chance: Random) -> Any:
        return None

    def terms(self, terms: Terms) -> Terms:
        # As fast as a stop: it is asked for once a second.
        return replace(terms, told_within=1.5 if terms.told_within == inf else max(terms.told_within, 1.5))
