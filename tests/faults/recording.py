"""A backend that writes down what it was asked and what the store said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from django_claims.backends.base import (
    GRANT_SECONDS,
    LEAVE,
    AcquireRequest,
    AdoptRequest,
    HandOverRequest,
    Refusal,
    ReleaseRequest,
    RenewRequest,
)
from django_claims.clock import clock
from tests.faults.history import Writer, digest

BACKEND = "tests.faults.recording.Backend"
BACKENDS = {
    "redis": "django_claims.backends.redis.RedisBackend",
    "cache": "django_claims.backends.cache.CacheBackend",
    "database": "django_claims.backends.database.DatabaseBackend",
    "file": "django_claims.backends.file.FileBackend",
    "memory": "django_claims.backends.memory.MemoryBackend",
}

writer: Writer
Backend: type
tells_time = True
"""Whether times are of the store itself: memcached has none, and is told what to say before the grant is whole."""
grants_are_early = False
"""Whether a grant may be later than the store says: a database says when the statement began, which may have waited."""
granted: set[str] = set()
_numbers = itertools.count()


def install(kind: str, writer_: Writer, mutants: Sequence[type] = ()) -> None:
    """Make `Backend` the recording backend of this process, over one that may be broken."""
    global writer, Backend, grants_are_early, tells_time
    writer = writer_
    grants_are_early = kind == "database"
    tells_time = kind != "cache"
    module, name = BACKENDS[kind].rsplit(".", 1)
    base = getattr(import_module(module), name)
    Backend = type("Backend", (Recording, *mutants, base), {})


def note_pushed(hold: Any) -> None:
    """Write down a grant that the store has pushed: nobody asked for it just then."""
    tok = digest(hold.token)
    if tok not in granted:
        granted.add(tok)
        ttl = min(hold.ttl_ms / 1000, GRANT_SECONDS)  # until it is confirmed
        writer.write(
            "grant", n=list(hold.names), tok=tok, ttl=ttl, i=-2, t0=hold._since, t1=clock(), fence=hold.fence,
            srv=hold._acquired_us, pushed=True,
        )  # fmt: skip


class Recording:
    """Comes before the backend in the order of resolution."""

    def acquire(self, requests: Sequence[AcquireRequest]) -> Any:
        first = requests[0]
        about = {
            "n": [request.name for request in requests], "tok": digest(first.token), "ttl": first.ttl_ms / 1000,
            "i": next(_numbers), "place": first.place not in ("", LEAVE),
        }  # fmt: skip
        answer, t0, t1 = _ask("acquire", about, lambda: super(Recording, self).acquire(requests))  # type: ignore[misc]
        if isinstance(answer, Refusal):
            why = "kept" if answer.flag is not None else "held" if answer.lease is not None else "line"
            fence = answer.lease.fence if answer.lease else 0
            writer.write("refused", **about, t0=t0, t1=t1, which=answer.name, why=why, fence=fence)
        else:
            granted.add(about["tok"])
            writer.write(
                "grant",
                **about,
                t0=t0,
                t1=t1,
                fence=answer[0].fence,
                srv=answer[0].acquired_us if tells_time else None,
                early=grants_are_early,
            )
        return answer

    def hand_over(self, requests: Sequence[HandOverRequest]) -> Any:
        first = requests[0]
        about = {**_about(requests, first.token, first.ticket), "i": next(_numbers), "ttl": first.valid_ms / 1000}
        answer, t0, t1 = _ask("hand_over", about, lambda: super(Recording, self).hand_over(requests))  # type: ignore[misc]
        writer.write("handed", **about, t0=t0, t1=t1, res=answer)
        return answer

    def adopt(self, requests: Sequence[AdoptRequest]) -> Any:
        first = requests[0]
        about = {**_about(requests, first.token, first.ticket), "i": next(_numbers), "ttl": first.ttl_ms / 1000}
        answer, t0, t1 = _ask("adopt", about, lambda: super(Recording, self).adopt(requests))  # type: ignore[misc]
        granted.add(about["tok"])
        fence = 0 if answer is None else answer[0].fence
        writer.write("adopted", **about, t0=t0, t1=t1, fence=fence, res=answer is not None)
        return answer

    def renew(self, requests: Sequence[RenewRequest]) -> Any:
        t0 = clock()
        try:
            answers = super().renew(requests)  # type: ignore[misc]
        except BaseException as error:
            t1 = clock()
            for request in requests:
                writer.write(
                    "error", verb="renew", n=[request.name], tok=digest(request.token), i=-1, t0=t0, t1=t1,
                    text=type(error).__name__,
                )  # fmt: skip
            raise
        t1 = clock()
        for request, answer in zip(requests, answers, strict=True):
            writer.write(
                "renew", n=[request.name], tok=digest(request.token), fence=request.fence, t0=t0, t1=t1,
                srv=answer.now_us if tells_time else None, res=answer.outcome.name.lower(),
            )  # fmt: skip
        return answers

    def release(self, requests: Sequence[ReleaseRequest]) -> Any:
        asked = [
            {"n": [r.name], "tok": digest(r.token), "fence": r.fence, "rest": r.rest_ms, "i": next(_numbers)}
            for r in requests
        ]
        t0 = clock()
        for about in asked:
            writer.write("ask", verb="release", t0=t0, **about)
        try:
            answers = super().release(requests)  # type: ignore[misc]
        except BaseException as error:
            t1 = clock()
            for about in asked:
                writer.write("error", verb="release", **about, t0=t0, t1=t1, text=type(error).__name__)
            raise
        t1 = clock()
        for about, answer in zip(asked, answers, strict=True):
            writer.write("release", **about, t0=t0, t1=t1, res=answer.name.lower())
        return answers


def _about(requests: Sequence[Any], token: str, ticket: str) -> dict[str, Any]:
    return {"n": [request.name for request in requests], "tok": digest(token), "ticket": digest(ticket)}


def _ask(verb: str, about: dict[str, Any], ask: Callable[[], Any]) -> tuple[Any, float, float]:
    t0 = clock()
    writer.write("ask", verb=verb, t0=t0, **about)
    try:
        answer = ask()
    except BaseException as error:
        writer.write("error", verb=verb, **about, t0=t0, t1=clock(), text=type(error).__name__)
        raise
    return answer, t0, clock()
