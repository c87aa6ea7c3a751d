"""
Judges a history: which promise was broken, and by which events.

One sweep over the runs of each name. It never accuses on a maybe: what has no answer may have been done at any
time, and what has one was done somewhere between the question and the answer.

| rule | says |
|---|---|
| I1 | no two holds of a name at once, by the store's own account |
| I2 | fences grow in order of grant, also over data loss |
| I3 | nobody but its owner, or an operator, ends or renews a lease |
| I4 | who is granted a name finds nobody who still believes to hold it; belief ends with the local deadline |
| I5 | a guarded write never undoes a later holder's |
| I6 | nothing is renewed after its release, its loss or the death of its process; nothing is left at the end |
| I7 | a free name is taken: no refusal without a lease |
| I8 | a stop is seen by the run that it was aimed at, once, in time, and by no other |
| I9 | a store and processes in good health lose no hold |
| I10 | each call ends in time with an answer that was promised: a dead store is neither yes nor no |
| I11 | what is handed over stays one run: its ticket is good once, in time, with its fence; the giver renews no more |
| I12 | where there is a line, who came first is served first |
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

from tests.faults.history import Event
from tests.faults.runs import Run, Runs

SLACK = 0.003
LOST_WITHIN = 0.05
ZOMBIE_SECONDS = 0.05
IN_LINE_WITHIN = 0.2
"""So much later one has to have come to be behind another for sure."""


@dataclass(frozen=True)
class Terms:
    """What was promised in this round, given the store and its nemeses. Times in seconds."""

    overrun: float = 0.1  # a store may keep a lease so much longer than its TTL
    late: float = 3.0  # a request without an answer may still be done for so long
    told_within: float = inf  # who loses by data loss or force knows by then
    stop_within: float = inf
    calm: bool = False  # nobody is hurt: no hold is lost
    exclusive: bool = True  # False where the store may be told a wrong time
    refusals: bool = True  # False where a lease may outlive its TTL by the store's clock
    fences_after_loss: bool = True  # False where only clients have a clock, and one of them is wrong
    together: bool = True  # False where several names are taken one after the other
    in_line: bool = False  # who waits is served in turn
    verb_within: float = inf  # how long one call may take, standstill of its process apart


@dataclass(frozen=True)
class Violation:
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Checker:
    """Reads one history. `violations` is what was found, `numbers` what was measured."""

    def __init__(self, events: list[Event], terms: Terms = Terms()) -> None:
        self.terms = terms
        self.runs = Runs(events)
        self.violations: list[Violation] = []
        self.numbers: dict[str, Any] = {}
        self._wipes = [(e["t0"], e["t1"]) for e in self.runs.kinds["wiped"]]
        for name, runs in self.runs.by_name.items():
            self._exclusion(name, runs)
            self._fences(name, runs)
            self._ownership(name, runs)
        self._belief()
        self._writes()
        self._zombies()
        self._refusals()
        self._stops()
        self._losses()
        self._answers()
        self._tickets()
        self._line()
        self._count()

    def found(self) -> Counter[str]:
        return Counter(violation.rule for violation in self.violations)

    def _accuse(self, rule: str, text: str) -> None:
        self.violations.append(Violation(rule, text))

    def _wiped(self, lo: float, hi: float) -> bool:
        return any(t0 <= hi and t1 >= lo for t0, t1 in self._wipes)

    # -- I1, I2, I3 --------------------------------------------------------------------------------

    def _exclusion(self, name: str, runs: list[Run]) -> None:
        if not self.terms.exclusive:
            return
        for run, after in pairwise(runs):
            if (
                after.adopted_from == run.token
                or self._wiped(run.at.lo, after.at.hi)
                or not self._too_early(run, after)
            ):
                continue
            if run.at.hi >= after.at.lo and (not self._too_early(after, run) or self._wiped(after.at.lo, run.at.hi)):
                continue  # or the other way round
            early = run.earliest_end(after.at.lo) - after.at.hi
            self._accuse(
                "I1", f"{name!r} was granted to {after.p} (fence {after.fence}) {early:.3f} s before the run of "
                f"{run.p} (fence {run.fence}) could have ended",
            )  # fmt: skip

    def _too_early(self, run: Run, after: Run) -> bool:
        return after.at.hi < run.earliest_end(after.at.lo) - SLACK

    def _fences(self, name: str, runs: list[Run]) -> None:
        seen: dict[int, Run] = {}
        for run in runs:
            other = seen.setdefault(run.fence, run)
            excused = not self.terms.fences_after_loss and self._wiped(other.at.lo, run.at.hi)
            if other is not run and other.token != run.token and not run.adopted_from and not excused:
                self._accuse("I2", f"{name!r}: two runs have fence {run.fence}, of {other.p} and {run.p}")
        for run, after in pairwise(runs):
            excused = not self.terms.fences_after_loss and self._wiped(run.at.lo, after.at.hi)
            if run.at.hi < after.at.lo and after.fence < run.fence and not excused:
                self._accuse("I2", f"{name!r}: fence {after.fence} of {after.p} came after {run.fence} of {run.p}")

    def _ownership(self, name: str, runs: list[Run]) -> None:
        for number, run in enumerate(runs):
            # Grants by which it was certainly over.
            others = [other.at.hi for other in runs[number + 1 : number + 4] if other.token != run.token]
            over_at = min((at for at in others if at > run.at.hi), default=inf)
            deeds = [*((span, "ended", span.lo) for span in run.ended), *((s, "renewed", s.lo) for s in run.renewals)]
            for span, what, when in deeds:
                if span.p and span.p != run.p:
                    self._accuse("I3", f"{name!r}: {span.p} {what} the lease of {run.p} (fence {run.fence})")
                elif when > over_at + SLACK:
                    self._accuse(
                        "I3", f"{name!r}: {run.p} {what} its run with fence {run.fence} {when - over_at:.3f} s after "
                        f"another had been granted",
                    )  # fmt: skip

    # -- I4 ----------------------------------------------------------------------------------------

    def _belief(self) -> None:
        opened = {e["tok"]: e for e in self.runs.kinds["open"]}
        worst = 0.0
        position = {id(run): at for runs in self.runs.by_name.values() for at, run in enumerate(runs)}
        for act in self.runs.kinds["act"]:
            for run in self.runs.by_token.get(act["tok"], ()):
                about = opened.get(act["tok"])
                if about and act["t"] > self._last_sent(run, act["t"]) + about["rd"] + SLACK:
                    self._accuse(
                        "I4", f"{run.name!r}: {run.p} (fence {run.fence}) said held "
                        f"{act['t'] - self._last_sent(run, act['t']) - about['rd']:.3f} s after its deadline",
                    )  # fmt: skip
                following = self.runs.by_name[run.name][position[id(run)] + 1 :][:4]
                after = next((r for r in following if r.token != run.token and r.at.lo >= run.at.hi), None)
                if after is None or act["t"] <= after.at.hi + SLACK:
                    continue
                late = act["t"] - after.at.hi
                excused = run.forced or self._wiped(run.at.lo, after.at.hi) or not self.terms.exclusive
                if excused and late <= self.terms.told_within + self.runs.standstill(run.p, after.at.lo, act["t"]):
                    continue
                worst = max(worst, late)
                self._accuse(
                    "I4", f"{run.name!r}: {run.p} (fence {run.fence}) said held {late:.3f} s after {after.p} had been "
                    f"granted (fence {after.fence}){', told too late' if excused else ''}",
                )  # fmt: skip
        for event in self.runs.kinds["revived"]:
            self._accuse(
                "I4", f"{event['n'][0]!r}: {event['p']} (fence {event['fence']}) said held after it had said lost"
            )
        self.numbers["stale belief"] = worst

    def _last_sent(self, run: Run, before: float) -> float:
        """Return when the last renewal that was answered with yes was sent, of those sent before a moment."""
        return max([run.asked, *(sent for sent in self._sent[run.token] if sent <= before)])

    @property
    def _sent(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] | None = self.__dict__.get("_sent_by_token")
        if found is None:
            found = self.__dict__["_sent_by_token"] = defaultdict(list)
            for event in self.runs.kinds["renew"]:
                if event["res"] == "renewed":
                    found[event["tok"]].append(event["t0"])
        return found

    # -- I5 ----------------------------------------------------------------------------------------

    def _writes(self) -> None:
        writes: dict[tuple[str, int], list[Event]] = defaultdict(list)
        for event in self.runs.kinds["wrote"]:
            writes[event["row"], event["value"]].append(event)
        lost = sum(len(same) - 1 for same in writes.values())
        self.numbers["writes"] = sum(map(len, writes.values()))
        self.numbers["lost updates"] = lost
        for (row, value), same in writes.items():
            if len(same) > 1:
                who = ", ".join(f"{event['p']} with fence {event['fence']}" for event in same)
                self._accuse("I5", f"row {row}: {value} was written {len(same)} times, by {who}")

    # -- I6 ----------------------------------------------------------------------------------------

    def _zombies(self) -> None:
        over: dict[str, tuple[float, str]] = {}
        for event in (*self.runs.kinds["ask"], *self.runs.kinds["lost"]):
            if event["ev"] == "lost" or (event["verb"] == "release" and event["fence"]):
                when = event["t"] if event["ev"] == "lost" else event["t0"]
                what = "loss" if event["ev"] == "lost" else "release"
                over[event["tok"]] = min(over.get(event["tok"], (inf, "")), (when, what))
        for event in self.runs.kinds["renew"]:
            when, what = over.get(event["tok"], (inf, ""))
            late = event["t0"] - when
            if late > ZOMBIE_SECONDS and late - self.runs.standstill(event["p"], when, event["t0"]) > ZOMBIE_SECONDS:
                self._accuse("I6", f"{event['n'][0]!r}: {event['p']} asked to renew {late:.3f} s after its {what}")
        tokens: dict[str, set[str]] = defaultdict(set)
        for event in self.runs.kinds["ask"]:
            if event["verb"] == "acquire":
                tokens[event["tok"]].add(event["p"])
        for token, processes in tokens.items():
            if len(processes) > 1:
                self._accuse("I6", f"token {token} is shared by {', '.join(sorted(processes))}")
        for event in self.runs.kinds["left"]:
            self._accuse(
                "I6",
                f"{event['n'][0]!r} still has a lease {event['after']:.1f} s after all had ended: {event['lease']}",
            )

    # -- I7 ----------------------------------------------------------------------------------------

    def _refusals(self) -> None:
        if not self.terms.refusals:
            return
        for name in {name for event in self.runs.kinds["refused"] for name in event["n"]}:
            lives = [(run.at.lo, run.latest_end(self.terms.overrun)) for run in self.runs.by_name.get(name, ())]
            for ask in self.runs.unanswered.get(name, ()):
                lives.append((ask.t0, ask.t0 + self.terms.late + ask.ttl + self.terms.overrun))
            lives += self.runs.excuses(name, self.terms.together)
            lives.sort()
            self._lives[name] = ([lo for lo, _ in lives], _running_max(hi for _, hi in lives))
        for event in self.runs.kinds["refused"]:
            if event["why"] != "held":
                continue
            begun, until = self._lives.get(event["which"], ([], []))
            at = bisect_right(begun, event["t1"]) - 1
            if at < 0 or until[at] < event["t0"]:
                self._accuse("I7", f"{event['which']!r} was refused to {event['p']} although nobody had it")

    @property
    def _lives(self) -> dict[str, tuple[list[float], list[float]]]:
        found: dict[str, tuple[list[float], list[float]]] = self.__dict__.setdefault("_lives_by_name", {})
        return found

    # -- I8 ----------------------------------------------------------------------------------------

    def _stops(self) -> None:
        aimed: dict[tuple[str, int], Event] = {}
        kept: dict[str, list[Event]] = defaultdict(list)
        maybe: set[tuple[str, int]] = set()
        for event in self.runs.kinds["stop"]:
            if event["keep"]:
                kept[event["n"][0]].append(event)
            elif event["res"] == "flag":
                aimed.setdefault((event["n"][0], event["fence"]), event)
            else:  # no answer, or asked twice and the run had ended by then: it may have been set
                maybe.add((event["n"][0], event["fence"]))
        seen: Counter[tuple[str, int]] = Counter()
        delays = []
        for event in self.runs.kinds["stopseen"]:
            run = (event["n"][0], event["fence"])
            any_name = [(name, event["fence"]) for name in event["n"]]
            asked = next((aimed[key] for key in any_name if key in aimed), None)
            seen[run] += 1
            if asked is None:
                known = any(run in maybe for run in any_name)
                if not known and not any(e["t0"] <= event["t"] for name in event["n"] for e in kept[name]):
                    self._accuse("I8", f"{run[0]!r}: {event['p']} (fence {run[1]}) saw a stop that was not for it")
                continue
            if seen[run] > 1:
                self._accuse("I8", f"{run[0]!r}: {event['p']} (fence {run[1]}) saw the same stop again")
            delay = event["t"] - asked["t1"]
            delay -= self.runs.standstill(event["p"], asked["t0"], event["t"])
            delays.append(max(delay, 0.0))
            if delay > self.terms.stop_within:
                self._accuse("I8", f"{run[0]!r}: {event['p']} (fence {run[1]}) saw its stop after {delay:.3f} s")
        self.numbers["stops seen"] = sum(seen.values())
        self.numbers["stop delays"] = sorted(delays)
        for act in self.runs.kinds["act"] if self.terms.stop_within < inf else ():
            for run_ in self.runs.by_token.get(act["tok"], ()):
                asked = aimed.get((run_.name, run_.fence))
                if asked is None or seen[run_.name, run_.fence]:
                    continue
                late = act["t"] - asked["t1"] - self.runs.standstill(act["p"], asked["t0"], act["t"])
                if late > self.terms.stop_within:
                    self._accuse("I8", f"{run_.name!r}: {act['p']} (fence {run_.fence}) saw no stop for {late:.3f} s")

    # -- I4 and I9: losses -------------------------------------------------------------------------

    def _losses(self) -> None:
        delays = []
        for event in self.runs.kinds["lost"]:
            if event["res"] in ("expired", "max_hold"):
                late = event["t"] - event["deadline"]
                late -= self.runs.standstill(event["p"], event["deadline"] - 0.05, event["t"])
                if self.runs.standstill(event["p"], event["deadline"] - 0.5, event["t"]) > 0.1:
                    continue  # it hardly ran
                delays.append(max(late, 0.0))
                if late > LOST_WITHIN:
                    self._accuse(
                        "I4", f"{event['n'][0]!r}: {event['p']} was told of its loss {late:.3f} s after its deadline"
                    )
            if self.terms.calm and event["res"] not in ("forced", "max_hold"):
                still = self.runs.standstill(event["p"], event["deadline"] - 60, event["t"])
                if still < 0.1:
                    self._accuse("I9", f"{event['n'][0]!r}: {event['p']} lost its hold ({event['res']}) for no reason")
        self.numbers["lost delays"] = sorted(delays)

    # -- I11 ---------------------------------------------------------------------------------------

    def _tickets(self) -> None:
        handed = {event["ticket"]: event for event in self.runs.kinds["handed"] if event["res"]}
        adopters: dict[str, set[str]] = defaultdict(set)
        for event in self.runs.kinds["adopted"]:
            given = handed.get(event["ticket"])
            if given is None or not event["res"]:
                continue
            who, name = adopters[event["ticket"]], event["n"][0]
            who.add(event["tok"])
            if len(who) > 1:
                self._accuse("I11", f"{name!r}: {event['p']} adopted by a ticket that was good before")
            late = event["t0"] - given["t1"] - given["ttl"] - self.terms.overrun
            if late > SLACK:
                self._accuse("I11", f"{name!r}: {event['p']} adopted {late:.3f} s after its ticket had ended")
            fences = {run.fence for run in self.runs.by_token[given["tok"]]}
            if fences and event["fence"] not in fences:
                self._accuse("I11", f"{name!r}: {event['p']} adopted with fence {event['fence']}, not {fences}")
        given_at = {event["tok"]: event["t1"] for event in handed.values()}
        for event in self.runs.kinds["renew"]:
            late = event["t0"] - given_at.get(event["tok"], inf)
            if late > ZOMBIE_SECONDS:
                self._accuse(
                    "I11", f"{event['n'][0]!r}: {event['p']} asked to renew {late:.3f} s after it had handed it over"
                )
        self.numbers["adopted"] = sum(1 for event in self.runs.kinds["adopted"] if event["res"])

    # -- I12 ---------------------------------------------------------------------------------------

    def _line(self) -> None:
        """Of two who waited at once, the fences say who was served first."""
        waits: dict[str, list[Event]] = defaultdict(list)
        for event in self.runs.kinds["wait"] if self.terms.in_line else ():
            if len(event["n"]) == 1 and event["res"] != "error":
                waits[event["n"][0]].append(event)
        for name, events in waits.items():
            for later in events:
                for first in events:
                    if later["res"] == "hold" and first["t0"] + IN_LINE_WITHIN < later["t0"] < first["t1"]:
                        self._in_turn(name, first, later)

    def _in_turn(self, name: str, first: Event, later: Event) -> None:
        (served,) = self.runs.by_token.get(later["tok"], [None])[:1]
        (before,) = self.runs.by_token.get(first["tok"], [None])[:1]
        if served is None or (first["res"] == "hold" and (before is None or before.fence < served.fence)):
            return
        ahead = later["t0"] - first["t0"] - self.runs.standstill(first["p"], first["t0"], later["t0"])
        waited_on = first["t1"] - later["t1"] - self.runs.standstill(first["p"], later["t0"], first["t1"])
        if min(ahead, waited_on) > IN_LINE_WITHIN:
            self._accuse(
                "I12", f"{name!r}: {later['p']} was served before {first['p']}, who came {ahead:.3f} s earlier"
            )

    # -- I10 ---------------------------------------------------------------------------------------

    def _answers(self) -> None:
        for event in self.runs.kinds["crash"]:
            self._accuse("I10", f"{event['p']}: {event['text']}")
        downs = [(e["t0"], e["t1"]) for e in self.runs.kinds["down"]]
        for kind in ("grant", "refused", "renew", "release", "error"):
            for event in self.runs.kinds[kind]:
                took = event["t1"] - event["t0"]
                if took > self.terms.verb_within:
                    took -= self.runs.standstill(event["p"], event["t0"], event["t1"])
                    if took > self.terms.verb_within:
                        self._accuse("I10", f"{event['p']}: {event.get('verb', kind)} took {took:.3f} s")
                if kind != "error" and any(t0 < event["t0"] and event["t1"] < t1 for t0, t1 in downs):
                    self._accuse("I10", f"{event['p']} was told {kind!r} by a store that was down")

    # -- numbers -----------------------------------------------------------------------------------

    def _count(self) -> None:
        kinds = self.runs.kinds
        self.numbers["grants"] = len(kinds["grant"])
        self.numbers["refusals"] = len(kinds["refused"])
        self.numbers["errors"] = len(kinds["error"])
        self.numbers["losses"] = Counter(event["res"] for event in kinds["lost"])
        self.numbers["nemesis"] = Counter(event["what"] for event in kinds["nemesis"])
        self.numbers["hand-overs"] = sorted(self._hand_overs())

    def _hand_overs(self) -> list[float]:
        """Return how long it took from each clean release to the grant of one who was waiting then."""
        waits = {event["tok"]: event for event in self.runs.kinds["wait"] if event["res"] == "hold"}
        found = []
        for runs in self.runs.by_name.values():
            for run, after in pairwise(runs):
                wait = waits.get(after.token)
                if wait and run.ended and wait["t0"] < run.ended[0].lo and run.ended[0].hi <= after.at.hi:
                    found.append(max(after.at.hi - run.ended[0].hi, 0.0))
        return found


def _running_max(values: Any) -> list[float]:
    found: list[float] = []
    for value in values:
        found.append(max(found[-1], value) if found else value)
    return found
