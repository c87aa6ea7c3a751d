"""What hurts the processes and the store. Each strike returns what it did, or nothing if it could not."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from django_claims.clock import clock
from tests.faults.checker import Terms
from tests.faults.stores import Store

if TYPE_CHECKING:
    from tests.faults.rounds import Round


class Nemesis:
    """`lane`: those of one lane strike one after the other, those of two at the same time."""

    name: str
    lane = "processes"
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

    def heal(self) -> None:
        """Undo what a strike has left."""


class OfProcesses(Nemesis):
    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.shares

    def victim(self, chance: Random, *, holding: float = 0.7) -> Any:
        if chance.random() < holding and (slot := self.round.holder()):
            return slot
        alive = self.round.alive()
        return chance.choice(alive) if len(alive) > 1 else None


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


class OfServer(Nemesis):
    lane = "store"

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.has_server


class Cut(OfServer):
    """All connections behind the proxy end."""

    name = "cut"

    def strike(self, chance: Random) -> Any:
        self.store.proxy.cut()
        return "cut"


class Swallow(OfServer):
    """What is said in one direction goes nowhere, and no connection ends."""

    name = "swallow"

    def strike(self, chance: Random) -> Any:
        proxy = self.store.proxy
        proxy.swallows = chance.choice(("requests", "replies"))
        seconds = chance.uniform(0.3, 1.8) * self.ttl
        self.round.pause_for(seconds)
        what = proxy.swallows
        self.heal()
        proxy.cut()
        return f"{what} for {seconds:.2f} s"

    def heal(self) -> None:
        self.store.proxy.heal()


class Delay(OfServer):
    """What the server says comes late."""

    name = "delay"

    def strike(self, chance: Random) -> Any:
        self.store.proxy.delay = chance.uniform(0.02, 0.45) * self.ttl
        self.round.pause_for(chance.uniform(0.3, 1.5) * self.ttl)
        delay = self.store.proxy.delay
        self.heal()
        return f"{delay:.2f} s"

    def heal(self) -> None:
        self.store.proxy.heal()


class LateThenSilent(OfServer):
    """An answer comes late, and the next ones not at all: whoever counts from the answer believes for too long."""

    name = "late_then_silent"

    def strike(self, chance: Random) -> Any:
        proxy = self.store.proxy
        self.round.holder(3)
        # Below the store timeout of workers (a sixth of their TTL), or there is no answer at all.
        proxy.delay = 0.1 * self.ttl
        self.round.pause_for(0.45 * self.ttl)
        proxy.swallows = "requests"
        self.round.pause_for(1.2 * self.ttl)
        self.heal()
        proxy.cut()
        return "late, then silent"

    def heal(self) -> None:
        self.store.proxy.heal()


class Throttle(OfServer):
    """What the server says drips."""

    name = "throttle"

    def strike(self, chance: Random) -> Any:
        self.store.proxy.drip = (chance.randint(1, 20), chance.uniform(0.001, 0.01))
        self.round.pause_for(chance.uniform(0.3, 1.5) * self.ttl)
        self.heal()
        return "dripped"

    def heal(self) -> None:
        self.store.proxy.heal()


class LoseReply(OfServer):
    """Requests are done, and the connection ends before the answer."""

    name = "lose_reply"
    words = (b"",)

    def strike(self, chance: Random) -> Any:
        proxy = self.store.proxy
        before = proxy.lost
        proxy.loses = chance.choice(self.words) or b"\n"
        self.round.pause_for(chance.uniform(0.02, 0.4) * self.ttl)
        self.heal()
        return f"{proxy.lost - before} replies lost"

    def heal(self) -> None:
        self.store.proxy.heal()


class Freeze(OfServer):
    """The server lives and does nothing."""

    name = "freeze"

    def strike(self, chance: Random) -> Any:
        seconds = chance.choice((chance.uniform(0.05, 0.5), chance.uniform(0.8, 1.6))) * self.ttl
        with self.store.server.frozen():
            t0 = clock()
            self.round.pause_for(seconds)
            self.round.writer.write("down", t0=t0, t1=clock())
        return f"for {seconds:.2f} s"


class Restart(OfServer):
    """The server is killed and comes back with its data, if it can keep it."""

    name = "restart"
    keep = True

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.has_server and store.keeps_data

    def strike(self, chance: Random) -> Any:
        t0 = clock()
        self.store.restart(keep=self.keep)
        if not self.keep:
            self.round.writer.write("wiped", t0=t0, t1=clock())
        self.round.pause_for(chance.uniform(0.5, 1.0) * self.ttl)
        return f"in {clock() - t0:.2f} s"


class Lossy(Nemesis):
    def terms(self, terms: Terms) -> Terms:
        # With its next heartbeat, which may find the store away: at the local deadline at the latest.
        within = self.ttl * 2 / 3 + 0.1
        return replace(terms, told_within=within if terms.told_within == inf else max(terms.told_within, within))


class RestartEmpty(Lossy, Restart):
    """The server is killed and comes back without its data."""

    name = "restart_empty"
    keep = False

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.has_server and store.name in ("redis", "memcached")


class Wipe(Lossy):
    """All data is gone at once: FLUSHALL, cache.clear(), DELETE without WHERE."""

    name = "wipe"
    lane = "store"

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.name in ("redis", "memcached", "postgresql", "mariadb", "sqlite")

    def strike(self, chance: Random) -> Any:
        t0 = clock()
        self.store.wipe()
        self.round.writer.write("wiped", t0=t0, t1=clock() + self.store.wipes_for)
        return "wiped"


NEMESES: dict[str, type[Nemesis]] = {
    nemesis.name: nemesis
    for nemesis in (
        Kill, Terminate, Stop, StopAtWrite, Fork, Crowd, Starve, Force,
        Cut, Swallow, Delay, LateThenSilent, Throttle, LoseReply,
        Freeze, Restart, RestartEmpty, Wipe,
    )
}  # fmt: skip


def for_store(store: type[Store]) -> list[str]:
    """Return the names of the nemeses that there are for a store."""
    return [name for name, nemesis in NEMESES.items() if nemesis.fits(store)]
