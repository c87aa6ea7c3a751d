"""`claims list` and `claims show`, from code."""

import json

import pytest

from django_claims import BackendUnavailable, Progress, claim, claim_backends, request_stop
from tests.helpers import faults


@pytest.fixture
def held(in_memory):
    """Take claims that last for the test: `held("a", label="x")`."""
    holds = []

    def take(name, **recipe):
        holds.append(claim(name, **recipe).acquire())
        return holds[-1]

    yield take
    for hold in holds:
        hold.release()


def columns(line):
    return [cell for cell in line.split("  ") if cell]


# list


def test_a_list_has_the_columns_and_one_line_for_each_claim_in_order_of_name(claims, held):
    held("b", label="worker").checkpoint(3, 12, "rows")
    held("a b")
    claim("c", min_hold=60).acquire().release()

    said = claims("list")

    assert said.code == 0
    assert said.lines[0].split() == ["NAME", "HOLDER", "HELD-FOR", "BEAT", "LEFT", "STATE", "PROGRESS"]
    assert [line.split("  ")[0] for line in said.lines[1:]] == ["'a b'", "b", "c"]
    assert ", worker)" in said.lines[2]
    assert "resting" in said.lines[3]
    assert said.err == ""


def test_a_list_that_is_empty_says_so(claims):
    assert claims("list").out == "No claim is held.\n"
    assert claims("list", match="x*").out == "No claim is held that fits.\n"


def test_a_list_takes_a_glob(claims, held):
    held("import:1")
    held("export:1")

    assert [line.split()[0] for line in claims("list", "--match", "import:*").lines] == ["NAME", "import:1"]


def test_what_a_holder_writes_breaks_no_line(claims, held):
    held("a", label="evil\x1b[2J\u2028label").checkpoint(1, 2, "note\x1b]0;x\x07\u2029<b>&")
    request_stop("a", reason="why\x1b[1m", by="me\u202e", keep=True)

    said = claims("list")

    assert len(said.out.split("\n")) == 6  # head, claim, blank, head, flag, end
    assert all(line.isprintable() for line in said.out.split("\n"))
    assert all(line.isprintable() for line in claims("show", "a").out.split("\n"))


def test_json_is_one_object_a_line_whatever_is_in_it(claims, held):
    hold = held("a\u2028b", label="x")
    request_stop("kept", keep=True, reason="r", by="ann")
    request_stop("a\u2028b", keep=True)

    said = claims("list", "--json")
    lease, flag = map(json.loads, said.out.splitlines())

    assert lease["name"] == "a\u2028b"
    assert lease["fence"] == hold.fence
    assert set(lease) == set(hold.lease.as_dict())
    assert lease["stop_flag"]["keep"] is True
    assert (flag["name"], flag["keep"], flag["reason"], flag["by"]) == ("kept", True, "r", "ann")


def test_json_is_json_also_for_numbers_that_it_has_not(claims, held):
    """A checkpoint refuses them; another version may have written one."""
    hold = held("a")
    hold._progress = hold._unwritten = Progress(done=float("nan"), total=float("inf"))
    hold.renew()

    assert json.loads(claims("list", "--json").out, parse_constant=pytest.fail)["progress"]["done"] is None
    assert "nan of inf" in claims("list").out


def test_kept_stops_are_listed_without_a_run(claims):
    request_stop("nightly", keep=True, reason="broken disk", by="ann", ttl=3600)
    request_stop("other", keep=True)

    said = claims("list", match="n*")

    assert said.lines[-1].split()[0] == "nightly"
    assert "ann" in said.lines[-1]
    assert "broken disk" in said.lines[-1]
    assert "other" not in said.out


def test_a_list_of_many_is_whole(claims, held):
    for number in range(1005):
        held(f"n{number:04}")

    assert [json.loads(line)["name"] for line in claims("list", json=True).lines] == [f"n{n:04}" for n in range(1005)]


def test_a_store_that_may_miss_entries_says_so(claims, in_memory):
    in_memory("tests.cli.stores.ForgetfulBackend")

    assert "cannot list everything" in claims("list").out
    assert "cannot list everything" in claims("list", "--json").err
    assert claims("list", "--json").out == ""


def test_a_store_of_this_process_alone_says_so(claims, in_memory):
    in_memory("django_claims.backends.memory.MemoryBackend")

    assert "cannot be seen" in claims("list").out
    assert "cannot be seen" in claims("show", "x").err


def test_all_aliases_are_listed_unless_one_is_named(claims, settings, held):
    settings.CLAIMS = {**settings.CLAIMS, "other": {"BACKEND": "tests.cli.stores.SharedBackend"}}
    held("mine")
    held("theirs", using="other")

    everything, one = claims("list"), claims("list", "--using", "other")

    assert [line.split()[0] for line in everything.lines if line] == [
        "default:",
        "NAME",
        "mine",
        "other:",
        "NAME",
        "theirs",
    ]
    assert [line.split()[0] for line in one.lines] == ["NAME", "theirs"]
    assert "--using other" in claims("show", "theirs", "--using", "other").out


def test_one_alias_that_does_not_answer_hides_no_other(claims, settings, held):
    settings.CLAIMS = {
        "default": {"BACKEND": "tests.helpers.FlakyBackend"},
        "other": {"BACKEND": "tests.cli.stores.SharedBackend"},
    }
    held("theirs", using="other")

    def down_once(real, **how):
        faults.off("leases")
        raise BackendUnavailable("default", "refused")

    faults.on("leases", down_once)
    said = claims("list")

    assert said.code == 69
    assert "theirs" in said.out
    assert "gave no answer" in said.err


# show


def test_show_says_all_there_is_and_the_ways_out(claims, held):
    hold = held("a 'b'", label="worker")
    hold.checkpoint(30, 120, "rows")
    hold.renew()

    said = claims("show", "a 'b'")
    told = {line[:11].strip(): line[12:] for line in said.lines}

    assert told["Claim"] == "a 'b'"
    assert told["State"] == "held"
    assert ", worker)" in told["Holder"]
    assert told["Fence"] == str(hold.fence)
    assert told["Progress"].startswith("30 of 120 (25 %) rows, told ")
    assert told["Heartbeat"] == "0 s ago, every 60 s"
    assert told["Stop it:"] == "manage.py claims stop \"a 'b'\""
    assert told["Break it:"] == f"manage.py claims release \"a 'b'\" --fence {hold.fence}"


def test_show_tells_of_a_stop_and_whether_it_was_seen(claims, held):
    held("a")
    request_stop("a", reason="too slow", by="ann")

    said = claims("show", "a")

    assert "asked by ann" in said.out
    assert "too slow" in said.out
    assert "Let it run: manage.py claims clear-stop a" in said.lines


def test_show_knows_a_kept_stop_without_a_run(claims):
    request_stop("a", keep=True, reason="why", by="ann")

    said = claims("show", "a")

    assert said.code == 0
    assert "kept_stopped" in said.out
    assert json.loads(claims("show", "a", json=True).out)["keep"] is True


def test_show_gives_the_lease_as_json(claims, held):
    hold = held("a")

    assert json.loads(claims("show", "a", "--json").out)["fence"] == hold.fence


def test_show_of_nobodys_claim_exits_4(claims):
    said = claims("show", "a")

    assert said.code == 4
    assert said.out == ""
    assert "Nobody has claim 'a'" in said.err


def test_what_cannot_be_read_is_shown_and_can_be_released(claims, settings, new_redis):
    server = new_redis()
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": server.url}}
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.redis.RedisBackend"}}
    with server.client() as client:
        client.set(":1:{claims}:lease:job", "\x1bgarbage")

    shown, done = claims("show", "job"), claims("release", "job", "--fence", "0", "--yes")
    claim_backends["default"].close()

    assert "unreadable" in shown.out
    assert "Break it:   manage.py claims release job --fence 0" in shown.lines
    assert done.code == 0


# all verbs


@pytest.mark.parametrize(
    "verb", [["list"], ["show", "a"], ["stop", "a"], ["clear-stop", "a"], ["release", "a", "--fence", "1", "--yes"]]
)
def test_a_store_that_does_not_answer_is_69(claims, verb):
    faults.fail("lease", "leases", "flag", "flags", "set_flag", "clear_flag", "force_release")

    said = claims(*verb)

    assert said.code == 69
    assert "gave no answer" in said.err


@pytest.mark.parametrize(
    "verb",
    [
        ["list", "--using", "nope"],
        ["show", ""],
        ["show", " a"],
        ["stop", "a", "--for", "2h"],
        ["stop", "a", "--keep", "--for", "0"],
        ["run", "a"],
        ["run", "a", "--"],
        ["run", "a", "--ttl", "0", "--", "true"],
        ["release", "a", "--fence", "-1", "--yes"],
    ],
)
def test_wrong_use_is_2(claims, held, verb):
    hold = held("a") if verb[0] != "run" else None

    said = claims(*verb)

    assert said.code == (75 if verb[0] == "release" else 2)
    assert hold is None or hold.verify()


@pytest.mark.parametrize("verb", [[], ["frob"], ["show"], ["release", "a"], ["stop"]])
def test_what_cannot_be_parsed_is_an_error_for_code_too(claims, verb):
    assert claims(*verb).code == 1


def test_claims_that_are_off_say_so(claims, settings):
    settings.CLAIMS = None

    assert (claims("list").code, claims("doctor").code) == (0, 0)
    for verb in (
        ["list"],
        ["doctor"],
        ["show", "a"],
        ["stop", "a"],
        ["clear-stop", "a"],
        ["release", "a", "--fence", "1"],
    ):
        assert "Claims are off" in claims(*verb).err
    assert claims("show", "a").code == 4
