"""`@single_instance` on tasks, in this process: eager, called, and as a worker would run them, without a worker."""

import functools
import inspect
import json
import logging
import uuid

import pytest
from celery import Celery, Task, _state, chain, chord, group
from celery.app.trace import build_tracer
from django.core.management.base import BaseCommand

import django_claims
from django_claims import ClaimHeld, ClaimStopped, InvalidClaim, claim, clear_stop, current_hold, request_stop
from django_claims.contrib.celery import single_instance
from django_claims.contrib.celery.checks import check_tasks, problems
from django_claims.contrib.celery.redelivery import AGAIN, visibility_timeout
from django_claims.handler import claim_backends
from django_claims.leases import ReleaseResult
from django_claims.names import MARK
from tests.helpers import claims_settings, faults, run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)


@pytest.fixture(autouse=True)
def _store(settings):
    settings.CLAIMS = claims_settings()


@pytest.fixture
def app():
    before = _state.default_app, _state._tls.current_app
    app = Celery("quick", broker="memory://", backend="cache+memory://", set_as_current=True)
    app.conf.task_always_eager = True
    app.conf.task_store_eager_result = False
    app.set_default()
    app.finalize()
    app.task = functools.partial(app.task, shared=False)  # or each later app would have it as well
    yield app
    app.close()
    _state.set_default_app(before[0])
    _state._tls.current_app = before[1]


class Held:
    """The claim of a name, held by another thread for as long as a test likes."""

    def __init__(self, name):
        self.hold = run_in_thread(lambda: claim(name, ttl=60, label="the other").acquire())
        assert self.hold is not None

    def __enter__(self):
        return self.hold

    def __exit__(self, *error):
        assert self.hold.release() is ReleaseResult.RELEASED


def lease(name):
    return claim_backends["default"].lease(name)


def stored(app, task_id):
    """Return state and result as the result backend has them."""
    app.conf.task_always_eager = False
    try:
        found = app.AsyncResult(task_id)
        return found.state, found.result
    finally:
        app.conf.task_always_eager = True


def run_as_message(app, task, *args, task_id=None, redelivered=False, tag=None, **request):
    """Run a task as a worker does with a message; return its state, its result, the headers of what was sent."""
    sent = []
    task_id = task_id or uuid.uuid4().hex
    about = {
        "id": task_id,
        "delivery_info": {"exchange": "", "routing_key": "quick", "priority": 0, "redelivered": redelivered},
        "properties": {"delivery_tag": tag or uuid.uuid4().hex},
        "hostname": "w1@here",
        "is_eager": False,
        **request,
    }
    tracer = build_tracer(task.name, task, app=app)
    publish = app.amqp.send_task_message
    app.amqp.send_task_message = lambda producer, name, message, headers=None, **options: sent.append(
        {**message.headers, **(headers or {}), "args": list(message.body[0])}
    )
    app.conf.task_always_eager = False
    try:
        outcome = tracer(task_id, args, {}, about)
    finally:
        app.conf.task_always_eager = True
        app.amqp.send_task_message = publish
    state = outcome.info.state if outcome.info else "SUCCESS"
    return state, outcome.retval, sent


# Names, signatures, keys.


def test_a_run_holds_the_claim_of_its_tasks_name_and_shows_who_it_is(app):
    @app.task(name="shop.report")
    @single_instance
    def report():
        hold = current_hold()
        return hold.name, hold.label, hold.holder.task_id, lease("task:shop.report").holder.node

    name, label, task_id, node = run_as_message(app, report, task_id="id-1")[1] and report.apply(task_id="id-2").get()

    assert (name, label, task_id) == ("task:shop.report", "shop.report", "id-2")
    assert node
    assert lease("task:shop.report") is None


def test_positional_and_keyword_arguments_make_the_same_key_also_for_a_bound_task(app):
    @app.task(name="bound", bind=True)
    @single_instance(key=("year", "month"))
    def bound(self, year, month=1):
        return current_hold().name

    assert bound.apply((2026, 1)).get() == bound.apply(kwargs={"month": 1, "year": 2026}).get()
    assert bound.apply((2026,)).get() == bound.apply((2026, 1)).get() == "task:bound:2026,1"
    assert bound.apply((2026, 2)).get() != bound.apply((2026, 1)).get()


def test_a_callable_key_gets_the_arguments_of_the_call_without_the_task(app):
    @app.task(bind=True)
    @single_instance(name="k", key=lambda order, **more: order % 10)
    def bound(self, order, **more):
        return current_hold().name

    assert bound.apply((31,), {"x": 1}).get() == "k:1"


def test_celery_still_refuses_wrong_arguments_when_they_are_sent(app):
    @app.task(bind=True)
    @single_instance
    def two(self, a, b=1):
        """What it does."""

    assert two.__doc__ == "What it does."
    assert str(inspect.signature(two.run)) == "(a, b=1)"
    two.apply_async((1,))
    for wrong in ((), (1, 2, 3)):
        with pytest.raises(TypeError):
            two.apply_async(wrong)


def plain(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def nameless(function):
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("order", ["above", "below", "above, without wraps"])
def test_two_tasks_with_plain_wrappers_have_two_claims(app, order):
    guard = single_instance(key="number")

    def decorated(function):
        if order == "below":
            return guard(plain(function))
        return (nameless if "without" in order else plain)(guard(function))

    @app.task(name=f"first {order}")
    @decorated
    def first(number):
        return current_hold().name

    @app.task(name=f"second {order}", bind=True)
    @decorated
    def second(self, number):
        return current_hold().name

    for _ in range(2):
        assert first.apply((1,)).get() == f"task:first {order}:1"
        assert second.apply((), {"number": 1}).get() == f"task:second {order}:1"
    assert lease(f"task:first {order}:1") is None


def test_a_task_of_a_class_with_a_guarded_run_and_tasks_made_from_a_guarded_class(app):
    class Import(Task):
        name = "import"

        @single_instance(key="number")
        def run(self, number):
            return current_hold().name

    task = app.register_task(Import())

    @single_instance(key="number")
    class Base(Task):
        abstract = True

    @app.task(base=Base, name="of base")
    def function(number):
        return current_hold().name

    @app.task(base=Base, name="bound of base", bind=True)
    def bound(self, number):
        assert not self.request.called_directly
        return current_hold().name, self.request.id

    assert task.apply((1,)).get() == "task:import:1"
    assert function.apply((1,)).get() == function.apply(kwargs={"number": 1}).get() == "task:of base:1"
    assert function(1) == "task:of base:1"
    assert bound.apply((2,), task_id="x").get() == ("task:bound of base:2", "x")
    with Held("task:of base:1"):
        assert function.apply((1,)).get()["skipped"] == "held"
        assert function(1)["skipped"] == "held"
        assert run_as_message(app, function, 1, task_id="refused")[0] == "SUCCESS"
        assert stored(app, "refused")[1]["skipped"] == "held"
    assert lease("task:of base:1") is None


def test_a_guarded_class_with_a_call_of_its_own_keeps_it(app):
    calls = []

    @single_instance
    class Base(Task):
        abstract = True

        def __call__(self, *args, **kwargs):
            calls.append((args, current_hold().name))
            return super().__call__(*args, **kwargs)

    @app.task(base=Base, name="counted")
    def counted(number):
        return number

    assert counted.apply((5,)).get() == 5
    assert calls == [((5,), "task:counted")]


def test_guarded_by_class_and_by_function_is_an_error(app):
    @single_instance
    class Base(Task):
        abstract = True

    @app.task(base=Base)
    @single_instance
    def twice():
        pass

    with pytest.raises(TypeError, match="guarded twice"):
        twice.apply(throw=True)


def test_called_as_a_function_it_is_guarded_under_the_name_that_the_task_has(app):
    @app.task
    @single_instance
    def report(x):
        return current_hold().name, x

    assert report(3) == (f"task:{report.name}", 3)
    assert report.run(3) == (f"task:{__name__}.report", 3)
    with Held(f"task:{report.name}"):
        assert report(3)["skipped"] == "held"


def test_a_guarded_task_that_another_task_calls_is_guarded_as_itself(app):
    @app.task(name="inner")
    @single_instance
    def inner():
        return current_hold().name

    @app.task(name="outer")
    @single_instance
    def outer():
        return inner(), inner.apply().get(disable_sync_subtasks=False), current_hold().name

    assert outer.apply().get() == ("task:inner", "task:inner", "task:outer")


# What may be decorated.


def test_above_the_task_it_says_to_write_it_below(app):
    @app.task
    def report():
        pass

    with pytest.raises(TypeError, match=r"below @shared_task, not above"):
        single_instance(report)
    with pytest.raises(TypeError, match=r"from django_claims\.contrib\.celery"):
        django_claims.single_instance(report)


def test_the_single_instance_of_commands_below_a_task_says_which_import_when_it_runs(app):
    @app.task
    @django_claims.single_instance
    def report():
        return "ran"

    @app.task
    def caller():
        return helper()

    @django_claims.single_instance
    def helper():
        return "a plain function, called by a task"

    with pytest.raises(TypeError, match=r"import single_instance from django_claims\.contrib\.celery"):
        report.apply(throw=True)
    assert caller.apply().get() == "a plain function, called by a task"


async def coroutine_function():
    pass


def generator_function():
    yield


async def async_generator_function():
    yield


@pytest.mark.parametrize(
    "target, match",
    [
        (coroutine_function, "coroutine function"),
        (generator_function, "generator"),
        (async_generator_function, "generator"),
        (type("Command", (BaseCommand,), {}), "from django_claims"),
        (type("Plain", (), {}), "for tasks"),
        (staticmethod(len), "below @shared_task"),
        (3, "below @shared_task"),
    ],
)
def test_what_cannot_be_guarded_is_refused_when_decorated(target, match):
    with pytest.raises(TypeError, match=match):
        single_instance(target)


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_refused": "wait"},
        {"on_lost": "cancel"},
        {"on_lost": "explode"},
        {"ttl": 0},
        {"timeout": -1},
        {"key": 3},
        {"name": ""},
    ],
)
def test_wrong_arguments_are_refused_when_decorated(wrong):
    with pytest.raises(InvalidClaim):
        single_instance(**wrong)(lambda: None)


def test_a_key_that_is_no_argument_is_refused_when_decorated():
    with pytest.raises(InvalidClaim, match="'month'"):
        single_instance(key="month")(lambda year: None)


# Refusals.


def guarded(app, **how):
    @app.task(name="shop.sync")
    @single_instance(**how)
    def sync(*args):
        return "ran"

    return sync


def about(record):
    return record.claim, record.claim_alias, record.claim_fence, record.claim_holder


def test_a_skip_is_a_success_that_callers_can_tell_is_json_safe_and_is_logged_once(app, caplog):
    sync = guarded(app)

    with Held("task:shop.sync") as hold, caplog.at_level(logging.INFO, logger="django_claims.contrib.celery"):
        result = sync.apply()

    assert result.successful()
    assert result.get()["skipped"] == "held"
    assert result.get()["claim"] == "task:shop.sync"
    assert result.get()["holder"]["label"] == "the other"
    assert json.loads(json.dumps(result.get())) == result.get()
    (record,) = caplog.records
    assert "task:shop.sync" in record.getMessage() and "the other" in record.getMessage()
    assert about(record) == ("task:shop.sync", "default", hold.fence, str(hold.holder))
    assert sync.apply().get() == "ran"


def test_kept_stopped_skips_as_such_or_fails_as_such(app):
    request_stop("task:shop.sync", keep=True, reason="bad feed")

    assert guarded(app).apply().get() == {"skipped": "kept stopped", "claim": "task:shop.sync", "holder": None}
    app.tasks.pop("shop.sync")
    with pytest.raises(ClaimStopped, match="bad feed"):
        guarded(app, on_refused="fail").apply(throw=True)

    assert clear_stop("task:shop.sync")


def test_fail_raises_claim_held_that_survives_the_result_backend(app):
    sync = guarded(app, on_refused="fail")

    with Held("task:shop.sync"):
        with pytest.raises(ClaimHeld, match="the other"):
            sync.apply(throw=True)
        state, _, sent = run_as_message(app, sync, task_id="failed")

    assert (state, sent) == ("FAILURE", [])
    error = stored(app, "failed")[1]
    assert isinstance(error, ClaimHeld)
    assert error.name == "task:shop.sync" and "is held by" in str(error)


def test_retry_sends_the_task_again_as_it_is_and_counts_no_retry_of_its_own(app):
    sync = guarded(app, on_refused="retry")

    with Held("task:shop.sync"):
        state, _, sent = run_as_message(app, sync, 1, task_id="again", retries=2, headers=None)

    assert state == "RETRY"
    (again,) = sent
    assert (again["id"], again["retries"], again["args"]) == ("again", 2, [1])
    assert again["eta"]
    assert again[AGAIN] == ["retry", 1, 2]
    assert stored(app, "again")[0] == "RETRY"


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_eager_or_called_there_is_nothing_to_send_again_so_it_fails(app, policy):
    sync = guarded(app, on_refused=policy)

    with Held("task:shop.sync"):
        with pytest.raises(ClaimHeld):
            sync.apply(throw=True)
        with pytest.raises(ClaimHeld):
            sync()


def test_eager_chains_groups_and_chords_go_on_with_the_skip(app):
    sync = guarded(app)

    @app.task
    def after(value):
        return {"after": value}

    @app.task
    def other():
        return "other"

    with Held("task:shop.sync"):
        assert chain(sync.s(), after.s()).apply().get()["after"]["skipped"] == "held"
        grouped = group(sync.s(), other.s()).apply().get()
        gathered = chord([sync.s(), other.s()], after.s()).apply_async().get()

    assert grouped[0]["skipped"] == "held" and grouped[1] == "other"
    assert gathered["after"][0]["skipped"] == "held" and gathered["after"][1] == "other"


# Ends.


def test_a_stopped_task_ends_with_a_result_and_is_not_tried_again(app):
    @app.task(name="stopped", autoretry_for=(Exception,), max_retries=3)
    @single_instance
    def stopped():
        request_stop("task:stopped", reason="wrong file", by="ana")
        current_hold().renew()
        current_hold().checkpoint()

    state, _, sent = run_as_message(app, stopped, task_id="stopped-1")

    assert (state, sent) == ("SUCCESS", [])
    assert stored(app, "stopped-1")[1] == {
        "stopped": True, "claim": "task:stopped", "reason": "wrong file", "by": "ana",
    }  # fmt: skip
    assert lease("task:stopped") is None


def test_a_run_that_was_stopped_and_comes_again_is_not_stopped(app):
    runs = []

    @app.task(name="again")
    @single_instance
    def again():
        runs.append(1)
        if len(runs) == 1:
            request_stop("task:again")
            current_hold().renew()
        current_hold().checkpoint()
        return "ran"

    assert again.apply().get()["stopped"] is True
    assert again.apply().get() == "ran"


def test_a_task_that_retries_itself_is_not_refused_by_its_own_min_hold(app):
    @app.task(name="tries", bind=True, max_retries=3)
    @single_instance(min_hold=60)
    def tries(self):
        if self.request.retries < 2:
            raise self.retry(countdown=0)
        return "ran"

    assert tries.apply().get() == "ran"
    assert lease("task:tries").state == "resting"


@pytest.mark.parametrize(
    "error, retries, free",
    [(ValueError(), 0, True), (ValueError(), 1, True), (ValueError(), 2, False), (KeyError(), 0, False)],
)
def test_nor_is_one_that_celery_retries_for_it(app, error, retries, free):
    @app.task(name="auto", autoretry_for=(LookupError, ValueError), dont_autoretry_for=(KeyError,), max_retries=2)
    @single_instance(min_hold=60)
    def auto():
        raise error

    state, _, _ = run_as_message(app, auto, retries=retries)

    assert state == ("RETRY" if free else "FAILURE")
    assert (lease("task:auto") is None) is free


@pytest.mark.parametrize("error", [ValueError("no luck"), SystemExit(1), KeyboardInterrupt()])
def test_whatever_ends_the_body_the_claim_is_free(app, error):
    @app.task(name="ends")
    @single_instance
    def ends():
        raise error

    with pytest.raises(type(error)):
        ends.apply(throw=True)
    assert lease("task:ends") is None


# Messages that come twice.


def counting(app, **how):
    runs = []

    @app.task(name="counted", bind=True)
    @single_instance(**how)
    def counted(self, end=None):
        runs.append(self.request.id)
        if end == "retry":
            raise self.retry(countdown=0)
        if end is not None:
            raise {"killed": SystemExit, "failed": ValueError}[end]
        return "ran"

    return counted, runs


def test_a_message_that_comes_again_after_its_run_has_ended_is_acknowledged_and_not_run(app):
    counted, runs = counting(app)

    assert run_as_message(app, counted, task_id="one")[0] == "SUCCESS"
    assert run_as_message(app, counted, task_id="one", redelivered=True)[0] == "IGNORED"
    assert run_as_message(app, counted, "failed", task_id="two")[0] == "FAILURE"
    assert run_as_message(app, counted, "failed", task_id="two", redelivered=True)[0] == "IGNORED"

    assert runs == ["one", "two"]
    assert stored(app, "one") == ("SUCCESS", "ran")
    assert lease("task:counted") is None


def test_a_task_that_is_sent_twice_on_purpose_with_one_id_runs_twice(app):
    counted, runs = counting(app)

    for _ in range(2):
        assert run_as_message(app, counted, task_id="one")[0] == "SUCCESS"

    assert runs == ["one", "one"]


def test_the_copy_that_its_first_worker_still_had_in_line_is_not_run_either(app):
    counted, runs = counting(app)
    tag = uuid.uuid4().hex

    assert run_as_message(app, counted, task_id="one", redelivered=True, tag=tag)[0] == "SUCCESS"
    assert run_as_message(app, counted, task_id="one", tag=tag)[0] == "IGNORED"

    assert runs == ["one"]


def test_a_message_whose_run_was_killed_is_run_again(app):
    counted, runs = counting(app)

    with pytest.raises(SystemExit):
        run_as_message(app, counted, "killed", task_id="one")
    assert run_as_message(app, counted, task_id="one", redelivered=True)[0] == "SUCCESS"

    assert runs == ["one", "one"]


def test_a_retry_has_a_mark_of_its_own(app):
    counted, runs = counting(app)

    assert run_as_message(app, counted, "retry", task_id="one")[0] == "RETRY"
    assert run_as_message(app, counted, task_id="one", retries=1, redelivered=True)[0] == "SUCCESS"
    assert run_as_message(app, counted, task_id="one", redelivered=True)[0] == "IGNORED"

    assert runs == ["one", "one"]


@pytest.mark.parametrize("policy", ["skip", "retry", "fail"])
def test_a_message_that_comes_again_while_another_holds_waits_whatever_the_policy(app, policy):
    counted, runs = counting(app, on_refused=policy)
    task_id = uuid.uuid4().hex

    with Held("task:counted"):
        state, _, sent = run_as_message(app, counted, task_id=task_id, redelivered=True)

    assert state == "IGNORED"  # no result is touched
    (again,) = sent
    assert again["id"] == task_id and again[AGAIN] == ["twice", 1, 0]
    assert stored(app, task_id)[0] == "PENDING"
    # What was sent again is not marked by the broker, and is known all the same.
    with Held("task:counted"):
        state, _, sent = run_as_message(app, counted, task_id=task_id, headers={AGAIN: ["twice", 1, 0]})
    assert state == "IGNORED" and sent[0][AGAIN] == ["twice", 2, 0]
    assert run_as_message(app, counted, task_id=task_id, headers={AGAIN: ["twice", 2, 0]})[0] == "SUCCESS"
    assert runs == [task_id]


@pytest.mark.parametrize("policy", ["skip", "retry", "fail"])
def test_a_message_that_comes_again_while_its_name_is_kept_stopped_waits_for_the_operator(app, policy, caplog):
    counted, runs = counting(app, on_refused=policy)
    task_id = uuid.uuid4().hex
    request_stop("task:counted", keep=True, reason="bad feed")

    with caplog.at_level(logging.INFO, logger="django_claims.contrib.celery"):
        state, _, sent = run_as_message(app, counted, task_id=task_id, redelivered=True)

    assert (state, sent[0]["id"], sent[0][AGAIN]) == ("IGNORED", task_id, ["twice", 1, 0])
    (record,) = caplog.records
    assert "bad feed" in record.getMessage() and about(record) == ("task:counted", "default", None, None)
    assert clear_stop("task:counted")
    assert run_as_message(app, counted, task_id=task_id, headers={AGAIN: ["twice", 1, 0]})[0] == "SUCCESS"
    assert runs == [task_id]


def test_a_message_that_comes_again_after_its_run_has_ended_is_done_with_while_its_name_is_kept_stopped_too(app):
    counted, runs = counting(app)
    assert run_as_message(app, counted, task_id="one")[0] == "SUCCESS"
    request_stop("task:counted", keep=True)

    state, _, sent = run_as_message(app, counted, task_id="one", redelivered=True)

    assert (state, sent, runs) == ("IGNORED", [], ["one"])
    assert clear_stop("task:counted")


def test_a_twin_of_the_run_that_holds_waits_though_nobody_says_that_it_came_twice(app):
    counted, _ = counting(app)
    hold = run_in_thread(lambda: django_claims.acquiring.Acquiring(claim("task:counted"), 0.0, task_id="one").acquire())

    state, _, sent = run_as_message(app, counted, task_id="one")

    assert state == "IGNORED" and sent[0][AGAIN][0] == "twice"
    hold.release()


def test_with_a_store_that_gives_no_answer_what_came_twice_waits_and_else_the_policy_says(app):
    outcomes = {}
    for policy in ("skip", "retry", "fail"):
        app.tasks.pop("counted", None)
        counted, runs = counting(app, on_refused=policy)
        faults.fail("acquire")
        again = run_as_message(app, counted, redelivered=True)
        first = run_as_message(app, counted)
        faults.clear()
        outcomes[policy] = (again[0], len(again[2]), first[0], len(first[2]), runs)

    assert outcomes == {
        "skip": ("IGNORED", 1, "FAILURE", 0, []),
        "retry": ("IGNORED", 1, "RETRY", 1, []),
        "fail": ("IGNORED", 1, "FAILURE", 0, []),
    }


def test_a_mark_that_cannot_be_left_hides_nothing(app, caplog):
    counted, runs = counting(app)
    task_id = "unmarked"

    def broken(real, requests):
        if requests[0].name.startswith(MARK):
            raise django_claims.BackendUnavailable("default", "gone")
        return real(requests)

    faults.on("acquire", broken)
    state, _, _ = run_as_message(app, counted, task_id=task_id)

    assert state == "SUCCESS" and runs == [task_id]
    assert "No mark could be left" in caplog.text


def test_with_claims_off_tasks_run_and_nothing_is_asked(app, settings):
    settings.CLAIMS = None
    counted, _ = counting(app)

    assert run_as_message(app, counted, task_id="one")[0] == "SUCCESS"
    assert run_as_message(app, counted, task_id="one", redelivered=True)[0] == "SUCCESS"
    assert counted.apply().get() == "ran"


# Checks.


def ids(app, **how):
    return [problem.id for problem in problems(app, **how)]


def test_late_acks_with_skip_are_warned_of(app):
    @app.task(acks_late=True)
    @single_instance
    def skipping():
        pass

    @app.task(acks_late=True)
    @single_instance(on_refused="retry")
    def waiting():
        pass

    (problem,) = problems(app)
    assert (problem.id, problem.is_error) == ("W150", False)
    assert "skipping" in problem.message and "on_refused='retry'" in problem.hint
    (message,) = [m for m in check_tasks(None) if m.id == "django_claims.W150"]
    assert message.hint


@pytest.mark.parametrize("ttl, found", [(59, []), (60, ["W151"]), (61, ["W151"])])
def test_a_ttl_at_or_over_the_visibility_timeout_is_warned_of(app, ttl, found):
    app.conf.broker_transport_options = {"visibility_timeout": 60}

    @app.task
    @single_instance(ttl=ttl)
    def task():
        pass

    assert ids(app) == found


def test_the_visibility_timeout_is_an_hour_on_redis_and_not_known_elsewhere(app):
    assert visibility_timeout(app) is None
    app.conf.broker_url = "redis://x"
    assert visibility_timeout(app) == 3600


@pytest.mark.parametrize("pool, found", [("prefork", []), ("threads", ["W152"]), ("solo", ["W152"])])
def test_a_hard_time_limit_in_a_pool_that_keeps_none_is_warned_of(app, pool, found):
    @app.task(time_limit=5)
    @single_instance
    def task():
        pass

    app.conf.worker_pool = pool
    assert ids(app) == found
    app.conf.worker_pool = "prefork"
    assert ids(app, pool=f"celery.concurrency.{pool.rstrip('s') if pool == 'threads' else pool}") == found


def test_interrupt_outside_the_main_thread_and_the_wrong_import_are_errors(app):
    @app.task(name="a")
    @single_instance(on_lost="interrupt")
    def task():
        pass

    @app.task(name="b")
    @django_claims.single_instance
    def wrong():
        pass

    app.conf.worker_pool = "threads"
    assert ids(app) == ["E151", "E150"]
    app.conf.worker_pool = "prefork"
    assert ids(app) == ["E150"]
