"""What a type checker knows of the API. Checked by mypy and pyright, never run."""

import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Any, assert_type

from django.core.management.base import BaseCommand
from django.db import connection, models

from django_claims import (
    Claim,
    ClaimError,
    ClaimHeld,
    ClaimLost,
    ClaimStopped,
    Hold,
    Holder,
    Lease,
    LeasePage,
    LossReason,
    Progress,
    ReleaseResult,
    StopFlag,
    StopRequested,
    alist_claims,
    arequest_stop,
    claim,
    claim_all,
    current_hold,
    force_release,
    hold,
    list_claims,
    list_stop_flags,
    liveness,
    request_stop,
    resource,
    single_instance,
    stop_flag,
)
from django_claims.fencing import afenced_update, fenced_save, fenced_update


class Row:
    pass


def holding(rows: list[Row]) -> None:
    recipe = claim("x", key=(1, "a"), ttl=timedelta(minutes=3), timeout=None, on_lost="raise")
    assert_type(recipe, Claim)
    assert_type(claim_all("a", "b"), Claim)
    with recipe as held:
        assert_type(held, Hold)
        assert_type(held.fence, int)
        assert_type(held.names, tuple[str, ...])
        assert_type(held.lease, Lease | None)
        assert_type(held.loss_reason, LossReason | None)
        assert_type(held.stop_flag, StopFlag | None)
        assert_type(held.lost_event, threading.Event)
        assert_type(held.remaining(), float)
        # The items keep their type.
        assert_type(held.track(rows), Iterator[Row])
        for number, row in held.track(enumerate(rows), total=len(rows)):
            assert_type(number, int)
            assert_type(row, Row)
        held.checkpoint(1, 2.5, "half of it")
        assert_type(held.hand_over(), str)
        assert_type(held.release(), ReleaseResult)
    if taken := recipe.acquire(timeout=5):
        with taken as again:
            assert_type(again, Hold)
    assert_type(recipe.acquire(), Hold | None)
    assert_type(recipe.adopt("ticket"), Hold)
    assert_type(recipe.lease(), Lease | None)
    assert_type(recipe.available(), bool)
    assert_type(hold("x", signal=threading.Event()), Hold | None)
    assert_type(hold("x", signal=lambda: 1), Hold | None)
    assert_type(current_hold(), Hold | None)


async def awaiting(rows: AsyncIterator[Row]) -> None:
    async with claim("x") as held:
        assert_type(held, Hold)
        async for row in held.atrack(rows):
            assert_type(row, Row)
        async for letter in held.atrack(["a"]):
            assert_type(letter, str)
        await held.acheckpoint(1)
        assert_type(await held.asleep(1), bool)
        assert_type(await held.arelease(), ReleaseResult)
    assert_type(await claim("x").aacquire(), Hold | None)
    assert_type(await claim("x").alease(), Lease | None)
    assert_type(await alist_claims(), LeasePage)
    assert_type(await arequest_stop("x"), StopFlag | None)


def asking() -> None:
    page = list_claims(match="import*", page=2)
    assert_type(page, LeasePage)
    for lease in page:
        assert_type(lease, Lease)
        assert_type(lease.holder, Holder | None)
        assert_type(lease.progress, Progress | None)
        assert_type(lease.acquired_at, datetime | None)
        assert_type(lease.as_dict(), dict[str, Any])
    assert_type(request_stop("x", reason="enough", by="ann"), StopFlag | None)
    assert_type(stop_flag("x"), StopFlag | None)
    assert_type(list_stop_flags(), list[StopFlag])
    assert_type(force_release("x", fence=1), bool)
    if liveness("x") == "running":
        pass
    assert_type(resource("/srv/x"), str)
    assert_type(resource(connection, shared=True), str)


def failing() -> None:
    try:
        with claim("x"):
            pass
    except ClaimHeld as error:
        assert_type(error.lease, Lease | None)
        assert_type(error.name, str)
    except ClaimStopped as error:
        assert_type(error.flag, StopFlag | None)
    except ClaimLost as error:
        assert_type(error.reason, LossReason | None)
    except StopRequested as error:
        assert_type(error.by, str)
    except ClaimError:
        pass


# Decorators keep what they decorate.


@single_instance
def plain(number: int, *, text: str = "") -> list[str]:
    return [text] * number


@single_instance(name="x", key="number", ttl=60)
def with_key(number: int) -> float:
    return number / 2


@single_instance(on_lost="cancel")
async def coroutine(number: int) -> str:
    return str(number)


@single_instance(name="x", on_refused="skip")
def skipped(number: int) -> float:
    return number / 2


@single_instance(name="x", on_refused="skip")
async def skipped_coroutine(number: int) -> str:
    return str(number)


@single_instance
class Command(BaseCommand):
    hold: Hold  # declare it, to use it in handle()

    def handle(self, *args: Any, **options: Any) -> str | None:
        for row in self.hold.track([Row()]):
            assert_type(row, Row)
        return None


@single_instance(name="x", on_refused="skip")
class Skipped(Command):
    pass


def decorated() -> None:
    assert_type(plain(1, text="a"), list[str])
    assert_type(with_key(1), float)
    assert_type(skipped(1), float | None)
    assert_type(Command(), Command)
    assert_type(Skipped(), Skipped)
    keep: Callable[[int], Coroutine[Any, Any, str]] = coroutine
    keep_skipped: Callable[[int], Coroutine[Any, Any, str | None]] = skipped_coroutine
    print(keep, keep_skipped)


async def decorated_coroutines() -> None:
    assert_type(await coroutine(1), str)
    assert_type(await skipped_coroutine(1), str | None)


async def fenced(held: Hold, rows: models.QuerySet[models.Model], row: models.Model) -> None:
    assert_type(fenced_update(rows, held, balance=2), int)
    assert_type(await afenced_update(rows, balance=2), int)
    fenced_save(row, held, update_fields=["balance"])
