"""What hurts the store, the wires to it, and its data."""

from __future__ import annotations

from random import Random
from typing import Any

from django_claims.clock import clock
from tests.faults.nemesis import Lossy, OfServer
from tests.faults.stores import Store


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


class Evict(Lossy, OfServer):
    """Memory is short, others write a lot, and the store throws away what was not used for long: leases too."""

    name = "evict"

    @classmethod
    def fits(cls, store: type[Store]) -> bool:
        return store.name in ("redis", "memcached")

    def before(self) -> None:
        self.store.be_short_of_memory()

    def strike(self, chance: Random) -> Any:
        t0 = clock()
        evicted = self.store.fill_up(chance)
        # Each name perhaps several times, when it was taken again meanwhile.
        self.round.writer.write("wiped", t0=t0, t1=clock() + self.store.wipes_for, times=5)
        self.round.pause_for(chance.uniform(0.5, 1.0) * self.ttl)
        return f"{evicted} keys evicted"

    def after(self) -> None:
        self.store.have_enough_memory()
