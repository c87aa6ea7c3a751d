"""The holds of this process, and which of them are of this thread or task."""

import asyncio
import gc
import threading

import pytest

from django_claims import claim, current_hold, registry
from tests.helpers import run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)


class Some:
    """What the registry needs of a hold."""

    def __init__(self, *names, token="t", alias="default"):
        self.names, self.token, self.alias = names, token, alias
        self.is_open = True

    def fork(self):
        self.is_open = False


def test_a_hold_is_found_by_its_token_until_removed():
    hold = Some("x", token="one")

    registry.add(hold)
    found = registry.get("one")
    registry.remove("one", "default", ("x",))
    registry.remove("one", "default", ("x",))

    assert found is hold
    assert registry.get("one") is None


def test_a_forgotten_hold_is_gone():
    hold = Some("x", token="two")
    registry.add(hold)

    del hold
    gc.collect()

    assert registry.get("two") is None
    assert registry.all_holds() == []
    registry.remove("two", "default", ("x",))


def test_all_holds_of_all_threads_are_known():
    first = claim("a").acquire()
    second = run_in_thread(claim("b").acquire)

    assert {hold.name for hold in registry.all_holds()} == {"a", "b"}

    first.release()
    second.release()

    assert registry.all_holds() == []


def test_the_current_hold_is_the_innermost_open_one():
    assert current_hold() is None

    with claim("a") as outer:
        assert current_hold() is outer
        with claim("b") as inner:
            assert current_hold() is inner
        assert current_hold() is outer
        inner = claim("c").acquire()
        assert current_hold() is inner
        outer_released_first = outer.release()
        assert current_hold() is inner
        inner.release()
        assert current_hold() is None

    assert outer_released_first
    assert current_hold() is None


def test_a_lost_hold_is_not_the_current_one():
    with claim("a") as outer, claim("b") as inner:
        inner.lose("forced")

        assert current_hold() is outer


def test_another_thread_has_no_current_hold_of_mine():
    with claim("a"):
        assert run_in_thread(current_hold) is None


def test_each_task_has_a_current_hold_of_its_own():
    async def work(name):
        async with claim(name) as hold:
            await asyncio.sleep(0.01)
            return current_hold() is hold

    async def main():
        found = await asyncio.gather(*[work(f"job {number}") for number in range(5)])
        return found, current_hold()

    assert asyncio.run(main()) == ([True] * 5, None)


def test_code_called_through_sync_to_async_sees_the_hold_of_its_caller():
    from asgiref.sync import sync_to_async

    async def main():
        async with claim("a") as hold:
            return await sync_to_async(current_hold)() is hold

    assert asyncio.run(main()) is True


def test_held_here_minds_alias_and_name():
    hold = Some("a", "b", token="three")

    def look():
        registry.add(hold)
        registry.enter(hold)
        before = [registry.held_here("default", ("a",)), registry.held_here("default", ("b", "c"))]
        other = [registry.held_here("other", ("a",)), registry.held_here("default", ("c",))]
        hold.is_open = False
        ended = registry.held_here("default", ("a",))
        registry.remove("three", "default", ("a", "b"))
        return before, other, ended

    assert run_in_thread(look) == (["a", "b"], ["", ""], "")


def test_a_loop_of_short_holds_leaves_nothing_in_the_context():
    for number in range(200):
        with claim(f"job {number}"):
            pass

    assert len(list(registry._chain(registry._here.get()))) <= 2
    assert registry.all_holds() == []
    assert registry._by_name == {}


def test_holds_that_end_out_of_order_leave_little_in_the_context():
    outer = claim("outer").acquire()
    for number in range(500):
        inner = claim(f"job {number}").acquire()
        outer, ended = inner, outer
        ended.release()

    left = len(list(registry._chain(registry._here.get())))

    outer.release()
    assert left <= 40


def test_the_older_of_many_open_holds_is_still_known_as_mine():
    holds = [claim(f"job {number}").acquire() for number in range(100)]

    mine = [registry.held_here("default", (hold.name,)) for hold in holds]

    for hold in holds:
        hold.release()
    assert mine == [hold.name for hold in holds]


def test_threads_that_take_and_leave_at_once_disturb_each_other_in_nothing():
    errors = []

    def work(number):
        try:
            for turn in range(20):
                with claim(f"job {number} {turn}") as hold:
                    assert current_hold() is hold
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(10)

    assert errors == []
    assert registry.all_holds() == []
