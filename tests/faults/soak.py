"""Rounds for as long as one likes, and the table of what they came to."""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_claims.clock import clock
from tests.faults.checker import Checker, Violation
from tests.faults.history import read, write_out
from tests.faults.nemeses import for_store
from tests.faults.register import Register
from tests.faults.rounds import Round, tidy
from tests.faults.spawner import Spawner
from tests.faults.stores import STORES

ROUND_SECONDS = 20.0
# Many grants rather than long ones.
NAMES = 8
PAUSE = 0.002
BRIEF = 900
BRIEF_SECONDS = 0.003
MOST_STEPS = 20_000
"""Of the search at one name: what takes more is counted as not judged by it."""
MOST_KEPT = 10
"""Histories, of the first rounds with violations."""


@dataclass
class Report:
    """What all rounds together came to."""

    store: str
    seed: int
    rounds: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    nemeses: Counter[str] = field(default_factory=Counter)
    delays: dict[str, list[float]] = field(default_factory=lambda: {"hand-over": [], "lost_event": [], "stop": []})
    stale: float = 0.0
    violations: list[Violation] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)

    def add(self, checker: Checker) -> None:
        numbers = checker.numbers
        self.rounds += 1
        for what in ("grants", "refusals", "errors", "stops seen", "adopted", "writes", "lost updates"):
            self.counts[what] += numbers[what]
        self.losses += numbers["losses"]
        self.nemeses += numbers["nemesis"]
        self.stale = max(self.stale, numbers["stale belief"])
        for what, theirs in (("hand-over", "hand-overs"), ("lost_event", "lost delays"), ("stop", "stop delays")):
            self.delays[what] += numbers[theirs]
        self.violations += checker.violations

    def table(self) -> str:
        rows: list[tuple[str, Any]] = [
            ("store", self.store),
            ("seed", self.seed),
            ("time", f"{self.seconds / 60:.1f} min in {self.rounds} rounds"),
            ("grants", self.counts["grants"]),
            ("refusals", self.counts["refusals"]),
            ("no answer", self.counts["errors"]),
            ("losses", _listed(self.losses)),
            ("adopted", self.counts["adopted"]),
            ("stops seen", self.counts["stops seen"]),
            ("guarded writes", f"{self.counts['writes']}, lost updates {self.counts['lost updates']}"),
            ("nemeses", _listed(self.nemeses)),
            ("worst stale belief", f"{self.stale * 1000:.1f} ms"),
            *((f"{what} p50 / p99 / worst", _percentiles(delays)) for what, delays in self.delays.items()),
            ("register", f"{self.counts['names judged']} names in order, {self.counts['names given up']} not judged"),
            ("violations", len(self.violations)),
        ]
        wide = max(len(what) for what, _ in rows)
        return "\n".join(f"{what:<{wide}}  {value}" for what, value in rows)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "none"


def _percentiles(values: list[float]) -> str:
    if not values:
        return "none"
    values = sorted(values)
    at = [values[min(int(len(values) * part), len(values) - 1)] * 1000 for part in (0.5, 0.99, 1.0)]
    return " / ".join(f"{value:.1f}" for value in at) + f" ms of {len(values)}"


def judge(checker: Checker, report: Report) -> None:
    """Let the second judge look as well, at each name that it can do."""
    for name in checker.runs.by_name:
        if not checker.terms.exclusive:
            report.counts["names given up"] += 1
            continue
        register = Register(checker.runs, name, checker.terms, MOST_STEPS)
        report.counts["names given up" if register.ok is None else "names judged"] += 1
        if register.ok is False:
            checker.violations.append(Violation("register", f"{name!r}: nothing explains the {register.stuck}"))


def soak(store: str, *, minutes: float, nemeses: list[str], seed: int, workers: int, out: Any = sys.stdout) -> Report:
    """Run rounds of random compositions of nemeses. Histories of rounds with violations are kept."""
    place = Path(tempfile.mkdtemp(prefix="claims-faults-"))
    chance = random.Random(seed)
    report = Report(store, seed)
    leftover: list[Path] = []  # nothing, where a round breaks down: its history is to be looked at
    began = clock()
    spawner = Spawner(place)
    made = STORES[store](place / "store", seed)
    try:
        while (left := minutes * 60 - (clock() - began)) > 3:
            chosen = tuple(chance.sample(nemeses, min(len(nemeses), chance.randint(1, 4))))
            directory = place / f"round-{report.rounds}"
            round = Round(
                made, directory, spawner, chosen, seed=chance.randrange(10**9), seconds=min(ROUND_SECONDS, left),
                workers=workers, names=NAMES, pause=PAUSE, operations={"brief": BRIEF}, spec={"brief": BRIEF_SECONDS},
            )  # fmt: skip
            checker = round.run()
            judge(checker, report)
            report.add(checker)
            report.seconds = clock() - began
            if checker.violations:
                if len(report.kept) < MOST_KEPT:
                    write_out(read(directory), place / f"round-{report.rounds - 1}.history.jsonl")
                    report.kept.append(place / f"round-{report.rounds - 1}.history.jsonl")
                print(f"round {report.rounds - 1}, {', '.join(chosen)}:", file=out)
                for violation in checker.violations[:10]:
                    print(f"  {violation}", file=out, flush=True)
            tidy([directory])
        if not report.kept:
            leftover.append(place)
        return report
    except Exception:
        print(report.table(), file=out)  # of the rounds before
        raise
    finally:
        made.close()
        spawner.close()
        tidy(leftover)


def nemeses_of(store: str, wanted: str) -> list[str]:
    """Return those that were asked for by name, or all that there are for a store."""
    return for_store(STORES[store]) if wanted == "all" else [name for name in wanted.split(",") if name]
