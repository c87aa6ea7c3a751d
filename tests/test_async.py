"""The async twins: the same answers, and nothing left behind by a cancelled task."""

import asyncio
import contextvars
import inspect
import subprocess
import sys
import textwrap
import threading

import pytest

import django_claims
from django_claims import (
    BackendUnavailable,
    ClaimError,
    ClaimHeld,
    ClaimLost,
    ClaimStopped,
    Hold,
    InvalidClaim,
    LossReason,
    ReleaseResult,
    StopRequested,
    aclear_stop,
    aforce_release,
    alist_claims,
    arequest_stop,
    astop_flag,
    claim,
    current_hold,
    force_release,
    offload,
    registry,
    request_stop,
    stop_flag,
)
from django_claims.clock import clock
from tests.helpers import (
    calm,
    faults,
    listening,
    taken,
    tidy,
    wait_until,
)

_tidy = pytest.fixture(autouse=True)(tidy)
calm = pytest.fixture(autouse=True)(calm)
taken = pytest.fixture(taken)
heard = pytest.fixture(listening)


# Twins.


@pytest.mark.parametrize(
    "owner, name",
    [(django_claims.Claim, n) for n in ("acquire", "available", "lease")]
    + [(Hold, n) for n in ("release", "verify", "renew", "ensure", "sleep", "checkpoint", "track")]
    + [(django_claims, n) for n in ("request_stop", "clear_stop", "stop_flag", "list_claims", "force_release")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_twin_takes_the_same_arguments(owner, name):
    sync, twin = getattr(owner, name), getattr(owner, "a" + name)

    def shape(func):
        return [(p.name, p.kind, p.default) for p in inspect.signature(func).parameters.values()]

    assert shape(sync) == shape(twin)
    assert inspect.iscoroutinefunction(twin) or inspect.isasyncgenfunction(twin)


def test_the_twins_of_a_hold_answer_as_it_does():
    async def main():
        hold = await claim("x").aacquire()
        first = [await hold.averify(), await hold.arenew(), await claim("x").aavailable()]
        lease = await claim("x").alease()
        await hold.aensure(5)
        await hold.acheckpoint(1, 2, "half")
        ends = [await hold.arelease(), await hold.arelease()]
        return first, lease.fence == hold.fence, ends, await claim("x").alease()

    assert asyncio.run(main()) == (
        [True, True, False], True, [ReleaseResult.RELEASED, ReleaseResult.NOT_HELD], None
    )  # fmt: skip


def test_the_twins_of_the_functions_answer_as_they_do():
    async def main():
        async with claim("x") as hold:
            flag = await arequest_stop("x", reason="why", by="ana")
            assert flag.fence == hold.fence
            assert (await astop_flag("x")).reason == "why"
            assert [lease.name for lease in await alist_claims()] == ["x"]
            assert await aclear_stop("x") is True
            assert await aforce_release("x", fence=hold.fence) is True
            assert await hold.arenew() is False
            return hold.loss_reason

    assert asyncio.run(main()) is LossReason.FORCED


def test_a_twin_raises_what_the_function_does():
    faults.fail("acquire", "lease", "renew")

    async def main():
        with pytest.raises(BackendUnavailable):
            await claim("x").aacquire()
        with pytest.raises(BackendUnavailable):
            await claim("x").alease()
        with pytest.raises(InvalidClaim):
            await claim("x").aacquire(timeout=-1)

    asyncio.run(main())


# Taking and leaving.


def test_async_with_gives_the_hold_and_frees_the_name():
    async def main():
        async with claim("x") as hold:
            assert current_hold() is hold
            assert hold.held
        return hold.held, current_hold(), claim("x").lease()

    assert asyncio.run(main()) == (False, None, None)


def test_a_task_that_is_created_in_the_block_counts_as_the_holder_and_one_with_a_context_of_its_own_does_not():
    async def find():
        with pytest.raises(ClaimHeld) as refused:
            async with claim("x", timeout=0.01):
                pytest.fail("entered")
        return current_hold(), refused.value.reentrant

    async def main():
        async with claim("x") as hold:
            inherited = await asyncio.create_task(find())
            apart = await asyncio.create_task(find(), context=contextvars.Context())
            return hold, inherited, apart

    hold, inherited, apart = asyncio.run(main())

    assert inherited == (hold, True)
    assert apart == (None, False)


def test_async_with_raises_who_has_it(taken):
    async def main():
        async with claim("x"):
            pytest.fail("entered")

    with pytest.raises(ClaimHeld) as refused:
        asyncio.run(main())
    assert refused.value.lease.fence == taken.fence


def test_a_hold_may_be_used_with_async_with():
    async def main():
        async with await claim("x").aacquire() as hold:
            assert hold.held
        return claim("x").lease()

    assert asyncio.run(main()) is None


def test_a_waiter_gets_in_when_the_holder_leaves(taken):
    threading.Timer(0.2, taken.release).start()

    async def main():
        hold = await claim("x", timeout=5).aacquire()
        return await hold.arelease()

    assert asyncio.run(main()) is ReleaseResult.RELEASED


def test_a_waiter_sleeps_on_the_loop(taken):
    async def main():
        ticks = 0
        waiting = asyncio.create_task(claim("x").aacquire(timeout=0.5))
        while not waiting.done():
            await asyncio.sleep(0.01)
            ticks += 1
        return ticks, await waiting

    ticks, hold = asyncio.run(main())

    assert hold is None
    assert ticks > 15


def test_many_waiters_need_few_threads_and_delay_no_release(taken):
    async def main():
        waiters = [asyncio.create_task(claim("x").aacquire(timeout=30)) for _ in range(200)]
        await asyncio.sleep(0.1)
        async with claim("y") as hold:
            started = clock()
            await hold.arelease()
            took = clock() - started
        names = [thread.name for thread in threading.enumerate() if thread.name.startswith("django-claims ")]
        names = [name for name in names if not name.startswith("django-claims ask")]  # of tests before this one
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        return took, len(names)

    took, threads = asyncio.run(main())

    assert took < 1
    assert threads <= 2 + 8 + 4


def test_a_kept_stop_sends_a_waiter_home(taken):
    async def main():
        async def wait():
            async with claim("x", timeout=30):
                pytest.fail("entered")

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.1)
        await arequest_stop("x", keep=True)
        with pytest.raises(ClaimStopped):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def test_one_recipe_is_shared_by_tasks():
    recipe, inside, most = claim("x", timeout=20), [], []

    async def work():
        for _ in range(3):
            async with recipe as hold:
                inside.append(hold)
                most.append(len(inside))
                await asyncio.sleep(0.005)
                assert current_hold() is hold
                inside.remove(hold)

    async def main():
        await asyncio.gather(*[work() for _ in range(5)])

    asyncio.run(main())

    assert most == [1] * 15


@pytest.mark.parametrize("timeout", [0, 5, None])
def test_taking_again_in_the_same_task_is_refused_at_once(timeout):
    async def main():
        async with claim("x") as outer:
            started = clock()
            with pytest.raises(ClaimHeld, match="very thread or task"):
                async with claim("x", timeout=timeout):
                    pytest.fail("entered twice")
            assert await claim("x", timeout=timeout).aacquire() is None
            assert outer.held
            return clock() - started

    assert asyncio.run(main()) < 1


def test_leaving_after_a_loss_keeps_the_result_and_tells(heard, caplog):
    async def main():
        async with claim("x") as hold:
            hold.lose(LossReason.FORCED)
            return 42

    assert asyncio.run(main()) == 42
    assert len(heard.all("claim_lost")) == 1
    assert "Work ended after its claim was lost" in caplog.text


def test_on_lost_raise_raises_at_exit():
    async def main():
        async with claim("x", on_lost="raise") as hold:
            hold.lose(LossReason.FORCED)

    with pytest.raises(ClaimLost):
        asyncio.run(main())


def test_the_bodys_own_exception_wins_over_a_failing_release():
    async def main():
        async with claim("x"):
            faults.fail("release")
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as error:
        asyncio.run(main())
    assert "could not be released" in error.value.__notes__[0]


# Cancelling.


def test_a_cancelled_waiter_leaves_no_lease(taken):
    async def main():
        waiting = asyncio.create_task(claim("x", timeout=30).aacquire())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    taken.release()

    assert claim("x").lease() is None
    assert claim("x").acquire(timeout=1).release()


def test_a_task_cancelled_while_its_try_is_on_the_wire_gives_back_what_it_is_granted(recwarn, caplog):
    entered, go_on = threading.Event(), threading.Event()

    def acquire(real, requests):
        entered.set()
        go_on.wait(5)
        return real(requests)

    async def main():
        faults.on("acquire", acquire)
        waiting = asyncio.create_task(claim("x").aacquire())
        await asyncio.to_thread(entered.wait, 5)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        while faults.count("release") < 1:
            await asyncio.sleep(0.01)

    asyncio.run(main())

    wait_until(lambda: claim("x").lease() is None, 2)
    assert registry.all_holds() == []
    assert "dropped without release" not in caplog.text
    assert len(recwarn) == 0


def test_a_try_that_is_granted_after_its_loop_has_closed_leaves_no_lease():
    entered, go_on = threading.Event(), threading.Event()

    def acquire(real, requests):
        entered.set()
        go_on.wait(5)
        return real(requests)

    async def main():
        faults.on("acquire", acquire)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await claim("x", ttl=60).aacquire()

    asyncio.run(main())
    go_on.set()

    wait_until(lambda: faults.count("release") >= 1, 3)
    wait_until(lambda: claim("x").lease() is None, 1)


def test_a_cancelled_release_still_releases():
    entered, go_on = threading.Event(), threading.Event()

    def release(real, requests):
        entered.set()
        go_on.wait(5)
        return real(requests)

    async def main():
        hold = await claim("x").aacquire()
        faults.on("release", release)
        leaving = asyncio.create_task(hold.arelease())
        await asyncio.to_thread(entered.wait, 5)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        go_on.set()

    asyncio.run(main())

    wait_until(lambda: claim("x").lease() is None, 2)


def test_a_cancelled_body_frees_the_name():
    async def main():
        inside = asyncio.Event()

        async def work():
            async with claim("x"):
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return claim("x").lease()

    assert asyncio.run(main()) is None


def test_a_cancellation_wins_over_a_failing_release():
    async def main():
        inside = asyncio.Event()

        async def work():
            async with claim("x"):
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await inside.wait()
        faults.fail("release")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return task.cancelled()

    assert asyncio.run(main()) is True


def test_on_lost_cancel_cancels_the_task():
    async def main():
        inside = asyncio.Event()

        async def work():
            async with claim("x", on_lost="cancel") as hold:
                inside.hold = hold
                inside.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(work())
        await inside.wait()
        force_release("x", fence=inside.hold.fence)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        return task.cancelled(), inside.hold.loss_reason

    assert asyncio.run(main()) == (True, LossReason.FORCED)


def test_on_lost_interrupt_is_not_for_tasks():
    async def main():
        with pytest.raises(InvalidClaim, match="cancel"):
            await claim("x", on_lost="interrupt").aacquire()

    asyncio.run(main())
    assert faults.calls == []


def test_without_a_thread_for_the_try_nothing_is_taken_now_or_later(monkeypatch, recwarn):
    monkeypatch.setattr(offload, "_executors", {})
    with claim("other"):  # the keeper's threads are there

        def refuse(self):
            raise RuntimeError("can't start new thread")

        async def main():
            await asyncio.sleep(0)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(ClaimError):
                    await claim("x").aacquire()
            async with claim("y"):
                pass

        asyncio.run(main())

        assert faults.count("acquire") == 2
        assert claim("x").lease() is None


def test_without_a_thread_for_the_release_it_is_done_by_the_loop(monkeypatch):
    monkeypatch.setattr(offload, "_executors", {})

    class Ended:
        def submit(self, run):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    async def main():
        with monkeypatch.context() as patch:
            async with claim("x"):
                patch.setattr(offload, "_executor", lambda kind: Ended())
                raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(main())

    assert claim("x").lease() is None


def test_a_loop_that_outlives_the_main_thread_releases_what_it_holds():
    program = """
        import asyncio, threading
        from django.conf import settings

        settings.configure(CLAIMS={"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}})
        from django_claims import claim

        is_held = threading.Event()

        async def main():
            try:
                async with claim("x"):
                    is_held.set()
                    while threading.main_thread().is_alive():
                        await asyncio.sleep(0.01)
                    raise ValueError("mine")
            except ValueError as error:
                print(error, claim("x").lease())

        threading.Thread(target=lambda: asyncio.run(main())).start()
        is_held.wait(60)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )

    assert run.stdout.split() == ["mine", "None"], run


# Sleeping and tracking.


def test_an_undisturbed_asleep_lasts_its_time():
    async def main():
        async with claim("x") as hold:
            started = clock()
            return await hold.asleep(0.2), clock() - started, hold._wakers

    cut_short, took, wakers = asyncio.run(main())

    assert cut_short is False
    assert 0.2 <= took < 0.6
    assert len(wakers) == 0


@pytest.mark.parametrize("news", ["stop", "loss"])
def test_an_asleep_ends_early_on_news(news):
    async def main():
        async with claim("x") as hold:
            ask = request_stop if news == "stop" else lambda name: force_release(name, fence=hold.fence)
            threading.Timer(0.1, ask, ("x",)).start()
            started = clock()
            return await hold.asleep(30), clock() - started

    cut_short, took = asyncio.run(main())

    assert cut_short is True
    assert took < 2


def test_an_asleep_goes_on_over_renewals():
    async def main():
        async with claim("x", ttl=0.6) as hold:
            return await hold.asleep(1.0), hold.held

    assert asyncio.run(main()) == (False, True)


def test_a_cancelled_asleep_is_cancelled():
    async def main():
        async with claim("x") as hold:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await hold.asleep(30)
            return len(hold._wakers)

    assert asyncio.run(main()) == 0


async def letters():
    for letter in "abc":
        yield letter


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_atrack_yields_all_and_counts_what_is_done(kind):
    async def main():
        async with claim("x") as hold:
            items = letters() if kind == "async" else ["a", "b", "c"]
            seen = [(item, hold.lease.progress.done) async for item in hold.atrack(items, total=3)]
            return seen, hold.lease.progress.done, hold.lease.progress.total

    assert asyncio.run(main()) == ([("a", 0), ("b", 1), ("c", 2)], 3, 3)


def test_atrack_ends_on_a_stop_between_items():
    async def main():
        seen = []
        async with claim("x") as hold:
            with pytest.raises(StopRequested):
                async for item in hold.atrack(range(10)):
                    seen.append(item)
                    if item == 2:
                        await arequest_stop("x")
                        await asyncio.to_thread(hold.stop_event.wait, 2)
        return seen

    assert asyncio.run(main()) == [0, 1, 2]


def test_flags_set_from_a_task_are_seen_by_all():
    async def main():
        await arequest_stop("x", keep=True)

    asyncio.run(main())

    assert stop_flag("x").keep


def test_a_signal_that_comes_as_a_thread_starts_does_not_keep_the_process_from_ending():
    """The executor has not noted that thread by then, and would never tell it to end."""
    script = """
        from django.conf import settings
        settings.configure(
            CLAIMS={"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}},
            INSTALLED_APPS=["django_claims"],
        )
        import asyncio, django, threading
        django.setup()
        from django_claims import claim
        real = threading.Thread.start
        def start(thread):
            real(thread)
            if thread.name.startswith("django-claims try"):
                threading.Thread.start = real
                raise SystemExit(143)  # as the handler of shutdown.install()
        threading.Thread.start = start
        asyncio.run(claim("x").aacquire())
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=30,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": "."},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (143, "")
