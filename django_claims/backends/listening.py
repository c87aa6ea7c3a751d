"""
What a store pushes: one subscription for each alias of a process, and one thread that reads them all.

A push is a hint and may be lost. Who hears one asks the store, and who hears none asks as well,
only later. So nothing is ever repeated or kept here, and whatever fails is left to the polls.
"""

from __future__ import annotations

import binascii
import itertools
import os
import random
import re
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django_claims.backends.base import Grant, Refusal, Waiter
from django_claims.backends.leading import Waker
from django_claims.backends.reading import Subscription, reader
from django_claims.backends.shared import OnePerKey
from django_claims.backends.waiters import Bell
from django_claims.clock import clock
from django_claims.logs import get_logger

logger = get_logger(__name__)

CONNECT_SECONDS = 1.0
RETRY_SECONDS = 2.0
REFUSED_SECONDS = 60.0
"""How long to leave a server alone that does not let us subscribe."""
_CALLS = rb"[*>]3\r\n\$7\r\nmessage\r\n\$%d\r\n%b\r\n\$\d+\r\n(\d+) ([^\r\n]*)\r\n"


class Listening:
    """
    The subscription of this process to what concerns one alias: news of names, and calls to its waiters.

    `connect(seconds)` returns a connection of the client's, connected; `channel(word)` names a channel.
    """

    def __init__(self, connect: Callable[[float], Any], channel: Callable[[str], str]) -> None:
        self._connect = connect
        self._channel = channel
        self.news_channel = channel("news")
        self.heard: Callable[[str | None], object] | None = None
        self._start_anew()
        _all.add(self)

    def _start_anew(self) -> None:
        self._subscription: Subscription | None = None
        self._waiters: dict[int, InLine] = {}
        self._numbers = itertools.count(1)
        self._connecting_until = self._retry_at = self.used_at = 0.0
        self.waited_at = float("-inf")
        self._was_refused = False
        self.own_channel = self._channel("to:" + binascii.hexlify(os.urandom(8)).decode())
        self._own = self.own_channel.encode()
        self._calls = re.compile(_CALLS % (len(self._own), re.escape(self._own)))
        self._waker: Waker | None = None

    @property
    def is_on(self) -> bool:
        return self._subscription is not None

    @property
    def is_unheard(self) -> bool:
        """Whether news come, and nobody hears them."""
        return self._subscription is not None and self.heard is None

    @property
    def is_wanting(self) -> bool:
        """Whether there is any use in a try to subscribe."""
        return self._subscription is None and clock() >= max(self._retry_at, self._connecting_until)

    @property
    def is_used(self) -> bool:
        """Whether somebody waits, or somebody asked for it in the last seconds."""
        return bool(self._waiters) or clock() - self.used_at < 10.0

    @property
    def has_waited(self) -> bool:
        """Whether somebody was refused and waited, in the last seconds."""
        return clock() - self.waited_at < 10.0

    def begin(self, seconds: float) -> bool:
        """
        Subscribe, if that is not done yet. Return whether it has just been done: what was said before is unheard.

        Takes some seconds at most, and raises nothing of the server's.
        """
        self.used_at = clock()
        if not self.is_wanting:
            return False
        seconds = min(seconds, CONNECT_SECONDS)
        # By time and not by a lock, which a signal's exception could leave locked.
        self._connecting_until = clock() + seconds + 0.1
        connection: Any = None
        try:
            connection = self._connect(seconds)
            subscription = Subscription(connection, (self.news_channel, self.own_channel), self, seconds)
            self._subscription, connection = subscription, None
            reader.watch(subscription)
        except Exception as error:
            self._subscription = None
            refused = "NOPERM" in str(error)
            self._retry_at = clock() + (REFUSED_SECONDS if refused else RETRY_SECONDS)
            if refused and not self._was_refused:
                self._was_refused = True
                logger.warning(
                    "No right to subscribe: stops are seen within a second, and waiters poll channels=%s error=%s",
                    self._channel("*"), error,
                )  # fmt: skip
            return False
        finally:
            self._connecting_until = 0.0
            if connection is not None:
                connection.disconnect()
        return True

    def end(self) -> None:
        """Subscribe no more, unless somebody waits."""
        subscription = self._subscription
        if subscription is not None and not self._waiters:
            self._subscription = None
            reader.forget(subscription)

    @property
    def subscription(self) -> Subscription | None:
        return self._subscription

    def unreachable(self, subscription: Subscription) -> None:
        """The server that we ask does not know of a subscription, so it is to another one. Have it made anew."""
        if self._subscription is subscription:
            self._subscription = None
            reader.forget(subscription)

    # Of the waiters.

    def add(self, waiter: InLine) -> int:
        """Have a waiter called, when the store calls its number or there is news of one of its names."""
        number = next(self._numbers)
        self._waiters[number] = waiter
        return number

    def remove(self, number: int) -> None:
        self._waiters.pop(number, None)
        self.used_at = clock()

    def lead(self, subscription: Subscription, number: int, bell: Bell, seconds: float) -> bytes | None:
        """Sleep, and return the words of a call that came; only for one who waits alone. See leading.py."""
        gate = subscription.gate
        if gate is None or len(self._waiters) != 1 or self._subscription is not subscription:
            bell.wait(seconds)
            return None
        if self._waker is None:
            self._waker = Waker()
        found = gate.lead(bell, self._waker, seconds, self._calls, str(number).encode())
        return found if self._subscription is subscription else None

    # From the thread that reads.

    def told(self, channel: bytes, said: bytes) -> None:
        """Take one message."""
        text = said.decode(errors="replace")
        if channel == self._own:
            number, _, grant = text.partition(" ")
            waiter = self._waiters.get(int(number)) if number.isdecimal() else None
            if waiter is not None:
                waiter.call(grant)
        else:
            self._tell(text)

    def lost(self, subscription: Subscription) -> None:
        """The connection has ended: whoever relies on it should ask, and see to a new one."""
        if self._subscription is subscription:
            self._subscription = None
            self._tell(None)

    def _tell(self, name: str | None) -> None:
        for waiter in list(self._waiters.values()):
            if name is None or name in waiter.names:
                waiter.call("")
        heard = self.heard
        if heard is not None:
            _ring(lambda: heard(name))


class InLine(Waiter):
    """Waits in the store's line, and is told when its turn comes. While it cannot be told, it looks."""

    def __init__(
        self, listening: Listening, names: tuple[str, ...], bell: Callable[[], object], interval: tuple[float, float]
    ) -> None:
        super().__init__(interval)
        self.names = names
        self._bell = bell
        self._listening = listening
        self._number = listening.add(self)
        self._is_first = True
        self._asked_at, self._refused_us = 0.0, 0
        self._called: tuple[str, float] | None = None
        self._told_by: Subscription | None = None

    def prepare(self, seconds: float) -> None:
        """Listen, then ask: what is told in between is not missed. A first try that succeeds needs neither."""
        listening, was_first = self._listening, self._is_first
        self._is_first, self._called = False, None
        self._asked_at = clock()
        if was_first and not listening.is_on:
            return
        listening.begin(seconds)
        self._told_by = listening.subscription
        self.place = f"{self._number} {listening.own_channel if self._told_by else ''}"

    def call(self, grant: str) -> None:
        """Wake the waiter. From the thread that reads."""
        if grant:
            self._called = grant, clock()
        _ring(self._bell)

    def sleep(self, bell: Bell, seconds: float) -> None:
        if self._told_by is None:
            bell.wait(seconds)
        elif grant := self._listening.lead(self._told_by, self._number, bell, seconds):
            self._called = grant.decode(errors="replace"), clock()

    def granted(self) -> tuple[Grant, float] | None:
        if self._called is None:
            return None
        (words, heard_at), self._called = self._called, None
        try:
            fence, granted_us = map(int, words.split(" "))
        except ValueError:
            return None
        # The store granted it so long after it refused the last try, which was sent at that time:
        #
        #   we      asked ───┐  ┌─ refused            ┌──~~~── heard, who knows how late
        #   store            └──┘ refused_us          └ granted_us
        #
        # One that is older than the refusal has been passed on to another meanwhile.
        after = (granted_us - self._refused_us) / 1e6
        return (Grant(fence, granted_us), min(self._asked_at + after, heard_at)) if after >= 0 else None

    def pause(self, refusal: Refusal) -> float:
        self._refused_us, self._listening.waited_at = refusal.now_us, clock()
        if not self.place:
            return 0.0
        if refusal.again_ms is None:
            if self._told_by is not None:
                self._listening.unreachable(self._told_by)
            return super().pause(refusal)
        pause = refusal.again_ms / 1000
        # Not all at once; but who is told when to ask should ask then.
        return pause * random.uniform(0.9, 1.0) if pause > 1.0 else pause

    def close(self) -> None:
        self._listening.remove(self._number)


def _ring(bell: Callable[[], object]) -> None:
    try:
        bell()
    except BaseException:  # a loop that is closed; SystemExit too: the others are still to be told
        logger.debug("Somebody could not be told", exc_info=True)


_all: weakref.WeakSet[Listening] = weakref.WeakSet()
shared: OnePerKey[Listening] = OnePerKey()


def _after_fork_in_child() -> None:
    """The subscriptions are the parent's, and so are those who wait."""
    for listening in list(_all):
        with suppress(Exception):
            if listening._subscription is not None:
                listening._subscription.abandon()
        listening._start_anew()
    reader.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
