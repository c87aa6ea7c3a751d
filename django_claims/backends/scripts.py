"""
The verbs as Lua scripts, one a verb: what to send, and what the answers mean.

Nothing here knows a client; see redis.py for how the scripts get to a server.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

from django_claims.backends.base import (
    AcquireRequest,
    Adopted,
    AdoptRequest,
    BaseClaimBackend,
    Grant,
    HandOverRequest,
    Notice,
    Refusal,
    Released,
    ReleaseRequest,
    Renewal,
    RenewAnswer,
    RenewRequest,
    sure,
)
from django_claims.backends.records import flag_words, read_flag, read_record
from django_claims.backends.wire import Again
from django_claims.leases import Lease, StopFlag
from django_claims.names import matches

_ANSWERS = {1: Renewal.RENEWED, 0: Renewal.GONE, -1: Renewal.TAKEN, -2: Renewal.FORCED}
_RELEASED = {1: Released.RELEASED, 0: Released.GONE, -1: Released.NOT_OWNER}
_BATCH = 1000
"""Leases in one script, so that ten thousand do not keep the server's other clients waiting."""


_INCLUDE = "-- include line.lua\n"


def _read(name: str) -> str:
    return (Path(__file__).parent / "lua" / f"{name}.lua").read_text()


class _Script:
    def __init__(self, verb: str) -> None:
        source = _read(verb)
        if _INCLUDE in source:
            source = source.replace(_INCLUDE, _read("line"), 1)
        self.source = source
        self.sha = sha1(self.source.encode()).hexdigest()


SCRIPTS = {
    verb: _Script(verb)
    for verb in (
        "acquire",
        "renew",
        "release",
        "hand_over",
        "adopt",
        "read",
        "force_release",
        "set_flag",
        "flags",
        "promised",
    )
}


class ScriptBackend(BaseClaimBackend):
    """A backend whose store runs our scripts."""

    supports_hand_over = True

    _fence_key: str
    _index_key: str
    _flags_key: str
    _news_channel: str
    _in_a_crowd = False

    def _lease_key(self, name: str) -> str:
        raise NotImplementedError

    def _run(self, verb: str, keys: Sequence[str], args: Sequence[str | bytes]) -> Any:
        """Run one script and return its answer."""
        return self._run_all(verb, [(keys, args)])[0]

    def _run_all(
        self,
        verb: str,
        calls: Sequence[tuple[Sequence[str], Sequence[str | bytes]]],
        then: Sequence[tuple[str, ...]] = (),
        before: tuple[str, ...] | None = None,
    ) -> list[Any]:
        """
        Run one script any number of times, and then plain commands, in one round trip. Raises BackendUnavailable.

        `before`: a command to send before all, whose answer is dropped.

        Text only: hiredis 3.5.0 calls str() on a number, and crashes if a signal handler raises in there.
        """
        raise NotImplementedError

    def _flag(self, name: str, value: bytes) -> StopFlag | None:
        return read_flag(_text(value), name=name, alias=self.alias) if value else None

    def _lease(self, name: str, now: int, kind: int, value: bytes, left: int, flag: bytes) -> Lease | None:
        if kind == 0:
            return None
        return read_record(
            _text(value),
            name=name,
            alias=self.alias,
            now_us=now,
            left_ms=left,
            flag=self._flag(name, flag),
        )

    def acquire(self, requests: Sequence[AcquireRequest]) -> list[Grant] | Refusal:
        first = requests[0]
        keys = [self._fence_key, self._index_key, self._flags_key]
        args: list[str] = [first.token, str(first.ttl_ms), str(first.heartbeat_ms), first.holder.packed, first.place]
        for request in requests:
            keys.append(self._lease_key(request.name))
            args += (request.name, "" if request.over_fence is None else str(request.over_fence))
        answer = self._run("acquire", keys, args)
        if answer[0] == 1:
            return [Grant(int(answer[1]), int(answer[2]))] * len(requests)
        name, now = requests[answer[1] - 1].name, int(answer[2])
        if answer[0] == 2:
            return Refusal(name, flag=self._flag(name, answer[3]))
        lease = self._lease(name, now, *answer[4:]) if answer[0] == 0 else None
        return Refusal(name, lease, again_ms=None if answer[3] < 0 else answer[3], now_us=now)

    def renew(self, requests: Sequence[RenewRequest]) -> list[RenewAnswer]:
        calls = []
        for batch in _batches(requests):
            keys = [self._index_key, self._flags_key]
            args: list[str] = []
            for request in batch:
                keys.append(self._lease_key(request.name))
                progress = "-" if request.progress is None else "+" + request.progress
                args += (
                    request.name,
                    request.token,
                    str(request.fence),
                    str(request.ttl_ms),
                    progress,
                    "1" if request.seen else "0",
                )
            calls.append((keys, args))
        answers = []
        said = self._run_all("renew", calls) if calls else []
        for batch, (now, *pairs) in zip(_batches(requests), said, strict=True):
            for request, outcome, flag in zip(batch, pairs[::2], pairs[1::2], strict=True):
                answers.append(RenewAnswer(_ANSWERS[outcome], self._flag(request.name, flag), int(now)))
        return answers

    def release(self, requests: Sequence[ReleaseRequest]) -> list[Released]:
        calls = []
        for batch in _batches(requests):
            keys = [self._index_key, self._flags_key, self._fence_key]
            args: list[str] = []
            for request in batch:
                keys.append(self._lease_key(request.name))
                args += (request.name, request.token, str(request.rest_ms))
            calls.append((keys, args))
        # Of those whom a server has something to tell, it tells the last one first. With a question before it
        # the releaser is not the last, and whoever is granted the name hears of it sooner. Not for nothing, so
        # only by those who have waited themselves of late: where there is a crowd, all have.
        before = ("EXISTS", calls[0][0][3]) if len(requests) == 1 and self._in_a_crowd else None
        said = self._run_all("release", calls, before=before) if calls else []
        answers = [_RELEASED[outcome] for outcomes in said for outcome in outcomes]
        return sure(answers, isinstance(said, Again), self.alias)

    def hand_over(self, requests: Sequence[HandOverRequest]) -> bool:
        first, names = requests[0], [request.name for request in requests]
        keys = [self._index_key, self._flags_key, *map(self._lease_key, names)]
        return bool(self._run("hand_over", keys, [first.token, first.ticket, str(first.valid_ms), *names]))

    def adopt(self, requests: Sequence[AdoptRequest]) -> list[Adopted] | None:
        first, names = requests[0], [request.name for request in requests]
        keys = [self._index_key, self._flags_key, *map(self._lease_key, names)]
        about = [first.ticket, first.token, str(first.ttl_ms), str(first.heartbeat_ms), first.holder.packed]
        answer = self._run("adopt", keys, [*about, *names])
        if not answer:
            return None
        now, found = int(answer[0]), []
        for at, name in enumerate(names):
            fence, since, progress, flag = answer[1 + 4 * at : 5 + 4 * at]
            found.append(Adopted(int(fence), int(since), now, _text(progress), self._flag(name, flag)))
        return found

    def _read(self, names: Sequence[str]) -> list[tuple[Lease | None, StopFlag | None, bytes]]:
        """Return lease, flag and raw value of each name, in one round trip."""
        batches = _batches(names)
        calls = [([self._flags_key, *map(self._lease_key, batch)], batch) for batch in batches]
        found = []
        for batch, answer in zip(batches, self._run_all("read", calls) if calls else [], strict=True):
            now = int(answer[0])
            for at, name in enumerate(batch):
                kind, value, left, flag = answer[1 + 4 * at : 5 + 4 * at]
                found.append((self._lease(name, now, kind, value, left, flag), self._flag(name, flag), value))
        return found

    def held(self, name: str, token: str) -> bool:
        value = self._read([name])[0][2]
        return value.startswith(f"1 {token} ".encode())

    def lease(self, name: str) -> Lease | None:
        return self._read([name])[0][0]

    def promised(self, name: str) -> bool:
        return bool(self._run("promised", [self._lease_key(name)], []))

    def overview(self) -> tuple[list[str], list[StopFlag]]:
        # The index goes past the script: ten thousand names in and out of Lua cost the server five times as much.
        calls = [([self._flags_key, self._index_key], ())]
        answer, raw = self._run_all("flags", calls, [("ZRANGE", self._index_key, "0", "-1")])
        return sorted(name for name in map(_text, raw) if matches(name, "")), _flags(self._notices(answer))

    def leases_of(self, names: Sequence[str]) -> list[Lease]:
        return [lease for lease, _, _ in self._read(names) if lease is not None]

    def force_release(self, name: str, fence: int) -> bool:
        unread = b""
        if fence == 0:
            lease, _, unread = self._read([name])[0]
            if lease is None or lease.state != "unreadable":
                return False
        keys = [self._index_key, self._flags_key, self._lease_key(name), self._fence_key]
        return bool(self._run("force_release", keys, [name, str(fence), unread, self._news_channel]))

    def set_flag(
        self, name: str, *, keep: bool, fence: int | None, reason: str, by: str, ttl_ms: int | None
    ) -> StopFlag | None:
        keys = [self._flags_key, self._lease_key(name)]
        aim = "" if fence is None else str(fence)
        args = [name, "1" if keep else "0", aim, str(ttl_ms or 0), flag_words(reason, by), self._news_channel]
        return self._flag(name, self._run("set_flag", keys, args))

    def flag(self, name: str) -> StopFlag | None:
        answer = self._run("flags", [self._flags_key], [name])
        return self._flag(name, answer[1]) if answer else None

    def flags(self) -> list[StopFlag]:
        return _flags(self.poll())

    def clear_flag(self, name: str) -> StopFlag | None:
        answer = self._run("flags", [self._flags_key], [name, "1", self._news_channel])
        return self._flag(name, answer[1]) if answer else None

    def poll(self) -> list[Notice]:
        return self._notices(self._run("flags", [self._flags_key], []))

    def _notices(self, answer: Sequence[bytes]) -> list[Notice]:
        notices = []
        for raw_name, value in zip(answer[::2], answer[1::2], strict=True):
            name, newline, _ = _text(raw_name).partition("\n")
            if newline:
                fence = _text(value).split(" ")[1:2]
                if fence and fence[0].isdecimal():
                    notices.append(Notice(name, forced_fence=int(fence[0])))
            elif flag := self._flag(name, value):
                notices.append(Notice(name, flag))
        return notices


def _flags(notices: Sequence[Notice]) -> list[StopFlag]:
    return sorted((notice.flag for notice in notices if notice.flag is not None), key=lambda flag: flag.name)


def _text(value: bytes) -> str:
    """Return what is for reading, whoever wrote it."""
    return value.decode(errors="replace")


def _batches(requests: Sequence[Any]) -> list[Sequence[Any]]:
    return [requests[at : at + _BATCH] for at in range(0, len(requests), _BATCH)]
