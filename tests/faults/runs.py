"""
Runs: each grant of each name, with all that became of it, on one clock.

The store says when it granted and renewed by a clock of its own. Every answer bounds the difference to ours; where
all of them agree, as they do unless somebody turned a clock, its times are taken, else those around the question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.faults.history import Event

IN_LINE = 6.5
"""For so long after it has asked, one who stands in line may be granted the name, and have it without knowing."""


@dataclass
class Span:
    """When something happened: not before `lo`, not after `hi`."""

    lo: float
    hi: float
    p: str = ""
    rest: float = 0.0  # so much later it is over, by its time as a lease is


@dataclass
class Run:
    """One grant of one name. `asked`: when it was sent. `ended`: sure releases, `maybe_ended`: possible ones."""

    name: str
    token: str
    fence: int
    p: str
    at: Span
    asked: float
    ttl: float
    renewals: list[Span] = field(default_factory=list)
    ended: list[Span] = field(default_factory=list)
    maybe_ended: list[float] = field(default_factory=list)
    dead_at: float = inf
    forced: list[Span] = field(default_factory=list)
    adopted_from: str = ""  # the token of the run that was handed over to this one, which has its fence

    def earliest_end(self, before: float) -> float:
        """Return the first moment at which somebody else may have it, by what was renewed for sure before a moment."""
        last = max([self.at.lo, *(renewal.lo for renewal in self.renewals if renewal.hi <= before)])
        ends = [last + self.ttl, self.dead_at, *self.maybe_ended]
        ends += [span.lo + span.rest for span in (*self.ended, *self.forced)]
        return min(ends)

    def latest_end(self, overrun: float) -> float:
        """Return the last moment at which its lease may have lived."""
        if self.ended:
            return min(span.hi + (span.rest + overrun if span.rest else 0.0) for span in self.ended)
        last = max([self.at.hi, *(renewal.hi for renewal in self.renewals)])
        if self.dead_at < inf:
            last = max(last, self.dead_at)  # what it had sent may have been done
        return last + self.ttl + overrun


class Clocks:
    """Brings the store's times onto the processes' clock, if that can be done."""

    def __init__(self, every: Iterable[Event]) -> None:
        events = list(every)
        spans = [(e["srv"] / 1e6 - e["t1"], e["srv"] / 1e6 - e["t0"]) for e in events if e.get("srv")]
        # A grant that is told again, or that was pushed, is older than its question; a renewal never.
        sure = [e["srv"] / 1e6 - e["t0"] for e in events if e.get("srv") and e["ev"] == "renew"]
        self.lo = max((lo for lo, _ in spans), default=0.0)
        self.hi = min(sure or [hi for _, hi in spans], default=0.0)
        # A store that says when it looked and not when it wrote is a little early.
        self.agree = bool(spans) and self.lo <= self.hi + 0.001

    def span(self, event: Event) -> Span:
        lo, hi, srv = event["t0"], event["t1"], event.get("srv")
        if srv and self.agree:
            lo, hi = max(lo, srv / 1e6 - self.hi - 0.001), min(hi, srv / 1e6 - self.lo + 0.001)
            if event.get("early"):
                hi = event["t1"]
            if event["ev"] == "renew":
                lo = event["t0"]  # a table is read after it was written: the lease may be older than the time says
            if lo > hi:
                lo, hi = event["t0"], event["t1"]
        return Span(lo, hi, event["p"])


@dataclass
class Unanswered:
    """An acquire of which nobody knows the outcome: it may have a lease from `t0` on."""

    token: str
    p: str
    t0: float
    ttl: float


class Runs:
    """All runs of a history, by name in order of grant; and what else happened to each name."""

    def __init__(self, events: list[Event]) -> None:
        self.clocks = Clocks(e for e in events if e["ev"] in ("grant", "renew"))
        self.by_name: dict[str, list[Run]] = defaultdict(list)
        self.by_token: dict[str, list[Run]] = defaultdict(list)
        self.unanswered: dict[str, list[Unanswered]] = defaultdict(list)
        self.waited: dict[str, list[tuple[float, float]]] = defaultdict(list)  # when somebody stood in line
        self.tried: dict[str, list[tuple[float, float]]] = defaultdict(list)  # as one of several that were not had
        self.asked_tokens: set[str] = set()
        self.givers: dict[str, str] = {}  # by ticket: the token of the hold that was handed over
        self.dead: dict[str, float] = {}
        self.last: dict[str, float] = defaultdict(float)
        kinds: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            kinds[event["ev"]].append(event)
            self.last[event["p"]] = max(self.last[event["p"]], event.get("t1", event.get("t", event.get("t0", 0.0))))
        self.kinds = kinds
        for event in (*kinds["dead"], *kinds["exit"]):
            who = event.get("of", event["p"])
            self.dead[who] = min(self.dead.get(who, inf), max(event["t"], self.last[who] if "of" in event else 0.0))
        self._grants()
        self._hand_overs()
        self._fates()
        for runs in self.by_name.values():
            runs.sort(key=lambda run: (run.at.lo, run.fence))

    def _grants(self) -> None:
        for event in self.kinds["grant"]:
            for name in event["n"]:
                again = next((r for r in self.by_token[event["tok"]] if r.name == name), None)
                if again is not None and again.fence == event["fence"]:
                    # The same token asked twice and the second answer came: granted by either, renewed by the last.
                    again.renewals.append(Span(event["t0"], event["t1"], event["p"]))
                    continue
                run = Run(
                    name, event["tok"], event["fence"], event["p"], self.clocks.span(event), event["t0"], event["ttl"],
                    dead_at=self.dead.get(event["p"], inf),
                )  # fmt: skip
                self.by_name[name].append(run)
                self.by_token[event["tok"]].append(run)

    def _hand_overs(self) -> None:
        """What is handed over lives on without its giver; who adopts it has a run of its own."""
        for event in self.kinds["handed"]:
            for run in self.of(event) if event["res"] else ():
                self.givers[event["ticket"]] = run.token
                run.renewals.append(Span(event["t0"], event["t1"], event["p"]))
                run.dead_at = inf
        for event in sorted(self.kinds["adopted"], key=lambda event: event["t0"]):
            of = [run for run in self.by_token.get(self.givers.get(event["ticket"], ""), ()) if run.name in event["n"]]
            if not of or not event["res"]:
                continue
            giver = of[0]
            if again := self.of(event):  # its answer was lost, and it has asked again
                again[0].renewals.append(Span(event["t0"], event["t1"], event["p"]))
                continue
            run = Run(
                giver.name, event["tok"], event["fence"], event["p"], Span(event["t0"], event["t1"], event["p"]),
                event["t0"], event["ttl"], dead_at=self.dead.get(event["p"], inf), adopted_from=giver.token,
            )  # fmt: skip
            self.by_name[giver.name].append(run)
            self.by_token[event["tok"]].append(run)

    def _fates(self) -> None:
        for event in self.kinds["renew"]:
            if event["res"] == "renewed":
                for run in self.of(event):
                    run.renewals.append(self.clocks.span(event))
        kinds = ("grant", "refused", "release", "error", "handed", "adopted")
        answered = {(e["tok"], e["i"]) for kind in kinds for e in self.kinds[kind]}
        for event in self.kinds["release"]:
            if event["res"] == "released":
                for run in self.of(event):
                    run.ended.append(Span(event["t0"], event["t1"], event["p"], event["rest"] / 1000))
        for event in (*self.kinds["ask"], *self.kinds["error"]):
            self.asked_tokens.add(event["tok"])
            if event["ev"] == "ask" and (event["tok"], event["i"]) in answered:
                continue
            if event["verb"] == "hand_over":  # it is given up then, and freed as soon as the store answers
                for run in self.of(event):
                    run.maybe_ended.append(event["t0"])
            elif event["verb"] == "adopt":  # by one who may have died of it
                for run in self.by_token.get(self.givers.get(event["ticket"], ""), ()):
                    run.maybe_ended.append(event["t0"])
                    for name in event["n"]:
                        self.unanswered[name].append(Unanswered(event["tok"], event["p"], event["t0"], event["ttl"]))
            elif event["verb"] == "release":
                for name in event["n"]:
                    for run in self.by_token[event["tok"]]:
                        if run.name == name:
                            run.maybe_ended.append(event["t0"] + event["rest"] / 1000)
            elif event["verb"] == "acquire":
                for name in event["n"]:
                    self.unanswered[name].append(Unanswered(event["tok"], event["p"], event["t0"], event["ttl"]))
        for event in (*self.kinds["refused"], *self.kinds["error"]):
            if event.get("place"):
                for name in event["n"]:
                    self.waited[name].append((event["t0"], event["t1"] + IN_LINE))
            if len(event["n"]) > 1:
                for name in event["n"]:
                    self.tried[name].append((event["t0"], event["t1"]))
        for event in self.kinds["force"]:
            for run in self.by_name.get(event["n"][0], ()):
                if run.fence == event["fence"] and event["res"]:
                    run.forced.append(Span(event["t0"], event["t1"], event["p"]))
                elif run.fence == event["fence"]:  # no answer; or asked twice, and the run had ended by then
                    run.maybe_ended.append(event["t0"])

    def excuses(self, name: str, together: bool) -> list[tuple[float, float]]:
        """Return when a name may have been refused though nobody was granted it."""
        return self.waited.get(name, []) + ([] if together else self.tried.get(name, []))

    def of(self, event: Event) -> list[Run]:
        """Return the runs that an event is about: by token and name."""
        return [run for run in self.by_token.get(event["tok"], ()) if run.name in event["n"]]

    def all(self) -> list[Run]:
        return [run for runs in self.by_name.values() for run in runs]

    def standstill(self, p: str, lo: float, hi: float) -> float:
        """Return for how long a process stood still between two moments."""
        gaps: dict[str, list[Any]] = self.__dict__.setdefault("_gaps", {})
        if not gaps:
            gaps[""] = []
            for event in self.kinds["gap"]:
                gaps.setdefault(event["p"], []).append((event["t0"], event["t1"]))
        return sum(max(min(hi, t1) - max(lo, t0), 0.0) for t0, t1 in gaps.get(p, ()))
