"""
Mistakes of other lock libraries, seeded into this one: a checker that does not find them has failed.

A mutant is a backend that is broken (a class that comes before the real one), or a part of the package that is
replaced in the process. Each is written in the verbs that all backends have, so that it outlives their insides.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django_claims.backends.base import (
    AcquireRequest,
    Adopted,
    Grant,
    Refusal,
    Released,
    Renewal,
    RenewAnswer,
    RenewRequest,
)
from django_claims.clock import clock
from django_claims.leases import StopFlag


@dataclass(frozen=True)
class Mutant:
    """Under `nemeses`, in a round with `how`, it breaks `rule`, and the checker `says` (a pattern) what it is."""

    rule: str
    says: str
    nemeses: tuple[str, ...] = ()
    backend: type | None = None
    patch: Callable[[], None] | None = None
    how: dict[str, Any] = field(default_factory=dict)
    seconds: float = 4.0


class ReleaseWithoutOwner:
    """Whoever releases, ends what there is."""

    def release(self: Any, requests: Any) -> Any:
        answers = []
        for request in requests:
            lease = self.lease(request.name)
            done = lease is not None and self.force_release(request.name, lease.fence)
            answers.append(Released.RELEASED if done else Released.GONE)
        return answers


class RenewThatCreates:
    """A lease that is gone is taken again, by the renewal."""

    def renew(self: Any, requests: Any) -> Any:
        from django_claims.holders import this_holder

        answers = []
        for request, answer in zip(requests, super().renew(requests), strict=True):  # type: ignore[misc]
            if answer.outcome is Renewal.GONE:
                again = AcquireRequest(request.name, request.token, request.ttl_ms, request.ttl_ms // 3, this_holder())
                granted = super().acquire([again])  # type: ignore[misc]
                if not isinstance(granted, Refusal):
                    answer = RenewAnswer(Renewal.RENEWED, None, granted[0].acquired_us)
            answers.append(answer)
        return answers


class CheckThenSet:
    """Looks whether it is free, and then takes it, whatever has happened in between."""

    def acquire(self: Any, requests: Any) -> Any:
        leases = [self.lease(request.name) for request in requests]
        for request, lease in zip(requests, leases, strict=True):
            if lease is not None:
                return Refusal(request.name, lease=lease)
        time.sleep(0.002)
        answer = super().acquire(requests)  # type: ignore[misc]
        while isinstance(answer, Refusal) and answer.lease is not None:
            self.force_release(answer.name, answer.lease.fence)
            answer = super().acquire(requests)  # type: ignore[misc]
        return answer


class FenceThatResets:
    """A counter that goes with the lease."""

    def acquire(self: Any, requests: Any) -> Any:
        answer = super().acquire(requests)  # type: ignore[misc]
        if isinstance(answer, Refusal):
            return answer
        return [Grant(1, grant.acquired_us) for grant in answer]


class StopByName:
    """A stop flag of the name alone: it stays for whoever comes next."""

    def set_flag(self: Any, name: str, **about: Any) -> Any:
        if about["keep"]:
            return super().set_flag(name, **about)  # type: ignore[misc]
        fence = about["fence"]
        super().set_flag(name, **{**about, "keep": True, "fence": None, "ttl_ms": 1500})  # type: ignore[misc]
        return StopFlag(name=name, alias=self.alias, fence=fence, keep=False)

    def acquire(self: Any, requests: Any) -> Any:
        answer = super().acquire(requests)  # type: ignore[misc]
        if isinstance(answer, Refusal) and answer.flag is not None:
            # Its acquire does not ask for flags: only the run that comes next sees it.
            self.clear_flag(answer.name)
            flag = answer.flag
            answer = super().acquire(requests)  # type: ignore[misc]
            super().set_flag(answer_name(requests), keep=True, fence=None, reason="", by=flag.by, ttl_ms=1500)  # type: ignore[misc]
        return answer


def answer_name(requests: Any) -> str:
    return str(requests[0].name)


class TicketGoodTwice:
    """Whoever comes with a ticket has it, also when another came with it before."""

    def adopt(self: Any, requests: Any) -> Any:
        answer = super().adopt(requests)  # type: ignore[misc]
        if answer is not None:
            return answer
        (first,) = requests
        lease = self.lease(first.name)
        if lease is None or lease.state != "held":
            return None
        self.force_release(first.name, lease.fence)
        again = AcquireRequest(first.name, first.token, first.ttl_ms, first.heartbeat_ms, first.holder)
        granted = super().acquire([again])  # type: ignore[misc]
        if isinstance(granted, Refusal):
            return None
        return [Adopted(lease.fence, granted[0].acquired_us, granted[0].acquired_us)]


class GiverThatRenews:
    """What was handed over is renewed on and on by its giver."""

    def hand_over(self: Any, requests: Any) -> Any:
        answer = super().hand_over(requests)  # type: ignore[misc]
        _zombies.extend(RenewRequest(request.name, request.token, 0, 1200) for request in requests if answer)
        return answer


class NoLine:
    """Whoever asks first when it is free gets it, however long others have waited."""

    def acquire(self: Any, requests: Any) -> Any:
        return super().acquire([request._replace(place="") for request in requests])  # type: ignore[misc]


class ZombieAfterRelease:
    """What fails to be released is renewed on and on."""

    def release(self: Any, requests: Any) -> Any:
        try:
            return super().release(requests)  # type: ignore[misc]
        except Exception:
            _zombies.extend(request for request in requests if request.fence)
            raise


_zombies: list[Any] = []


def renew_zombies() -> None:
    """A renewal thread that nobody stops."""
    import threading

    from django_claims.handler import claim_backends

    def go_on() -> None:
        while True:
            time.sleep(0.2)
            for request in list(_zombies):
                with suppress(Exception):
                    claim_backends["default"].renew([RenewRequest(request.name, request.token, request.fence, 1200)])

    threading.Thread(target=go_on, daemon=True).start()


def held_is_a_flag() -> None:
    """What a thread has noted, and not the clock."""
    from django_claims.renewing import RenewableHold

    RenewableHold.held = property(lambda hold: not hold._released and hold._loss is None)  # type: ignore[method-assign]


def deadline_from_reply() -> None:
    """Counted from the answer: a slow one gives time that is not there."""
    from django_claims import trying
    from django_claims.renewing import RenewableHold

    renewed, granted = RenewableHold.renewed, trying.Trying._granted
    RenewableHold.renewed = lambda hold, sent_at, answers: renewed(hold, clock(), answers)  # type: ignore[method-assign]
    trying.Trying._granted = lambda self, grants, sent_at, *how: granted(self, grants, clock(), *how)  # type: ignore[method-assign]


def host_name_as_token() -> None:
    from django_claims import trying

    trying.new_token = lambda: socket.gethostname()[:22]


def renewed_after_lost() -> None:
    """A late yes brings a lost hold back."""
    from django_claims import registry
    from django_claims.leases import LossReason
    from django_claims.renewing import RenewableHold

    def lose(hold: Any, reason: LossReason) -> None:
        with registry.lock:
            hold._loss = reason
        hold.wake_for_loss()

    def renewed(hold: Any, sent_at: float, answers: Any) -> None:
        hold._loss = None
        hold.deadline = sent_at + hold.renew_deadline
        hold._confirmed_at = sent_at

    RenewableHold.lose = lose  # type: ignore[method-assign,assignment]
    RenewableHold.renewed = renewed  # type: ignore[method-assign,assignment]
    RenewableHold.is_open = property(lambda hold: not hold._released)  # type: ignore[method-assign,assignment]


def no_fork_check() -> None:
    """A child goes on with its parent's hold."""
    from django_claims.holds import Hold

    Hold.fork = lambda hold: None  # type: ignore[method-assign]


GIVING = {"operations": {"give": 60, "adopt": 90}}
CLINGING = {"operations": {"cling": 60}, "long_stops": True}

MUTANTS = {
    "release_without_owner": Mutant(
        "I3", r"ended its run .* after another had been granted", ("stop",), ReleaseWithoutOwner, how=CLINGING
    ),
    "renew_that_creates": Mutant(
        "I3", r"(renewed|ended) its run .* after another had been granted", ("wipe", "stop"), RenewThatCreates
    ),
    "check_then_set": Mutant("I1", r"before the run of .* could have ended", (), CheckThenSet, how={"names": 1}),
    "fence_that_resets": Mutant("I2", r"two runs have fence 1,", (), FenceThatResets),
    "stop_by_name": Mutant(
        "I8", r"saw a stop that was not for it", (), StopByName, how={"operations": {"stop": 30, "long": 30}}
    ),
    "zombie_after_release": Mutant(
        "I6", r"asked to renew .* after its release", ("lose_reply", "cut"), ZombieAfterRelease, renew_zombies
    ),
    "ticket_good_twice": Mutant("I11", r"by a ticket that was good before", (), TicketGoodTwice, how=GIVING),
    "giver_that_renews": Mutant(
        "I11", r"asked to renew .* after it had handed it over", (), GiverThatRenews, renew_zombies, how=GIVING
    ),
    "no_line": Mutant(
        "I12", r"was served before", (), NoLine, how={"operations": {"wait": 100}, "spec": {"only": True}, "names": 1}
    ),
    "held_is_a_flag": Mutant(
        "I4", r"said held .* after its deadline", ("starve",), patch=held_is_a_flag, how={"spec": {"only": True}}
    ),
    # They believe until all but the end of the lease, so that so late an answer lets them believe beyond it.
    "deadline_from_reply": Mutant(
        "I4", r"said held .* after its deadline", ("late_then_silent",), patch=deadline_from_reply, seconds=6,
        how={
            "operations": {"cling": 1}, "direct": {"wait": 1}, "names": 4, "ttl": 2.4,
            "spec": {"only": True, "recipe": {"heartbeat": 0.8, "renew_deadline": 2.36}},
        },
    ),
    "host_name_as_token": Mutant("I6", r"token .* is shared by", (), patch=host_name_as_token),
    "renewed_after_lost": Mutant(
        "I4", r"said held after it had said lost", ("stop",), patch=renewed_after_lost,
        how={**CLINGING, "spec": {"doubts": 1}},
    ),
    "no_fork_check": Mutant("I3", r"f1 (ended|renewed) the lease of", ("fork",), patch=no_fork_check),
}  # fmt: skip


def backends(mutant: str) -> list[type]:
    """Return what comes before the real backend."""
    broken = MUTANTS[mutant].backend if mutant else None
    return [broken] if broken else []


def apply(mutant: str) -> None:
    """Break the package in this process."""
    if mutant and (patch := MUTANTS[mutant].patch):
        patch()
