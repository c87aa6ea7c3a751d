"""
Is there an order in which all answers make sense? A search in the manner of Wing and Gong, one name at a time.

A name is a register of who holds, with expiry: `grant` fits if nobody has it, or whoever had it may have run out,
died, or been released without an answer; `renew` and `release` fit if the owner asks; `refused` fits if a lease may
still live. Each took effect at one moment between its question and its answer. Moments are kept as bounds: what may
have been earliest, what may have been last. An acquire without an answer excuses refusals for as long as its lease
may live, and nothing else. So the search may fail to see a fault, and never invents one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from tests.faults.checker import Terms
from tests.faults.runs import Runs

SLACK = 0.003
MOST_STEPS = 100_000


@dataclass(frozen=True)
class Operation:
    kind: str
    lo: float
    hi: float
    token: str = ""
    fence: int = 0
    p: str = ""
    ttl: float = 0.0
    rest: float = 0.0
    giver: str = ""  # whose lease it adopts

    def __str__(self) -> str:
        return f"{self.kind} by {self.p or 'nobody'} (fence {self.fence}) between {self.lo:.4f} and {self.hi:.4f}"


class State(NamedTuple):
    """Who has it; until when at least (as early as it may run out) and at most; and what time it is at least."""

    token: str
    fence: int
    least: float
    most: float
    now: float


FREE = State("", 0, -inf, -inf, -inf)


class Register:
    """Judges one name. `ok` is None where the search was given up; `stuck` is what did not fit."""

    def __init__(self, runs: Runs, name: str, terms: Terms = Terms(), most_steps: int = MOST_STEPS) -> None:  # noqa: B008
        self.most_steps = most_steps
        self.terms = terms
        mine = runs.by_name.get(name, ())
        self.operations = sorted(operations(runs, name, terms), key=lambda operation: operation.lo)
        # When the lease of a token may have ended otherwise, and until when it may have been renewed unheard.
        self.may_end: dict[str, float] = {run.token: min([run.dead_at, *run.maybe_ended]) for run in mine}
        self.granted = {run.token for run in mine}
        self.unheard: dict[str, float] = defaultdict(lambda: -inf)
        ttl = {run.token: run.ttl for run in mine}
        for event in runs.kinds["error"]:
            if event["verb"] == "renew" and event["tok"] in ttl:
                until = event["t1"] + terms.late + ttl[event["tok"]] + terms.overrun
                self.unheard[event["tok"]] = max(self.unheard[event["tok"]], until)
        for run in mine:
            if run.dead_at < inf:
                self.unheard[run.token] = max(self.unheard[run.token], run.dead_at + run.ttl + terms.overrun)
        self.excuses = [
            (ask.t0, ask.t0 + terms.late + ask.ttl + terms.overrun) for ask in runs.unanswered.get(name, ())
        ] + runs.excuses(name, terms.together)
        self.stuck: Operation | None = None
        self.steps = 0
        self.ok = self._search()

    def _search(self) -> bool | None:
        deepest = -1
        seen = set()
        stack: list[tuple[int, frozenset[int], State]] = [(0, frozenset(), FREE)]
        while stack:
            start, done, state = stack.pop()
            while start in done:
                done -= {start}
                start += 1
            if (start, done, state) in seen:
                continue
            seen.add((start, done, state))
            self.steps += 1
            if self.steps > self.most_steps:
                return None
            window = self._window(start, done)
            if not window:
                return True
            if start > deepest:
                deepest, self.stuck = start, self.operations[min(window, key=lambda at: self.operations[at].hi)]
            # What had to end first is tried first: it goes on the stack last.
            for at in sorted(window, key=lambda at: -self.operations[at].hi):
                for after in self._apply(self.operations[at], state):
                    stack.append((start, done | {at}, after))
        return False

    def _window(self, start: int, done: frozenset[int]) -> list[int]:
        """Return what may come next: nothing that begins after something else must have ended."""
        found, first_end = [], inf
        for at in range(start, len(self.operations)):
            operation = self.operations[at]
            if operation.lo > first_end:
                break
            if at not in done:
                found.append(at)
                first_end = min(first_end, operation.hi)
        return found

    def _apply(self, operation: Operation, state: State) -> Iterator[State]:
        """Yield what it leads to, if it fits."""
        now = max(state.now, operation.lo)
        if now > operation.hi + SLACK:
            return
        owns = state.token == operation.token and bool(state.token)
        ends = min(state.least, self.may_end.get(state.token, inf)) - SLACK  # from when on it may be gone
        may_be_gone = not state.token or operation.hi >= ends
        gone_at = now if not state.token else max(now, ends)
        free = State("", state.fence, -inf, -inf, now)
        if operation.kind == "grant":
            if owns or may_be_gone:
                yield self._held(operation, now if owns else gone_at)
        elif operation.kind == "adopt":
            if owns or state.token == operation.giver:
                yield self._held(operation, now)
        elif operation.kind == "renew":
            if owns:
                yield self._held(operation, now)
        elif operation.kind == "release":
            if owns and operation.rest:
                until = operation.hi + operation.rest + self.terms.overrun
                yield State("resting", state.fence, now + operation.rest, until, now)
            elif owns:
                yield free
            elif operation.token not in self.granted and may_be_gone:
                yield free._replace(now=gone_at)  # it was granted after all, and nobody was told
        elif operation.kind == "force":
            if state.fence == operation.fence and state.token:
                yield free
        elif operation.kind == "wipe":
            yield free
            yield state._replace(now=now)  # memcached keeps what is younger than a second
        elif operation.kind == "not mine":  # told that somebody else has it, or nobody
            if not owns:
                yield state._replace(now=now)
            elif may_be_gone:
                yield free._replace(now=gone_at)
        elif operation.kind == "refused":
            lives = state.token and now <= max(state.most, self.unheard[state.token])
            if lives or any(t0 <= operation.hi and until >= now for t0, until in self.excuses):
                yield state._replace(now=now)

    def _held(self, operation: Operation, now: float) -> State:
        until = operation.hi + operation.ttl + self.terms.overrun
        return State(operation.token, operation.fence, now + operation.ttl, until, now)


def operations(runs: Runs, name: str, terms: Terms) -> Iterator[Operation]:
    """Yield what was done to a name for sure."""
    for run in runs.by_name.get(name, ()):
        kind = "adopt" if run.adopted_from else "grant"
        yield Operation(kind, run.at.lo, run.at.hi, run.token, run.fence, run.p, run.ttl, giver=run.adopted_from)
        for renewal in run.renewals:
            yield Operation("renew", renewal.lo, renewal.hi, run.token, run.fence, run.p, run.ttl)
    # Who adopts goes on with the fence of who gave: one force may be about both, and was done once.
    forced = {(span.lo, span.hi, run.fence) for run in runs.by_name.get(name, ()) for span in run.forced}
    for lo, hi, fence in sorted(forced):
        yield Operation("force", lo, hi, fence=fence)
    for event in runs.kinds["release"]:
        if name in event["n"]:
            kind = "release" if event["res"] == "released" else "not mine"
            rest = event["rest"] / 1000
            yield Operation(kind, event["t0"], event["t1"], event["tok"], event["fence"], event["p"], rest=rest)
    for event in runs.kinds["renew"]:
        if name in event["n"] and event["res"] != "renewed":
            yield Operation("not mine", event["t0"], event["t1"], event["tok"], event["fence"], event["p"])
    for event in runs.kinds["refused"]:
        if event["which"] == name and event["why"] == "held" and terms.refusals:
            yield Operation("refused", event["t0"], event["t1"], event["tok"], event["fence"], event["p"])
    for event in runs.kinds["wiped"]:
        for _ in range(event.get("times", 1)):
            yield Operation("wipe", event["t0"], event["t1"])
