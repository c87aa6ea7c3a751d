"""What a guarded command does on the command line, and when code calls it."""

import contextlib
import importlib.util
import json
import os
import re
import signal
import time

import pytest

from django_claims.clock import clock
from tests.conftest import missing
from tests.helpers import wait_until
from tests.processes.children import Worker, end
from tests.processes.conftest import Store, redis_store, sqlite_if_long

NAME = "command:night.report"


@pytest.fixture(scope="module")
def busy(redis_server, tmp_path_factory):
    """A store where other runs of some commands go on, for tests that only meet a refusal: (store, their process)."""
    directory = tmp_path_factory.mktemp("busy")
    store = redis_store(redis_server.url, directory)
    holder = Worker(env=store.env, cwd=directory)
    try:
        holder.fence = holder.ask("acquire", NAME, ttl=60)
        for command in ("coded", "skipping", "patient"):
            holder.ask("acquire", f"command:night.{command}", ttl=60)
        yield store, holder
    finally:
        holder.close()


def refusal(holder, name=NAME):
    """What the first line of a refusal begins with."""
    return (
        f"Claim '{name}' is held by {holder.ask('lease', name)['holder']['host']} (pid {holder.pid}, worker.py) since "
    )


# Names and refusals.


def test_the_claim_is_named_after_the_app_label_and_the_command(manage, store):
    done = manage(store, "report", "--do", "describe").done()

    told = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert told["name"] == NAME
    assert told["fence"] > 0
    assert (told["held"], told["lost"], told["renewed"]) == (True, False, True)
    assert told["tracked"] == ["a", "b"]
    assert [option for option in told["options"] if "claim" in option] == [], "the body has its own options only"


def test_a_refused_command_exits_75_and_says_who_has_it_how_to_look_and_how_to_break(manage, worker, store):
    holder = worker(store)
    fence = holder.ask("acquire", NAME, ttl=60)

    done = manage(store, "report", "--do", "line").done()

    held, look, break_ = done.err.splitlines()
    assert done.code == 75
    assert done.out == ""
    assert held.startswith(f"AlreadyRunning: {refusal(holder)}")
    assert held.endswith(" s left.")
    assert "last heartbeat" in held
    assert look.split() == ["Look", "at", "it:", "manage.py", "claims", "show", NAME]
    assert break_.split() == ["Break", "it:", "manage.py", "claims", "release", NAME, "--fence", str(fence)]
    assert holder.ask("verify", NAME) is True


@pytest.mark.parametrize(
    ("command", "arguments", "settings", "code"),
    [
        ("report", ["--claim-exit-code", "0"], {}, 0),
        ("report", ["--claim-exit-code", "4"], {"CLAIMS_EXIT_CODE": 6}, 4),
        ("report", [], {"CLAIMS_EXIT_CODE": 6}, 6),
        ("coded", [], {"CLAIMS_EXIT_CODE": 6}, 9),
        pytest.param("coded", ["--claim-exit-code", "4"], {"CLAIMS_EXIT_CODE": 6}, 4, marks=pytest.mark.long),
    ],
)
def test_the_exit_code_of_a_refusal_can_be_chosen(manage, busy, command, arguments, settings, code):
    """By the command line, else by the decorator, else by the setting."""
    store, holder = busy

    done = manage(store.with_settings(**settings), command, *arguments).done()

    assert done.code == code
    assert refusal(holder, f"command:night.{command}") in done.err
    assert done.out == ""


def test_verbosity_0_makes_a_refusal_silent(manage, busy):
    store, _ = busy
    done = manage(store, "report", "-v", "0").done()

    assert (done.code, done.out, done.err) == (75, "", "")


@pytest.mark.parametrize("arguments", [[], ["--claim-exit-code", "9"]])
def test_on_refused_skip_is_silent_and_exits_0(manage, busy, arguments):
    done = manage(busy[0], "skipping", *arguments).done()

    assert (done.code, done.out, done.err) == (0, "", "")


def test_on_refused_skip_says_so_when_asked_for_more_words(manage, busy):
    store, holder = busy
    done = manage(store, "skipping", "-v", "2").done()

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Skipped. {refusal(holder, 'command:night.skipping')}")


def test_a_refusal_differs_from_failures_of_the_command(manage, redis):
    failed = manage(redis, "report", "--do", "fail")
    mistyped = manage(redis, "report", "--nonsense")

    assert failed.done().code == 1
    assert failed.done().err.splitlines()[-1] == "ValueError: the body's own error"
    assert mistyped.done().code == 2


def test_claim_timeout_waits_and_says_for_whom_and_how_long(manage, busy):
    store, holder = busy
    done = manage(store, "report", "--claim-timeout", "0.7").done()

    waiting, refused = done.err.splitlines()[:2]
    assert done.code == 75
    assert waiting.startswith(f"Waiting up to 0.7 s: {refusal(holder)}")
    assert refused.startswith(f"AlreadyRunning: {refusal(holder)}")
    assert re.search(r" Waited (0\.[789]|[1-9]\.\d) s\.$", refused)


def test_verbosity_0_waits_in_silence(manage, busy):
    done = manage(busy[0], "report", "--claim-timeout", "0.2", "-v", "0").done()

    assert (done.code, done.out, done.err) == (75, "", "")


def test_the_decorators_timeout_waits_unless_the_command_line_says_otherwise(manage, busy):
    store, _ = busy
    patient, hasty = manage(store, "patient"), manage(store, "patient", "--claim-timeout", "0")

    assert " Waited 1." in patient.done().err
    assert "Waited" not in hasty.done().err


@sqlite_if_long
def test_claim_timeout_lets_it_run_when_the_other_ends(manage, worker, store):
    holder = worker(store)
    holder.ask("acquire", NAME, ttl=60)
    command = manage(store, "report", "--claim-timeout", "50")
    wait_until(lambda: command.errors, 30)

    assert holder.ask("release", NAME) == "released"
    done = command.done()

    assert (done.code, done.out.splitlines()) == (0, ["ready"])
    waiting, waited = done.err.splitlines()
    assert waiting.startswith("Waiting up to 50 s: Claim")
    assert re.fullmatch(rf"Waited \d+\.\d s for claim '{NAME}'\.", waited)


@sqlite_if_long
def test_a_standby_waits_without_limit_and_takes_over_when_the_holder_dies(manage, worker, store):
    active = manage(store, "standby", "--do", "wait")
    active.says("ready")
    standby = manage(store, "standby", "--do", "describe")
    wait_until(lambda: standby.errors, 30)
    fence = worker(store).ask("lease", "command:night.standby")["fence"]

    active.send(signal.SIGKILL)
    done = standby.done()

    assert done.code == 0
    assert json.loads(done.out.splitlines()[-1])["fence"] > fence
    waiting, taking_over, waited = done.err.splitlines()
    assert waiting.startswith("Waiting without limit: Claim 'command:night.standby' is held by")
    assert "dead holder" in taking_over
    assert waited.startswith("Waited ")


def test_a_standby_takes_over_from_a_holder_that_ends_well(manage, worker, redis):
    holder = worker(redis)
    holder.ask("acquire", NAME, ttl=60)
    standby = manage(redis, "report", "--claim-timeout", "forever", "--do", "line")
    wait_until(lambda: standby.errors, 30)

    holder.ask("release", NAME)

    assert standby.done().code == 0
    assert "Waiting without limit" in standby.errors[0]


def test_a_standby_that_is_kept_stopped_goes_home(manage, worker, redis):
    operator = worker(redis)
    operator.ask("acquire", "command:night.standby", ttl=60)
    standby = manage(redis, "standby")
    wait_until(lambda: standby.errors, 30)

    operator.ask("request_stop", "command:night.standby", keep=True, by="alice")
    done = standby.done()

    assert done.code == 75
    assert "KeptStopped: Claim 'command:night.standby' is kept stopped by alice" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--claim-timeout", "-1"],
        ["--claim-timeout", "nan"],
        ["--claim-timeout", "soon"],
        ["--claim-exit-code", "256"],
        ["--claim-exit-code", "-1"],
    ],
)
def test_what_cannot_be_an_option_is_refused_by_its_name(manage, redis, arguments):
    done = manage(redis, "report", *arguments).done()

    assert done.code == 2
    assert f"argument {arguments[0]}: " in done.err
    assert arguments[1] in done.err
    assert "Traceback" not in done.err


def test_no_claim_warns_and_runs_beside(manage, busy):
    store, holder = busy
    done = manage(store, "report", "--no-claim", "--do", "describe").done()

    told = json.loads(done.out)
    assert done.code == 0
    assert f"Running without claim '{NAME}'" in done.err
    assert (told["name"], told["held"], told["lost"], told["renewed"]) == (NAME, True, False, True)
    assert told["tracked"] == ["a", "b"]
    assert holder.ask("verify", NAME) is True


@sqlite_if_long
def test_a_command_that_is_kept_stopped_exits_75_and_says_how_to_let_it_run(manage, worker, store):
    worker(store).ask("request_stop", NAME, keep=True, by="alice", reason="bad data")

    done = manage(store, "report").done()

    assert (done.code, done.out) == (75, "")
    assert f"Claim '{NAME}' is kept stopped by alice (bad data)." in done.err
    assert f"manage.py claims clear-stop {NAME}" in done.err
    assert "Traceback" not in done.err


def test_a_waiting_command_that_is_kept_stopped_meanwhile_goes_home(manage, worker, redis):
    holder = worker(redis)
    holder.ask("acquire", NAME, ttl=60)
    command = manage(redis.with_backend("Telling"), "report", "--claim-timeout", "50")
    command.says("waiting")

    holder.ask("request_stop", NAME, keep=True, by="alice")
    done = command.done()

    assert done.code == 75
    assert "is kept stopped by alice" in done.err


# Keys.


def test_a_key_gives_each_value_of_an_option_a_claim_of_its_own(manage, redis, gate):
    north = manage(redis, "keyed", "--region", "north", "--until", str(gate))
    north.says("ready")
    again, south = manage(redis, "keyed", "--region", "north"), manage(redis, "keyed", "--region", "south")

    refused = again.done()
    assert refused.code == 75
    assert "Claim \"command:night.keyed:'north'\" is held by" in refused.err
    assert south.done().code == 0

    gate.touch()
    assert north.done().code == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["keyed_by_two", "north"], "command:night.keyed_by_two:'north',1"),
        (["keyed_by_two", "north", "--day", "2"], "command:night.keyed_by_two:'north',2"),
        (["keyed_by_call", "--region", "NORTH"], "command:night.keyed_by_call:'north'"),
    ],
)
def test_a_key_may_be_several_options_or_a_callable(manage, redis, arguments, name):
    done = manage(redis, *arguments, "--do", "describe").done()

    assert json.loads(done.out)["name"] == name


# Subclasses, and what is kept.


@pytest.mark.parametrize("command", ["sub_plain", "sub_own"])
def test_a_subclass_of_a_guarded_command_is_guarded_under_its_own_name(manage, worker, redis, command):
    holder = worker(redis)
    done = manage(redis, command, "--do", "describe").done()
    assert json.loads(done.out)["name"] == f"command:night.{command}"

    holder.ask("acquire", f"command:night.{command}", ttl=60)
    refused = manage(redis, command).done()

    assert refused.code == 75
    assert refused.out == ""


def test_a_subclass_that_goes_on_to_the_guarded_handle_has_one_hold(manage, redis):
    done = manage(redis, "sub_super", "--do", "describe").done()

    first, told, last = done.out.splitlines()
    name, fence = first.split()
    assert (done.code, done.err) == (0, "")
    assert name == "command:night.sub_super"
    assert (json.loads(told)["name"], json.loads(told)["fence"]) == (name, int(fence))
    assert last == "still held True"


@pytest.mark.parametrize(
    "command",
    [
        "sub_decorated",
        "mixed",
        pytest.param("sub_mixed", marks=pytest.mark.long),
        pytest.param("mixed_sub", marks=pytest.mark.long),
    ],
)
def test_whatever_handle_a_class_ends_up_with_is_guarded_once(manage, worker, redis, command):
    """Out of a mixin before the guarded class, decorated anew, or by SingleInstanceMixin and a class made from it."""
    name = {"sub_decorated": "again", "mixed": "mixed:'north'", "mixed_sub": "command:night.mixed_sub:'north'"}.get(
        command, f"command:night.{command}"
    )
    holder = worker(redis)
    told = json.loads(manage(redis, command, "--do", "describe").done().out.splitlines()[-1])
    assert told["name"] == name

    holder.ask("acquire", name, ttl=60)
    refused = manage(redis, command).done()

    assert refused.out == ""
    assert refused.code == (4 if command.startswith("mixed") else 75)


def test_a_command_keeps_an_option_of_its_own_that_is_called_as_ours(manage, busy):
    store, _ = busy
    done = manage(store, "own_option", "--claim-timeout", "mine", "--do", "describe", "--no-claim").done()

    assert done.code == 0
    assert "claim_timeout" in json.loads(done.out)["options"]
    assert done.out.count("mine") == 0
    assert "--claim-exit-code" in manage(store, "own_option", "--help").done().out


def test_the_labels_of_a_label_command_can_be_the_key(manage, redis):
    done = manage(redis, "labelled", "north", "south").done()

    name = "command:night.labelled:tuple('north','south')"
    assert (done.code, done.out.splitlines()) == (0, [f"{name} north", f"{name} south"])


@pytest.mark.parametrize("command", ["report", "sub_own", "sub_super"])
def test_help_keeps_the_text_and_the_options_and_adds_ours_once(manage, redis, command):
    done = manage(redis, command, "--help").done()

    assert done.code == 0
    assert "Write the nightly report." in done.out
    assert ("--more" in done.out) is (command == "sub_own")
    for option in ("--do {", "--claim-timeout SECONDS", "--claim-exit-code N", "--no-claim "):
        assert done.out.count(f"\n  {option}") == 1, option


def test_what_the_command_gives_is_printed(manage, redis):
    done = manage(redis, "report", "--do", "give").done()

    assert (done.code, done.out, done.err) == (0, "this is what it gives", "")


def test_the_bodys_own_exit_status_stays(manage, worker, redis):
    done = manage(redis, "report", "--do", "leave").done()

    assert (done.code, done.err) == (3, "")
    assert worker(redis).ask("lease", NAME) is None


@sqlite_if_long
def test_the_bodys_own_error_stays_and_the_claim_is_free(manage, worker, store):
    done = manage(store, "report", "--do", "fail").done()

    assert done.code == 1
    assert done.err.count("Traceback (most recent call last)") == 1
    assert done.err.splitlines()[-1] == "ValueError: the body's own error"
    assert worker(store).ask("lease", NAME) is None


# Commands whose options are not argparse's.


def installed(module):
    if importlib.util.find_spec(module) is None:
        missing(f"{module} is not installed")


@pytest.fixture(params=["typed", "clicked"])
def foreign(request):
    """A command of django-typer or django-click."""
    installed({"typed": "django_typer", "clicked": "djclick"}[request.param])
    return request.param


def test_a_command_of_another_kind_is_guarded_by_name_and_key(manage, worker, redis, foreign):
    name = f"command:night.{foreign}:'north'"
    holder = worker(redis)
    done = manage(redis, foreign, "north").done()
    assert (done.code, done.out.splitlines()) == (0, [f"north {name} True"])
    assert done.err == ""
    fence = holder.ask("acquire", name, ttl=60)

    refused = manage(redis, foreign, "north").done()
    waited = manage(redis, foreign, "north", "--claim-timeout", "0.6", "--claim-exit-code=9").done()
    beside = manage(redis, foreign, "--no-claim", "north").done()

    assert (refused.code, refused.out) == (75, "")
    assert f'AlreadyRunning: Claim "{name}" is held by' in refused.err
    assert f"--fence {fence}" in refused.err
    assert "Traceback" not in refused.err
    assert waited.code == 9
    assert "Waited " in waited.err
    assert (beside.code, beside.out.splitlines()) == (0, [f"north {name} True"])
    assert manage(redis, foreign, "south").done().code == 0
    assert manage(redis, foreign, "north", "-v" if foreign == "clicked" else "--verbosity", "0").done().err == ""


def test_a_command_of_another_kind_that_is_called_by_code_raises(worker, redis, foreign):
    name = f"command:night.{foreign}:'north'"
    caller, holder = worker(redis), worker(redis)
    assert "raised" not in caller.ask("call", foreign, "north")
    holder.ask("acquire", name, ttl=60)

    told = caller.ask("call", foreign, "north", claim_exit_code=9)

    assert told["raised"][:3] == ["AlreadyRunning", "CommandRefused", "CommandError"]
    assert told["returncode"] == 9
    assert "raised" not in caller.ask("call", foreign, "north", no_claim=True)


def test_a_command_of_another_kind_is_ended_by_a_signal_as_any_other(manage, worker, redis, foreign):
    command = manage(redis, foreign, "wait")
    command.says("ready")

    command.send(signal.SIGTERM)
    done = command.done()

    assert done.code == 143
    assert done.out.splitlines() == ["ready", "finally"]
    assert worker(redis).ask("lease", f"command:night.{foreign}:'wait'") is None


def test_a_mistyped_option_of_ours_is_told_by_a_command_of_another_kind(manage, redis, foreign):
    done = manage(redis, foreign, "north", "--claim-timeout", "soon").done()

    assert done.code == 2
    assert "argument --claim-timeout: invalid seconds value: 'soon'" in done.err


# The autoreloader.


@pytest.fixture
def watched(tmp_path):
    """A module that the command imports."""
    (tmp_path / "watched.py").touch()
    return tmp_path / "watched.py"


def changed_until_it_says(command, watched):
    """Change the file once a second until there is a line: one that is changed before the first look is no news."""
    for seconds in range(10, 40):
        os.utime(watched, (time.time() + seconds, time.time() + seconds))
        with contextlib.suppress(AssertionError):
            return command.line(1.0)
    return command.line()


def test_the_parent_of_the_autoreloader_does_not_take_the_hold(manage, worker, redis, watched):
    looker = worker(redis)
    command = manage(redis, "reloaded")
    first = int(command.line().removeprefix("serving "))
    try:
        lease = looker.ask("lease", "command:night.reloaded")
        assert first != command.pid
        assert lease["holder"]["pid"] == first

        second = int(changed_until_it_says(command, watched).removeprefix("serving "))
        try:
            assert second not in (first, command.pid)
            assert looker.ask("lease", "command:night.reloaded")["holder"]["pid"] == second
        finally:
            end(second)
    finally:
        end(first)
    command.done()


def test_without_the_autoreloader_the_process_itself_holds(manage, worker, redis, watched):
    command = manage(redis, "reloaded", "--noreload")

    assert command.line() == f"serving {command.pid}"
    assert worker(redis).ask("lease", "command:night.reloaded")["holder"]["pid"] == command.pid


# Called by code.


def test_call_command_returns_what_the_command_gives(worker, redis):
    told = worker(redis).ask("call", "report", do="give")

    assert told == {"gave": "this is what it gives", "out": "this is what it gives\n", "err": "", "elsewhere": ""}


@pytest.mark.parametrize("options", [{}, {"verbosity": 0}, {"claim_exit_code": 9}])
def test_call_command_raises_already_running_and_never_exits(worker, busy, options):
    store, holder = busy
    told = worker(store).ask("call", "report", **options)

    assert told["raised"][0] == "AlreadyRunning"
    assert {"CommandRefused", "CommandError"} <= set(told["raised"])
    assert "SystemExit" not in told["raised"]
    assert told["returncode"] == options.get("claim_exit_code", 75)
    assert (told["lease"]["fence"], told["lease"]["holder"]["pid"]) == (holder.fence, holder.pid)
    assert told["text"].startswith(refusal(holder))
    assert (told["out"], told["err"], told["elsewhere"]) == ("", "", "")


def test_call_command_raises_kept_stopped(worker, redis):
    caller = worker(redis)
    caller.ask("request_stop", NAME, keep=True, by="alice")

    told = caller.ask("call", "report")

    assert told["raised"][:3] == ["KeptStopped", "CommandRefused", "CommandError"]
    assert told["returncode"] == 75


def test_call_command_of_a_skipping_command_gives_none(worker, busy):
    assert worker(busy[0]).ask("call", "skipping") == {"gave": None, "out": "", "err": "", "elsewhere": ""}


def test_the_text_of_a_called_command_goes_to_its_own_streams(worker, busy):
    store, _ = busy
    told = worker(store).ask("call", "report", no_claim=True, do="give")

    assert told["gave"] == "this is what it gives"
    assert told["out"] == "this is what it gives\n"
    assert f"Running without claim '{NAME}'" in told["err"]
    assert told["elsewhere"] == ""


def test_a_called_command_lets_the_bodys_own_exit_pass(worker, redis):
    caller = worker(redis)
    told = caller.ask("call", "report", do="leave")

    assert told["raised"][0] == "SystemExit"
    assert caller.ask("lease", NAME) is None


def test_a_nested_command_of_the_same_name_is_refused_at_once_even_with_a_timeout(manage, redis):
    done = manage(redis, "twin_a", "--do", "nested", "--call", "twin_b").done()

    told = json.loads(done.out)
    assert told["outcome"].startswith("refused Claim 'twins' is already held by this very thread or task.")
    assert told["took"] < 2
    assert told["held"] is True, "the outer one has lost nothing"
    assert done.code == 0


def test_a_nested_command_of_another_name_runs(manage, redis):
    done = manage(redis, "twin_a", "--do", "nested", "--call", "report").done()

    ready, told = done.out.splitlines()
    assert ready == "ready"
    assert (json.loads(told)["outcome"], json.loads(told)["held"]) == ("ran", True)
    assert done.code == 0


def test_a_command_runs_in_a_thread_that_is_not_the_main_one(manage, redis):
    done = manage(redis, "twin_a", "--do", "in_thread", "--call", "report").done()

    assert (done.code, done.out.splitlines(), done.err) == (0, ["ready", "joined"], "")


# Peculiar platforms and settings.


def test_a_platform_without_the_unix_signals_and_fork_runs_guarded_commands(manage, busy):
    store, _ = busy
    windows = store.with_env(JOBS_HIDE="SIGHUP,SIGUSR1,SIGUSR2,SIGTSTP,SIGRTMAX,fork,register_at_fork")

    assert manage(windows, "report").done().code == 75
    ran = manage(windows, "twin_a", "--do", "describe").done()

    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["held"] is True


def test_with_nothing_set_a_command_refuses_to_run_and_says_what_to_set(manage, tmp_path):
    done = manage(Store("implicit", {"JOBS_STORE": "implicit", "JOBS_DIR": str(tmp_path)}), "report").done()

    assert done.code == 1
    assert "ready" not in done.out
    assert "InvalidClaimsSetting: " in done.err
    assert "CLAIMS = {" in done.err
    assert "django_claims.backends.redis.RedisBackend" in done.err
    assert "CLAIMS = None" in done.err


def test_with_nothing_set_a_command_runs_without_its_claim_if_asked_to(manage, tmp_path):
    store = Store("implicit", {"JOBS_STORE": "implicit", "JOBS_DIR": str(tmp_path)})

    done = manage(store, "report", "--no-claim").done()

    assert (done.code, done.out) == (0, "ready")


def test_with_nothing_set_code_may_call_a_command(worker, tmp_path):
    """A test suite does; the check warns."""
    told = worker(Store("implicit", {"JOBS_STORE": "implicit", "JOBS_DIR": str(tmp_path)})).ask(
        "call", "report", do="give"
    )

    assert told["gave"] == "this is what it gives"


def test_with_claims_off_a_command_runs(manage, tmp_path, gate):
    off = Store("off", {"JOBS_STORE": "off", "JOBS_DIR": str(tmp_path)})
    beside = manage(off, "report", "--until", str(gate))
    beside.says("ready")

    done = manage(off, "report", "--do", "describe").done()

    told = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (told["name"], told["held"], told["lost"], told["renewed"]) == (NAME, True, False, True)
    gate.touch()
    assert beside.done().code == 0


def test_a_store_that_cannot_be_reached_is_exit_69(manage, tmp_path, closed_port):
    done = manage(redis_store(f"redis://127.0.0.1:{closed_port}/0", tmp_path), "report").done()

    assert done.code == 69
    assert done.out == ""
    assert "The store of claims alias 'default' gave no answer" in done.err
    assert "Traceback" not in done.err


# Stopped by an operator.


@pytest.mark.parametrize("body", ["look", "track", pytest.param("checkpoints", marks=pytest.mark.long)])
def test_a_command_that_an_operator_stopped_exits_0_and_says_so(manage, worker, redis, body):
    operator = worker(redis)
    command = manage(redis, "report", "--do", body)
    command.says("ready")

    flag = operator.ask("request_stop", NAME, by="alice", reason="bad data")
    done = command.done()

    assert flag["fence"] > 0
    assert done.code == 0
    assert f"Claim '{NAME}' was asked to stop by alice: bad data." in done.out
    assert "finally" in done.out
    assert done.err == ""
    assert operator.ask("lease", NAME) is None


def test_a_command_that_an_operator_stopped_runs_the_next_time(manage, worker, redis):
    operator = worker(redis)
    command = manage(redis, "report", "--do", "polite")
    command.says("ready")
    operator.ask("request_stop", NAME)

    assert command.done().out.splitlines() == ["ready", "asked True"]
    assert command.done().code == 0
    assert manage(redis, "report").done().code == 0


# Lost while running.


def test_a_claim_that_the_store_forgot_is_raised_in_the_middle_of_a_sleep(manage, own_redis):
    store, server = own_redis
    command = manage(store.with_claims(TTL=3), "report", "--do", "wait")
    command.says("ready")

    with server.client() as client:
        client.flushdb()
    flushed_at = clock()
    done = command.done()

    assert done.code == 70
    assert done.out.splitlines() == ["ready", "finally"]
    assert f"Claim '{NAME}' was lost: the store has forgotten it" in done.err
    assert "Traceback" not in done.err
    assert done.at - flushed_at < 1 + 1.5, "a heartbeat, and what the exit takes"


def test_a_claim_that_an_operator_forced_is_raised_in_the_middle_of_a_sleep(manage, worker, store):
    operator = worker(store)
    command = manage(store.with_claims(TTL=60), "report", "--do", "wait")
    command.says("ready")

    assert operator.ask("force_release", NAME) is True
    done = command.done(10)

    assert done.code == 70
    assert done.out.splitlines() == ["ready", "finally"]
    assert f"Claim '{NAME}' was lost: an operator force-released it" in done.err
    assert "Traceback" not in done.err
    assert operator.ask("lease", NAME) is None


@pytest.mark.long
def test_the_end_of_a_lost_run_leaves_the_next_holders_lease(manage, worker, redis):
    operator = worker(redis)
    command = manage(redis.with_claims(TTL=60), "report", "--do", "wait")
    command.says("ready")

    operator.ask("force_release", NAME)
    fence = operator.ask("acquire", NAME, ttl=60)
    assert command.done(10).code == 70

    assert operator.ask("lease", NAME)["fence"] == fence
    assert operator.ask("verify", NAME) is True


@pytest.mark.parametrize("body", ["stuck", pytest.param("deaf", marks=pytest.mark.long)])
def test_a_main_thread_that_goes_on_after_the_loss_is_ended_hard_before_the_ttl_is_over(manage, worker, redis, body):
    """Stuck where no exception gets to it, or deaf to exceptions: TTL - renew deadline is all it has."""
    operator = worker(redis)
    command = manage(redis.with_claims(TTL=6), "report", "--do", body)
    command.says("ready")

    operator.ask("force_release", NAME)
    forced_at = clock()
    done = command.done(15)

    assert done.code == 70
    assert "Ended hard: its claim was lost and it went on" in done.err
    # Told within about a second; then 2 s, of which a tenth is left over.
    assert done.at - forced_at < 2 + 2 + 0.7


def test_code_that_called_a_command_is_not_interrupted_by_a_loss(worker, redis):
    """Only on the command line is the main thread ours to interrupt."""
    operator, caller = worker(redis), worker(redis)
    caller.begin("call", "report", do="polite")
    wait_until(lambda: operator.ask("lease", NAME), 20)

    operator.ask("force_release", NAME)
    told = caller.answer()

    assert "raised" not in told
    assert told["elsewhere"] == "ready\nasked False\n"
