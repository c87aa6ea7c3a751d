"""The checks that every store can be put to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

from django_claims.backends.base import (
    AcquireRequest,
    BaseClaimBackend,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewRequest,
    new_token,
)
from django_claims.cli.findings import Finding, Level
from django_claims.clock import ago, clock, from_microseconds, wall
from django_claims.exceptions import BackendUnavailable
from django_claims.holders import this_holder

ROUND_TTL_MS = 30_000  # what is left of a round that broke off ends with it
TRIPS, TRIP_SECONDS = 100, 2.0
CLOCK_SECONDS = 2.0


def reach(backend: BaseClaimBackend) -> Finding:
    started = clock()
    try:
        backend.flag("claims-doctor")
    except BackendUnavailable as error:
        if not is_answer(error):
            return Finding(
                id="reach",
                alias=backend.alias,
                level=Level.FAIL,
                fact=f"No answer within {clock() - started:.1f} s ({error.detail}).",
                advice="Is it running, and may this machine connect? Until it answers nobody can acquire (exit 69), "
                "and holders give up at their renew deadline.",
            )
    took = (clock() - started) * 1000
    return Finding(id="reach", alias=backend.alias, level=Level.OK, fact=f"Answers; the first time took {took:.1f} ms.")


def is_answer(error: BackendUnavailable) -> bool:
    """Say whether a store did answer, if only to say that it will not do this."""
    cause = error.__cause__
    names = {cls.__name__ for cls in type(cause).__mro__} if cause else set()
    return "ResponseError" in names and "ConnectionError" not in names


def scope(backend: BaseClaimBackend) -> Finding:
    if not backend.is_process_local:
        return Finding(id="scope", alias=backend.alias, level=Level.OK, fact="Keeps out other processes.")
    return Finding(
        id="scope",
        alias=backend.alias,
        level=Level.FAIL if backend.settings.implicit else Level.WARN,
        fact="Its claims live in the memory of each process: no other process is kept out."
        + (" It was guessed, since CLAIMS is not set." if backend.settings.implicit else ""),
        advice="Set CLAIMS to a backend that processes share; see the settings page.",
    )


def round_trip(backend: BaseClaimBackend) -> Iterator[Finding]:
    """Do with a throw-away name all that a claim does in its life."""
    alias, name, tokens = backend.alias, f"claims-doctor:{os.urandom(6).hex()}", (new_token(), new_token())
    offset: timedelta | None = None

    def wanted(token: str) -> AcquireRequest:
        return AcquireRequest(name, token, ROUND_TTL_MS, ROUND_TTL_MS // 3, this_holder())

    def failed(what: str) -> Finding:
        return Finding(
            id="round",
            alias=alias,
            level=Level.FAIL,
            fact=f"A claim of a throw-away name went wrong: {what}",
            advice="Claims of this alias cannot be relied on. If nothing above says why, report it with this output.",
        )

    def steps() -> Iterator[str]:
        """Yield what went wrong, or '' after each step."""
        nonlocal offset
        before = wall()
        grants = backend.acquire([wanted(tokens[0])])
        after = wall()
        if isinstance(grants, Refusal):
            yield "acquire was refused, though nobody has the name."
            return
        fence = grants[0].fence
        offset = from_microseconds(grants[0].acquired_us) - (before + (after - before) / 2)
        renewed = backend.renew([RenewRequest(name, tokens[0], fence, ROUND_TTL_MS)])[0]
        yield "" if renewed.outcome is Renewal.RENEWED else f"renew was answered by {renewed.outcome.name}."
        yield "" if isinstance(backend.acquire([wanted(tokens[1])]), Refusal) else "a second holder was let in."
        backend.set_flag(name, keep=False, fence=fence, reason="a check", by="claims doctor", ttl_ms=None)
        told = backend.renew([RenewRequest(name, tokens[0], fence, ROUND_TTL_MS)])[0].flag
        yield "" if told is not None else "a stop did not reach its holder."
        wrong = backend.release([ReleaseRequest(name, tokens[1], fence)])[0]
        yield "" if wrong is not Released.RELEASED else "it was released by one who is not its owner."
        released = backend.release([ReleaseRequest(name, tokens[0], fence)])[0]
        yield "" if released is Released.RELEASED else f"release was answered by {released.name}."
        yield "" if backend.lease(name) is None else "it was still there after its release."
        again = backend.acquire([wanted(tokens[1])])
        yield (
            ""
            if not isinstance(again, Refusal) and again[0].fence > fence
            else "the next fence was not above the last."
        )

    try:
        try:
            wrong = next(filter(None, steps()), "")
        finally:
            backend.release([ReleaseRequest(name, token) for token in tokens])
    except BackendUnavailable as error:
        if not is_answer(error):
            raise
        wrong = f"the store refused: {error.detail}"
    if wrong:
        yield failed(wrong)
    else:
        yield Finding(
            id="round", alias=alias, level=Level.OK, fact="Acquire, renew, refuse, stop and release do as they should."
        )
    if offset is not None:
        yield _clock(alias, offset.total_seconds())


def _clock(alias: str, offset: float) -> Finding:
    if abs(offset) < CLOCK_SECONDS:
        return Finding(
            id="clock", alias=alias, level=Level.OK, fact=f"Its clock is {offset:+.3f} s from this machine's."
        )
    way = "ahead of" if offset > 0 else "behind"
    return Finding(
        id="clock",
        alias=alias,
        level=Level.WARN,
        fact=f"Its clock is {ago(abs(offset))} {way} this machine's.",
        advice="Claims are right all the same, since the store's clock decides alone; times that are shown are not. "
        "Mend the clock slowly: one that is set forward ends leases early.",
    )


def latency(backend: BaseClaimBackend) -> Finding:
    """Measure some round trips against what a verb and a renewal may take."""
    took: list[float] = []
    ends = clock() + TRIP_SECONDS
    while len(took) < TRIPS and clock() < ends:
        started = clock()
        try:
            backend.flag("claims-doctor")
        except BackendUnavailable as error:
            if not is_answer(error):
                raise
        took.append(clock() - started)
    took.sort()
    p99 = took[min(len(took) - 1, len(took) * 99 // 100)]
    settings = backend.settings
    spare = (settings.ttl_ms - settings.renew_deadline_ms) / 1000
    fact = (
        f"Of {len(took)} round trips the median took {took[len(took) // 2] * 1000:.1f} ms and the p99 "
        f"{p99 * 1000:.1f} ms; a verb may take {settings.store_timeout:g} s, the TTL is {settings.ttl_ms / 1000:g} s."
    )
    level = Level.OK
    if p99 > min(settings.store_timeout, spare) / 4:
        level = Level.WARN
    if p99 > min(settings.store_timeout, spare) / 2:
        level = Level.FAIL
    return Finding(
        id="latency",
        alias=backend.alias,
        level=level,
        fact=fact,
        advice="Raise TTL and STORE_TIMEOUT, or bring the store nearer: renewals that are late lose claims.",
    )
