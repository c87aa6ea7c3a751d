"""`@single_instance` on functions and coroutine functions, and what it refuses. On commands: see processes/."""

import asyncio
import inspect
import math
import re
import threading

import pytest
from django.core.management.base import BaseCommand

from django_claims import (
    ClaimHeld,
    ClaimLost,
    ClaimStopped,
    InvalidClaim,
    claim,
    current_hold,
    force_release,
    request_stop,
    single_instance,
)
from tests.helpers import run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

HERE = "function:tests.test_decorators"


def name_now():
    hold = current_hold()
    return hold.name if hold else None


@single_instance
def plain():
    """Say under which claim it runs."""
    return name_now()


@single_instance(name="given")
def named():
    return name_now()


@single_instance(key="day")
def keyed(region, day=1, *, loud=False):
    return name_now()


@single_instance(key=("day", "region"))
def keyed_by_two(region, day=1):
    return name_now()


@single_instance(key=lambda region, *, day: region.lower())
def keyed_by_call(region, *, day):
    return name_now()


@single_instance
async def plain_coroutine():
    """Say under which claim it runs."""
    await asyncio.sleep(0)
    return name_now()


@single_instance(key="day")
async def keyed_coroutine(day=1):
    return name_now()


class Shop:
    @single_instance
    def method(self):
        return name_now()

    @staticmethod
    @single_instance
    def static():
        return name_now()

    @classmethod
    @single_instance
    def of_class(cls):
        return cls, name_now()

    @single_instance(key="self")
    def by_instance(self):
        return name_now()


class HeldElsewhere:
    """A claim that another thread has, as another process would."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.hold = run_in_thread(lambda: claim(self.name, ttl=60).acquire())
        assert self.hold is not None
        return self.hold

    def __exit__(self, *error):
        self.hold.release()


def assert_free(name):
    assert claim(name).lease() is None


# Names.


def test_a_function_is_named_after_its_module_and_qualified_name():
    assert plain() == f"{HERE}.plain"
    assert asyncio.run(plain_coroutine()) == f"{HERE}.plain_coroutine"
    assert Shop().method() == f"{HERE}.Shop.method"


def test_a_function_inside_a_function_is_named_after_both():
    @single_instance
    def inner():
        return name_now()

    assert inner() == f"{HERE}.test_a_function_inside_a_function_is_named_after_both.<locals>.inner"


def test_a_name_that_is_given_is_the_name():
    assert named() == "given"


def test_a_function_of_main_needs_a_name():
    def function():
        return name_now()

    function.__module__ = "__main__"

    with pytest.raises(InvalidClaim, match=r"function of __main__ .* give single_instance\(name=…\)"):
        single_instance(function)
    assert single_instance(name="mine")(function)() == "mine"


def test_static_and_class_methods_are_guarded_below_their_decorator():
    assert Shop.static() == f"{HERE}.Shop.static"
    assert Shop.of_class() == (Shop, f"{HERE}.Shop.of_class")


@pytest.mark.parametrize("above", [staticmethod, classmethod])
def test_above_staticmethod_or_classmethod_it_is_refused(above):
    with pytest.raises(TypeError, match="below @staticmethod or @classmethod"):
        single_instance(above(lambda: None))


# Keys.


def test_the_same_call_spelled_differently_gives_the_same_name():
    names = {keyed("north"), keyed("north", 1), keyed("north", day=1), keyed(region="south", day=1, loud=True)}

    assert names == {f"{HERE}.keyed:1"}
    assert keyed("north", 2) == f"{HERE}.keyed:2"
    assert keyed("north", "1") not in names


def test_a_key_of_several_is_in_the_order_in_which_it_is_given():
    assert keyed_by_two("north") == f"{HERE}.keyed_by_two:1,'north'"


def test_a_callable_key_is_called_with_the_arguments():
    assert keyed_by_call("NORTH", day=3) == f"{HERE}.keyed_by_call:'north'"


def test_a_coroutine_functions_key_is_an_argument_too():
    assert asyncio.run(keyed_coroutine()) == asyncio.run(keyed_coroutine(day=1)) == f"{HERE}.keyed_coroutine:1"


def test_calls_with_other_keys_go_on_side_by_side():
    with HeldElsewhere(f"{HERE}.keyed:1"):
        assert keyed("north", 2) == f"{HERE}.keyed:2"
        with pytest.raises(ClaimHeld):
            keyed("north")


def test_a_key_without_identity_is_refused_with_the_way_out():
    with pytest.raises(InvalidClaim, match="Shop"):
        Shop().by_instance()


def test_a_call_that_does_not_fit_the_function_is_its_own_type_error_and_takes_nothing():
    with pytest.raises(TypeError, match="region"):
        keyed()
    with pytest.raises(TypeError, match="nonsense"):
        plain(nonsense=1)
    assert_free(f"{HERE}.plain")


@pytest.mark.parametrize("key", ["dya", ("region", "dya")])
def test_a_key_that_names_no_argument_is_refused_when_decorated(key):
    with pytest.raises(InvalidClaim, match="'dya'"):
        single_instance(key=key)(lambda region, day: None)


# Refusals.


def test_a_refused_call_raises_claim_held():
    with HeldElsewhere(f"{HERE}.plain") as hold, pytest.raises(ClaimHeld) as refused:
        plain()

    assert refused.value.name == f"{HERE}.plain"
    assert refused.value.lease.fence == hold.fence
    assert plain() == f"{HERE}.plain", "free again"


def test_a_refused_coroutine_raises_claim_held():
    with HeldElsewhere(f"{HERE}.plain_coroutine"), pytest.raises(ClaimHeld):
        asyncio.run(plain_coroutine())


def test_a_call_that_is_kept_stopped_raises_claim_stopped():
    request_stop(f"{HERE}.plain", keep=True, by="alice")

    with pytest.raises(ClaimStopped, match="alice"):
        plain()


@pytest.mark.parametrize("keep", [False, True])
def test_on_refused_skip_returns_none_and_does_nothing(keep):
    ran = []
    function = single_instance(name="skipped", on_refused="skip")(lambda: ran.append(1) or "ran")

    async def body():
        ran.append(1)
        return "ran"

    coroutine_function = single_instance(name="skipped", on_refused="skip")(body)
    if keep:
        request_stop("skipped", keep=True)
        assert function() is None
        assert asyncio.run(coroutine_function()) is None
    else:
        with HeldElsewhere("skipped"):
            assert function() is None
            assert asyncio.run(coroutine_function()) is None
        assert function() == "ran"
        assert asyncio.run(coroutine_function()) == "ran"
    assert len(ran) == (0 if keep else 2)


def test_skip_does_not_swallow_a_refusal_from_inside_the_body():
    def body():
        with claim("other"):
            raise AssertionError("not refused")

    async def coroutine_body():
        body()

    with HeldElsewhere("other"):
        with pytest.raises(ClaimHeld) as refused:
            single_instance(name="outer", on_refused="skip")(body)()
        assert refused.value.name == "other"
        with pytest.raises(ClaimHeld) as refused:
            asyncio.run(single_instance(name="outer", on_refused="skip")(coroutine_body)())
        assert refused.value.name == "other"
    assert_free("outer")


def test_a_call_inside_itself_is_refused_at_once_even_with_a_timeout():
    @single_instance(name="recursive", timeout=30)
    def recursive(depth):
        return recursive(depth - 1) if depth else "bottom"

    with pytest.raises(ClaimHeld) as refused:
        recursive(1)

    assert refused.value.reentrant is True
    assert_free("recursive")
    assert recursive(0) == "bottom"


def test_timeout_waits_for_the_other_run():
    over, inside = threading.Event(), threading.Event()

    @single_instance(name="slow")
    def slow():
        inside.set()
        assert over.wait(10)

    @single_instance(name="slow", timeout=10)
    def patient():
        return over.is_set()

    thread = threading.Thread(target=slow)
    thread.start()
    assert inside.wait(10)
    timer = threading.Timer(0.1, over.set)
    timer.start()
    try:
        assert patient() is True
    finally:
        over.set()
        thread.join(10)
        timer.join(10)


# The body.


def test_what_the_function_gives_and_raises_passes_and_the_claim_is_free():
    @single_instance(name="body")
    def body(error=None):
        assert claim("body").lease() is not None
        if error:
            raise error
        return 42

    assert body() == 42
    with pytest.raises(ZeroDivisionError):
        body(ZeroDivisionError())
    with pytest.raises(SystemExit):
        body(SystemExit(3))
    assert_free("body")


def test_a_coroutine_is_guarded_to_its_end_and_not_before_it_is_awaited():
    async def main():
        coroutine = plain_coroutine()
        assert_free(f"{HERE}.plain_coroutine")
        assert await coroutine == f"{HERE}.plain_coroutine"
        assert_free(f"{HERE}.plain_coroutine")

    asyncio.run(main())


def test_of_two_coroutines_at_once_one_is_refused():
    @single_instance(name="gathered")
    async def slow():
        await asyncio.sleep(0.2)
        return "ran"

    async def main():
        return await asyncio.gather(slow(), slow(), return_exceptions=True)

    first, second = asyncio.run(main())

    assert first == "ran"
    assert isinstance(second, ClaimHeld)


def test_a_coroutine_that_is_cancelled_releases():
    async def main():
        inside = asyncio.Event()

        @single_instance(name="cancelled")
        async def endless():
            inside.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(endless())
        await asyncio.wait_for(inside.wait(), 10)
        assert claim("cancelled").lease() is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert_free("cancelled")


def test_a_coroutine_that_is_cancelled_while_it_waits_leaves_no_lease():
    @single_instance(name="waiting", timeout=30)
    async def patient():
        raise AssertionError("it was granted")

    async def main():
        task = asyncio.create_task(patient())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with HeldElsewhere("waiting") as hold:
        asyncio.run(main())
        assert claim("waiting").lease().fence == hold.fence
    assert_free("waiting")


# What is kept, and what is refused.


@pytest.mark.parametrize("function", [plain, plain_coroutine])
def test_name_docstring_and_kind_of_a_function_are_kept(function):
    assert function.__name__ in ("plain", "plain_coroutine")
    assert function.__doc__ == "Say under which claim it runs."
    assert function.__module__ == __name__
    assert inspect.iscoroutinefunction(function) is (function is plain_coroutine)


def test_the_signature_of_a_function_is_kept():
    assert str(inspect.signature(keyed)) == "(region, day=1, *, loud=False)"
    assert keyed.__wrapped__.__defaults__ == (1,)


def generator():
    yield 1


async def async_generator():
    yield 1


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_is_refused(function):
    with pytest.raises(TypeError, match=f"{function.__name__} is a generator: it would be guarded only until"):
        single_instance(function)


def test_a_celery_task_is_refused_and_told_where_its_decorator_is():
    class Task:
        def apply_async(self):
            pass

        def __call__(self):
            pass

    with pytest.raises(TypeError, match=r"import single_instance from django_claims\.contrib\.celery"):
        single_instance(Task())
    with pytest.raises(TypeError, match="below @shared_task"):
        single_instance(name="task")(Task())


def test_a_handle_method_is_refused_and_told_to_decorate_its_class():
    with pytest.raises(TypeError, match="write @single_instance above 'class Command'"):

        class Command(BaseCommand):
            @single_instance
            def handle(self, *args, **options):
                pass


class NoCommand:
    pass


class AsyncCommand(BaseCommand):
    async def handle(self, *args, **options):
        pass


@pytest.mark.parametrize("target", [NoCommand, AsyncCommand, NoCommand(), 5, "text"])
def test_what_is_neither_a_function_nor_a_command_is_refused(target):
    with pytest.raises(TypeError):
        single_instance(target)


@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        ("name", "", "name"),
        ("name", 5, "5"),
        ("name", "two\nlines", r"two\nlines"),
        ("name", " blank edges", "' blank edges'"),
        ("ttl", 0, "0"),
        ("ttl", -3, "-3"),
        ("ttl", "30", "'30'"),
        ("ttl", True, "True"),
        ("ttl", math.nan, "nan"),
        ("ttl", math.inf, "inf"),
        ("timeout", -1, "-1"),
        ("timeout", "5", "'5'"),
        ("min_hold", -2, "-2"),
        ("max_hold", 0, "0"),
        ("on_refused", "ignore", "'ignore'"),
        ("on_lost", "shout", "'shout'"),
        ("exit_code", 256, "256"),
        ("exit_code", -1, "-1"),
        ("exit_code", "75", "'75'"),
        ("exit_code", True, "True"),
        ("using", 5, "5"),
        ("key", 5, "5"),
        ("key", ("day", 5), "5"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_when_decorated(argument, value, says):
    with pytest.raises(InvalidClaim, match=re.escape(says) if says != "name" else "name"):
        single_instance(**{argument: value})(lambda day: None)


def test_an_argument_that_there_is_not_is_refused_by_its_name():
    with pytest.raises(TypeError, match="on_refuse"):
        single_instance(on_refuse="skip")


@pytest.mark.parametrize("on_lost", ["cancel"])
def test_a_plain_function_cannot_be_cancelled_and_is_refused_when_decorated(on_lost):
    with pytest.raises(InvalidClaim, match="'cancel'"):
        single_instance(on_lost=on_lost)(lambda: None)


def test_decorating_takes_nothing_and_reads_no_settings(settings):
    settings.CLAIMS = {"default": {"BACKEND": "no.such.backend"}}

    @single_instance(ttl=30)
    def function():
        pass

    assert function.__name__ == "function"


def test_with_claims_off_a_function_runs(settings):
    settings.CLAIMS = None

    assert plain() == f"{HERE}.plain"


def test_a_hold_that_was_lost_in_the_body_does_not_hide_what_it_gives():
    @single_instance(name="lost")
    def body():
        hold = current_hold()
        assert force_release("lost", fence=hold.fence) is True
        assert hold.verify() is False
        return 42

    assert body() == 42
    assert_free("lost")


def test_on_lost_raise_raises_at_the_end_of_the_body():
    @single_instance(name="lost", on_lost="raise")
    def body():
        hold = current_hold()
        force_release("lost", fence=hold.fence)
        hold.verify()

    with pytest.raises(ClaimLost):
        body()
