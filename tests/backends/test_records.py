"""The text that stands for a lease or a flag: there and back, and whatever else may stand in its place."""

import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from django_claims.backends.records import flag_words, read_flag, read_record
from django_claims.holders import Holder, ProcessId
from django_claims.leases import Progress, StopFlag

NOW = 1_800_000_000_000_000
SECOND = 1_000_000
HOLDER = Holder(
    host="web-1",
    pid=4242,
    started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    label='manage.py "x" ☃ h\n1 2',
    processes=(ProcessId("0123456789abcdef", 4242, 987654),),
)
PROGRESS = Progress(done=1, total=2.5, note="half\nway", at=datetime(2026, 1, 2, tzinfo=UTC))


def record(*, head="1 tok 77 {since} 60000 20000 h", holder=HOLDER.packed, progress=""):
    return f"{head.format(since=NOW - 10 * SECOND)}\n{holder}\n{progress}"


def read(text, *, left_ms=50_000, flag=None):
    return read_record(text, name="job", alias="default", now_us=NOW, left_ms=left_ms, flag=flag)


def moment(us):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def test_a_record_is_read_as_the_lease_that_it_stands_for():
    lease = read(record(progress=PROGRESS.pack()))

    assert (lease.name, lease.alias, lease.fence, lease.state) == ("job", "default", 77, "held")
    assert lease.holder == HOLDER
    assert lease.progress == PROGRESS
    assert (lease.ttl, lease.heartbeat, lease.age, lease.remaining) == (60.0, 20.0, 10.0, 50.0)
    assert lease.acquired_at == lease.renewed_at == moment(NOW - 10 * SECOND)
    assert lease.expires_at == moment(NOW + 50 * SECOND)
    assert lease.read_at == moment(NOW)
    assert lease.stop_flag is None


def test_when_it_was_renewed_follows_from_what_is_left():
    assert read(record(), left_ms=55_000).renewed_at == moment(NOW - 5 * SECOND)


@pytest.mark.parametrize("left_ms", [0, 1, 49_999, 60_000, 61_000, 10**9])
def test_it_was_never_renewed_before_it_was_acquired_nor_after_now(left_ms):
    lease = read(record(), left_ms=left_ms)

    assert lease.acquired_at <= lease.renewed_at <= lease.read_at


def test_a_resting_record_names_nobody():
    lease = read(record(head="1 - 77 {since} 60000 20000 r"))

    assert (lease.state, lease.holder, lease.fence) == ("resting", None, 77)


def test_a_record_that_was_handed_over_says_so():
    assert read(record(head="1 tok 77 {since} 60000 20000 o")).state == "handed_over"


def test_no_token_is_in_anything_that_is_read():
    lease = read(record(head="1 s3cret 77 {since} 60000 20000 h"))

    assert "s3cret" not in repr(lease) + json.dumps(lease.as_dict()) + lease.sentence()


def test_later_versions_may_append_to_holder_and_progress():
    holder = json.dumps([*json.loads(HOLDER.packed), "more", {"and": "more"}])
    progress = json.dumps([*json.loads(PROGRESS.pack()), "", "more"])

    lease = read(record(holder=holder, progress=progress))

    assert (lease.holder, lease.progress) == (HOLDER, PROGRESS)


GARBAGE = {
    "nothing": "",
    "blank": " ",
    "words": "garbage",
    "a number": "17",
    "head alone": "1 tok 77 5 60000 20000 h",
    "no progress line": f"1 tok 77 5 60000 20000 h\n{HOLDER.packed}",
    "one line too many": record() + "\n",
    "a newer format": record(head="2 tok 77 5 60000 20000 h"),
    "format 10": record(head="10 tok 77 5 60000 20000 h"),
    "no token": record(head="1  77 5 60000 20000 h"),
    "a negative fence": record(head="1 tok -77 5 60000 20000 h"),
    "a fence with a point": record(head="1 tok 77.5 5 60000 20000 h"),
    "a fence in words": record(head="1 tok x 5 60000 20000 h"),
    "something before it": " " + record(),
    "a zero byte": "\0" + record(),
    "no holder": record(holder=""),
    "a holder that is null": record(holder="null"),
    "a holder that is a number": record(holder="5"),
    "a holder that is text": record(holder='"web-1"'),
    "a holder that is an object": record(holder='{"host":"web-1"}'),
    "a holder that is too short": record(holder='["web-1",5]'),
    "a holder with an odd pid": record(holder='["h","x",0,"","","",[]]'),
    "a holder with an endless pid": record(holder='["h",Infinity,0,"","","",[]]'),
    "a holder that started far off": record(holder='["h",1,1e300,"","","",[]]'),
    "a holder that never started": record(holder='["h",1,NaN,"","","",[]]'),
    "a holder with odd processes": record(holder='["h",1,0,"","","",[1]]'),
    "a holder with null processes": record(holder='["h",1,0,"","","",null]'),
    "a deep holder": record(holder="[" * 100_000),
    "broken progress": record(progress="{"),
    "progress that is null": record(progress="null"),
    "progress that is too short": record(progress="[1,2]"),
    "progress of some odd time": record(progress='[1,2,"","x"]'),
    "progress of no time": record(progress='[1,2,"",NaN]'),
    "progress of an endless time": record(progress='[1,2,"",Infinity]'),
    "progress of a far time": record(progress='[1,2,"",1e300]'),
    "deep progress": record(progress="[" * 100_000),
    "far acquired": record(head=f"1 tok 77 {'9' * 25} 60000 20000 h"),
    "numbers beyond measure": record(head=f"1 tok {'9' * 5000} 5 60000 20000 h"),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_is_no_record_of_ours_is_unreadable(kind):
    lease = read(GARBAGE[kind])

    assert (lease.state, lease.fence, lease.holder, lease.progress) == ("unreadable", 0, None, None)
    assert (lease.expires_at, lease.remaining) == (moment(NOW + 50 * SECOND), 50.0)
    assert json.dumps(lease.as_dict())
    assert "cannot be read" in lease.sentence()


def test_a_record_without_an_end_is_unreadable():
    lease = read(record(), left_ms=-1)

    assert (lease.state, lease.expires_at, lease.remaining) == ("unreadable", None, 0.0)


def test_no_text_at_all_breaks_the_reader():
    chance = random.Random(1)
    good = record(progress=PROGRESS.pack())
    for _ in range(3000):
        text = list(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text))
            text[at : at + chance.randint(0, 5)] = chance.choices('0159 hro[]",{}:e-.\n\0☃', k=chance.randint(0, 4))
        lease = read("".join(text), left_ms=chance.choice([-1, 0, 50_000]))

        assert json.dumps(lease.as_dict())


# -- stop flags ---------------------------------------------------------------------------------


def read_f(text):
    return read_flag(text, name="job", alias="default")


def test_a_flag_of_a_run_is_read_with_its_fence_and_ends_with_it():
    words = flag_words('wrong "file"\n☃', "ann b")

    flag = read_f(f"r 77 {NOW + SECOND} {NOW} {NOW + 5} {words}")

    assert flag == StopFlag(
        name="job",
        alias="default",
        fence=77,
        keep=False,
        reason='wrong "file"\n☃',
        by="ann b",
        requested_at=moment(NOW),
        expires_at=None,
        seen_at=moment(NOW + 5),
    )


def test_a_kept_flag_is_of_no_run_and_may_have_an_end():
    flag = read_f(f"k 0 {NOW + SECOND} {NOW} 0 {flag_words('', '')}")
    endless = read_f(f"k 0 0 {NOW} 0 {flag_words('', '')}")

    assert (flag.keep, flag.fence, flag.seen_at) == (True, None, None)
    assert flag.expires_at == moment(NOW + SECOND)
    assert endless.expires_at is None


def test_words_are_one_line_whatever_is_said():
    assert "\n" not in flag_words("a\nb\r\u2028", "c\nd")


def test_later_versions_may_append_to_the_words():
    assert read_f('k 0 0 5 0 ["r","b","more"]').reason == "r"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        "k",
        "k 0 0 5 0",
        "k 0 0 5 0 ",
        "k 0 0 5 0 oops",
        "k 0 0 5 0 null",
        "k 0 0 5 0 5",
        "k 0 0 5 0 []",
        'k 0 0 5 0 ["r"]',
        'k 0 0 5 x ["r","b"]',
        'k 0 x 5 0 ["r","b"]',
        'r x 0 5 0 ["r","b"]',
        'k 0 0 1.5 0 ["r","b"]',
        f'k 0 {"9" * 30} 5 0 ["r","b"]',
        f'k 0 0 {"9" * 30} 0 ["r","b"]',
        f'k 0 0 5 {"9" * 30} ["r","b"]',
        f'k 0 0 {"9" * 5000} 0 ["r","b"]',
        'f 5 9 0 0 ["r","b"]',
        'z 5 9 0 0 ["r","b"]',
        "k 0 0 5 0 " + "[" * 100_000,
    ],
    ids=lambda text: text[:20] or "nothing",
)
def test_what_is_no_flag_of_ours_is_none(text):
    assert read_f(text) is None
