"""The async twins of a hold's methods. They add nothing: the sync method runs in a thread of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sized
from typing import TYPE_CHECKING, Self, TypeVar

from django_claims.clock import Duration, clock, milliseconds, to_wait
from django_claims.leases import ReleaseResult
from django_claims.looking import LookingHold
from django_claims.offload import offload

T = TypeVar("T")


class AsyncHold(LookingHold):
    """See the method of the same name without its 'a'."""

    if TYPE_CHECKING:  # what Hold has

        def release(self) -> ReleaseResult: ...
        def left(self, was_lost: bool, result: ReleaseResult, exc: BaseException | None) -> None: ...
        def renew(self) -> bool: ...
        def verify(self) -> bool: ...
        def ensure(self, seconds: Duration = 0.0) -> None: ...
        def hand_over(self, valid: Duration | None = None) -> str: ...

    async def arelease(self) -> ReleaseResult:
        """See release(). Goes on to its end even if the caller is cancelled meanwhile."""
        return await offload(self.release, at_any_rate=True)

    async def averify(self) -> bool:
        """See verify()."""
        return await offload(self.verify)

    async def arenew(self) -> bool:
        """See renew()."""
        return await offload(self.renew)

    async def aensure(self, seconds: Duration = 0.0) -> None:
        """See ensure()."""
        await offload(lambda: self.ensure(seconds))

    async def ahand_over(self, valid: Duration | None = None) -> str:
        """See hand_over(). Goes on to its end even if the caller is cancelled meanwhile."""
        return await offload(lambda: self.hand_over(valid))

    async def asleep(self, seconds: float) -> bool:
        """See sleep()."""
        ends = clock() + milliseconds(seconds, "seconds", at_least=0) / 1000
        self.has_looked = True
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(news.set)

        self._wakers = (*self._wakers, wake)
        try:
            while not self._has_news():
                left = min(ends, self.deadline) - clock()
                if ends <= clock():
                    return False
                try:
                    await asyncio.wait_for(news.wait(), to_wait(min(max(left, 0.001), 60.0), left))
                except TimeoutError:
                    continue
                news.clear()
            return True
        finally:
            self._wakers = tuple(other for other in self._wakers if other is not wake)

    async def acheckpoint(self, done: float | None = None, total: float | None = None, note: str | None = None) -> None:
        """See checkpoint()."""
        if self._keeper is not None and self._keeper.is_stale():
            await offload(self._keeper.listen_if_stale)
        self.checkpoint(done, total, note)

    async def atrack(self, iterable: AsyncIterable[T] | Iterable[T], total: float | None = None) -> AsyncIterator[T]:
        """See track(). Takes an async iterable as well as a plain one."""
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        done = 0
        if isinstance(iterable, AsyncIterable):
            async for item in iterable:
                await self.acheckpoint(done, total)
                yield item
                done += 1
        else:
            for item in iterable:
                await self.acheckpoint(done, total)
                yield item
                done += 1
        await self.acheckpoint(done, total)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: object) -> None:
        was_lost = self.lost
        self.left(was_lost, await self.arelease(), exc)
