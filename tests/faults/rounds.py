"""One round: workers on a store for some seconds, hurt by nemeses, and the judgement of what they wrote."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django_claims.clock import clock
from tests.faults import nemeses as nemeses_module
from tests.faults.checker import Checker, Terms
from tests.faults.history import Writer, read
from tests.faults.spawner import Spawner
from tests.faults.stores import Store, make_guard
from tests.faults.workers import WHERE

TTL = 1.2
END_SECONDS = 60.0
"""A process that works for so long when it should end hangs; on a busy machine that starves it, 20 s may be work."""
# A signal's exception that came in the middle of a finalizer, or of logging's own end: Python drops it, and says so.
DROPPED = re.compile(
    r"Exception ignored in.*?\n(SystemExit: 1\d\d|RuntimeError: cannot release un-acquired lock)\n", re.DOTALL
)


@dataclass
class Slot:
    """The place of one worker, and the process that has it now."""

    number: int
    pid: int = 0
    process: str = ""
    generation: int = -1
    stopped: bool = False


@dataclass
class Round:
    """What is to be done. `operations` changes how often workers do what; see workers.OPERATIONS."""

    store: Store
    directory: Path
    spawner: Spawner
    nemeses: tuple[str, ...] = ()
    seed: int = 1
    seconds: float = 5.0
    workers: int = 5
    names: int = 3
    ttl: float = TTL
    mutant: str = ""
    guard: bool = True
    operations: dict[str, float] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)  # more of what workers are told
    pause: float = 0.01
    terms: dict[str, Any] = field(default_factory=dict)
    follow_dead: bool = True
    long_stops: bool = False  # all of them longer than the TTL
    direct: dict[str, float] = field(default_factory=dict)  # what those do that do not go through the proxy, if else

    def run(self) -> Checker:
        """Do it, and return the judgement; the history stays in the directory."""
        self.random = random.Random(f"{self.store.name} {self.nemeses} {self.seed}")
        self.directory.mkdir(parents=True)
        self.writer = Writer(self.directory, "arena")
        tag = os.urandom(3).hex()
        self.all_names = [f"job-{tag}-{number}" for number in range(self.names)]
        if self.guard:
            make_guard(self.store.directory, self.all_names)
        chosen = [nemeses_module.NEMESES[name](self) for name in self.nemeses]
        for nemesis in chosen:
            self.operations = {**self.operations, **nemesis.operations}
        terms = Terms(overrun=self.store.overrun, calm=not chosen, together=self.store.together)
        if not chosen:
            terms = replace(terms, stop_within=1.7, in_line=self.store.name == "redis")
        for nemesis in chosen:
            terms = nemesis.terms(terms)
        self.turns_clocks = any(nemesis.turns_clocks for nemesis in chosen)
        if self.turns_clocks:
            self.spawner = self.spawner.with_clocks()
        self.judged_by = replace(terms, **self.terms)
        self.slots = [Slot(number) for number in range(self.workers if self.store.shares else 1)]
        self.lock = threading.RLock()
        try:
            for nemesis in chosen:
                nemesis.before()
            self.ends = clock() + self.seconds
            try:
                for slot in self.slots:
                    self.spawn(slot)
                self._strike(chosen)
            finally:
                for nemesis in chosen:
                    nemesis.heal()
                left = self._end()
            for pid in left:
                self.writer.write("crash", t=clock(), text=f"process {pid} did not end by itself")
            self._inspect()
        finally:
            for nemesis in chosen:
                nemesis.after()
        self._look_at_logs()
        return Checker(read(self.directory), self.judged_by)

    # -- workers -----------------------------------------------------------------------------------

    def specification(self, process: str, *, proxied: bool) -> dict[str, Any]:
        operations = self.operations if proxied else self.direct or self.operations
        return {
            "p": process, "dir": str(self.directory), "log": str(self.directory / f"{process}.log"),
            "kind": self.store.kind, "settings": self.store.settings(proxied=proxied), "names": self.all_names,
            "ttl": self.ttl, "seed": self.seed, "ends": self.ends, "operations": operations,
            "mutant": self.mutant, "guard": self.guard, "pause": self.pause, "follow_dead": self.follow_dead,
            "store": self.store.name, "threads": self.workers, **self.spec,
        }  # fmt: skip

    def spawn(self, slot: Slot) -> None:
        """Put a fresh process into a place."""
        with self.lock:
            slot.generation += 1
            slot.process = f"w{slot.number}.{slot.generation}"
            # Half of them, so that somebody can take over.
            slot.pid = self._spawn(self.specification(slot.process, proxied=slot.number % 2 == 0))
            slot.stopped = False

    def _spawn(self, spec: dict[str, Any]) -> int:
        if self.turns_clocks:
            spec["clock"] = str(self.clock_of("" if self.store.expires_by_wall_clock else spec["p"]))
        return self.spawner.spawn(spec)

    def clock_of(self, process: str) -> Path:
        """Return the file that says by how much the wall clock of a process is off; '': that of the store."""
        return self.directory / f"{process or 'store'}.clock"

    def signal(self, slot: Slot, number: signal.Signals) -> bool:
        """Send a worker a signal, and say whether it lived."""
        with self.lock:
            if not slot.pid or slot.pid in self.spawner.codes:  # 0 would be all of our own process group
                return False
            if number in (signal.SIGKILL, signal.SIGTERM):
                self.writer.write("dead", of=slot.process, t=clock())
            try:
                os.kill(slot.pid, number)
            except ProcessLookupError:
                return False
            slot.stopped = number == signal.SIGSTOP or (slot.stopped and number != signal.SIGCONT)
            return True

    def replace(self, slot: Slot) -> None:
        """Wait for the end of a worker, and put another one in its place while there is time."""
        self.spawner.wait([slot.pid], 10)
        self._replace_ended(slot)

    def alive(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.pid not in self.spawner.codes and not slot.stopped]

    def holder(self, seconds: float = 0.2) -> Slot | None:
        """Return a worker that has a hold just now, if one can be found."""
        until = clock() + seconds
        while clock() < until:
            for slot in self.random.sample(self.slots, len(self.slots)):
                if not slot.stopped and (self.directory / f"holds-{slot.pid}").exists():
                    return slot
            time.sleep(0.001)
        return None

    # -- the course of things ----------------------------------------------------------------------

    def _strike(self, chosen: list[Any]) -> None:
        lanes = {lane: [n for n in chosen if n.lane == lane] for lane in ("processes", "store")}
        helpers = [threading.Thread(target=self._keep_full, daemon=True)]
        if lanes["processes"]:
            helpers.append(threading.Thread(target=self._lane, args=("processes", lanes["processes"]), daemon=True))
        for helper in helpers:
            helper.start()
        # In this thread, since a server that is started anew ends with the thread that has started it.
        if lanes["store"]:
            self._lane("store", lanes["store"])
        for helper in helpers:
            helper.join(max(self.ends - clock(), 0) + 60)

    def _keep_full(self) -> None:
        while clock() < self.ends:
            self._replace_ended()
            time.sleep(0.02)

    def _replace_ended(self, *slots: Slot) -> None:
        for slot in slots or self.slots:
            with self.lock:
                if slot.pid in self.spawner.codes and clock() < self.ends - 0.2:
                    self.spawn(slot)

    def _lane(self, lane: str, mine: list[Any]) -> None:
        chance = random.Random(f"{self.seed} {lane}")
        self.pause_for(chance.uniform(0.3, 0.4))
        turns: list[Any] = []
        while clock() < self.ends - 0.2:
            turns = turns or chance.sample(mine, len(mine))  # each in its turn
            nemesis = turns.pop()
            t0 = clock()
            try:
                what = nemesis.strike(chance)
            except Exception as error:
                self.writer.write("crash", t=clock(), text=f"nemesis {nemesis.name}: {type(error).__name__}: {error}")
                raise
            if what:
                self.writer.write("nemesis", what=nemesis.name, t0=t0, t1=clock(), text=str(what))
            self.pause_for(chance.uniform(0.05, 0.3))

    def pause_for(self, seconds: float) -> None:
        time.sleep(max(min(seconds, self.ends - clock()), 0.0))

    def _end(self) -> list[int]:
        """Let all go on, and wait for their end."""
        started = [slot for slot in self.slots if slot.pid]
        left = [slot.pid for slot in started]
        ends = clock() + END_SECONDS
        while left and clock() < ends:
            for pid in left:  # again and again: one that stops itself may do so for a last time
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            left = self.spawner.wait(left, 1.0)
        for slot in started:
            if slot.pid in left and self.signal(slot, WHERE):
                time.sleep(0.5)  # to write it down
                self.signal(slot, signal.SIGKILL)
        self.spawner.wait(left, 10)
        return left

    def _inspect(self) -> None:
        """When nothing is left to end, no lease is left either, and each name can be had."""
        if not self.store.shares:
            return
        now = clock()
        spec = self.specification("inspector", proxied=False)
        gone_by = now + self.ttl + self.judged_by.overrun + 1.5
        spec |= {"role": "inspector", "all_ended": now, "gone_by": gone_by, "mutant": ""}
        pid = self._spawn(spec)
        if self.spawner.wait([pid], gone_by - now + 20):
            os.kill(pid, signal.SIGKILL)
            self.writer.write("crash", t=clock(), text="the inspector did not end")

    def _look_at_logs(self) -> None:
        for path in self.directory.glob("*.log"):
            said = DROPPED.sub("", path.read_text(errors="replace"))
            if "Traceback" in said or "Fatal Python" in said:
                self.writer.write("crash", t=clock(), text=f"{path.name}: {said[-600:]}")


def tidy(paths: Iterable[Path]) -> None:
    """Remove histories that nobody needs."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
