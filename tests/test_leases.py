"""Snapshots: states, sentences, JSON."""

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from django_claims import Holder, LeasePage, LossReason, Progress, ReleaseResult, StopFlag
from django_claims.leases import HANDED_OVER, HELD, RESTING, local_time, read_lease, unreadable_lease

NOW = datetime(2026, 3, 4, 2, 0, 7, tzinfo=UTC)
HOLDER = Holder(host="web-1", pid=4242, label="manage.py nightly_report")


def us(moment):
    return int(moment.timestamp()) * 1_000_000


def lease(**changes):
    """Return a lease of 180 s that was taken and renewed 4 s ago."""
    return read_lease(
        **{
            "name": "nightly-report", "alias": "default", "fence": 7, "kind": HELD, "holder": HOLDER.packed,
            "progress": "", "flag": None, "acquired_us": us(NOW) - 4_000_000, "renewed_us": us(NOW) - 4_000_000,
            "expires_us": us(NOW) + 176_000_000, "now_us": us(NOW), "ttl_ms": 180_000, "heartbeat_ms": 60_000,
            **changes,
        }
    )  # fmt: skip


def flag(**changes):
    return replace(StopFlag(name="nightly-report", alias="default", fence=7, keep=False, requested_at=NOW), **changes)


# States.


def test_a_fresh_lease_is_held():
    assert lease().state == "held"


def test_a_lease_with_a_stop_flag_is_asked_and_then_stopping():
    assert lease(flag=flag()).state == "stop_asked"
    assert lease(flag=flag(seen_at=NOW)).state == "stopping"
    assert lease(flag=flag(fence=None, keep=True)).state == "stop_asked"


def test_a_flag_that_aims_at_another_run_is_none_of_its():
    found = lease(flag=flag(fence=6))

    assert found.state == "held"
    assert found.stop_flag is None


@pytest.mark.parametrize("beat_ms, after", [(60_000, 92.0), (1000, 3.5), (100, 2.15)])
def test_a_lease_is_overdue_after_one_and_a_half_heartbeats_and_two_seconds(beat_ms, after):
    late = us(NOW) - int(after * 1e6)

    assert lease(heartbeat_ms=beat_ms, renewed_us=late).state == "held"
    assert lease(heartbeat_ms=beat_ms, renewed_us=late - 1).state == "overdue"


def test_overdue_is_told_before_a_stop():
    assert lease(flag=flag(seen_at=NOW), renewed_us=us(NOW) - 100_000_000).state == "overdue"


def test_a_resting_lease_names_nobody_and_is_never_overdue():
    found = lease(kind=RESTING, renewed_us=0)

    assert (found.state, found.holder, found.is_followed) == ("resting", None, False)


def test_a_lease_that_was_handed_over_is_not_followed():
    found = lease(kind=HANDED_OVER, renewed_us=0)

    assert (found.state, found.is_followed) == ("handed_over", False)


def test_a_held_lease_is_followed():
    assert lease().is_followed is True


@pytest.mark.parametrize(
    "broken",
    [
        {"holder": "{garbage"},
        {"holder": "[]"},
        {"progress": "{"},
        {"progress": "5"},
        {"progress": "[1]"},
        {"progress": '[1,2,"",NaN]'},
        {"progress": '[1,2,"","x"]'},
    ],
)
def test_a_lease_with_broken_parts_is_unreadable(broken):
    found = lease(**broken)

    assert (found.state, found.fence, found.holder, found.is_followed) == ("unreadable", 0, None, False)
    assert found.remaining == 176.0


@pytest.mark.parametrize("progress", ['[1,2,"",1e30]', '[1,2,"",Infinity]'])
def test_a_lease_with_a_progress_of_no_date_is_unreadable_and_no_crash(progress):
    assert lease(progress=progress).state == "unreadable"


def test_an_unreadable_lease_may_have_no_end():
    found = unreadable_lease(name="x", alias="default", now_us=us(NOW), expires_us=None)

    assert found.expires_at is None
    assert found.remaining == 0.0


# Numbers.


def test_ages_and_times_are_as_of_the_read():
    found = lease()

    assert (found.age, found.remaining, found.ttl, found.heartbeat) == (4.0, 176.0, 180.0, 60.0)
    assert found.read_at == NOW
    assert found.acquired_at == NOW - timedelta(seconds=4)
    assert found.expires_at == NOW + timedelta(seconds=176)


def test_an_age_is_never_negative_though_the_stores_clock_be_set_back():
    found = lease(acquired_us=us(NOW) + 3_600_000_000, renewed_us=us(NOW) + 3_600_000_000, expires_us=0)

    assert (found.age, found.remaining) == (0.0, 0.0)
    assert "last heartbeat 0 s ago" in found.sentence()


def test_a_snapshot_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        lease().fence = 8


# Sentences.


@freeze_time(NOW)
def test_a_held_lease_answers_the_person_at_the_terminal(settings):
    settings.TIME_ZONE = "UTC"

    assert lease().sentence() == (
        "Claim 'nightly-report' is held by web-1 (pid 4242, manage.py nightly_report) since 02:00:03, "
        "last heartbeat 4 s ago, 176 s left."
    )


def test_a_resting_lease_says_for_how_long():
    assert lease(kind=RESTING, expires_us=us(NOW) + 3_000_000).sentence() == (
        "Claim 'nightly-report' is resting after its last run (min_hold) for 3 s more."
    )


def test_an_unreadable_lease_says_how_it_ends():
    assert "force_release('nightly-report', fence=0)" in lease(holder="").sentence()


@freeze_time(NOW)
def test_a_time_of_today_is_told_without_the_date_in_the_zone_of_the_project(settings):
    settings.TIME_ZONE = "Europe/Berlin"

    assert local_time(NOW) == "03:00:07"


def test_a_time_of_another_day_carries_its_date_and_zone(settings):
    settings.TIME_ZONE = "Europe/Berlin"

    assert local_time(datetime(2025, 10, 26, 0, 30, tzinfo=UTC)) == "2025-10-26 02:30:00 CEST"
    assert local_time(datetime(2025, 10, 26, 1, 30, tzinfo=UTC)) == "2025-10-26 02:30:00 CET"


@freeze_time(NOW)
@pytest.mark.parametrize("use_tz", [True, False])
def test_sentences_do_not_mind_use_tz(settings, use_tz):
    settings.USE_TZ = use_tz

    assert "since" in lease().sentence()


# JSON.


def is_now(text):
    """Say whether it is NOW as JSON has it: ISO 8601, in UTC and told so by a Z."""
    return text.endswith("Z") and datetime.fromisoformat(text) == NOW


def test_a_lease_is_json_ready_with_all_its_parts():
    done = Progress(done=3, total=10, note="half", at=NOW)
    found = lease(progress=done.pack(), flag=flag(reason="bad feed", by="ana"))

    data = json.loads(json.dumps(found.as_dict()))

    assert list(data) == [
        "name", "alias", "fence", "holder", "state", "acquired_at", "renewed_at", "expires_at", "read_at", "ttl",
        "heartbeat", "age", "remaining", "progress", "stop_flag",
    ]  # fmt: skip
    assert is_now(data["read_at"])
    assert data["holder"]["pid"] == 4242
    assert is_now(data["progress"].pop("at"))
    assert data["progress"] == {"done": 3, "total": 10, "note": "half"}
    assert is_now(data["stop_flag"].pop("requested_at"))
    assert data["stop_flag"] == {
        "name": "nightly-report", "alias": "default", "fence": 7, "keep": False, "reason": "bad feed", "by": "ana",
        "expires_at": None, "seen_at": None,
    }  # fmt: skip


def test_all_times_in_json_are_written_the_same_way():
    found = lease(holder=replace(HOLDER, started_at=NOW).packed)

    assert is_now(found.as_dict()["holder"]["started_at"])
    assert found.as_dict()["holder"]["started_at"] == found.as_dict()["read_at"]


def test_a_lease_that_names_nobody_is_json_ready():
    data = json.loads(json.dumps(lease(kind=RESTING).as_dict()))

    assert (data["holder"], data["progress"], data["stop_flag"]) == (None, None, None)


def test_a_page_is_iterable_and_json_ready():
    page = LeasePage(leases=[lease(), lease(name="x")], total=7, page=2, per_page=2)

    data = json.loads(json.dumps(page.as_dict()))

    assert [found.name for found in page] == ["nightly-report", "x"]
    assert len(page) == 2
    assert (data["total"], data["page"], data["per_page"], data["complete"]) == (7, 2, 2, True)
    assert [found["name"] for found in data["leases"]] == ["nightly-report", "x"]


@pytest.mark.parametrize(
    "record", [lease(), flag(), Progress(done=1), LeasePage(leases=[], total=0, page=1, per_page=1), HOLDER]
)
def test_records_pickle(record):
    assert pickle.loads(pickle.dumps(record)) == record


# Progress.


@pytest.mark.parametrize(
    "progress",
    [
        Progress(done=3, total=10, note='a "quoted" ünïcode', at=NOW),
        Progress(done=0.5, at=NOW),
        Progress(note="x", at=NOW),
        Progress(done=1, at=NOW, kept='{"a":\n"ü"}'),
    ],
)
def test_a_progress_comes_back_from_a_store_as_it_was(progress):
    assert Progress.unpack(progress.pack()) == progress
    assert "\n" not in progress.pack()


def test_what_a_holder_keeps_for_whoever_comes_next_is_shown_to_nobody():
    assert "secret" not in json.dumps(Progress(done=1, kept="secret").as_dict())


def test_no_progress_is_none():
    assert Progress.unpack("") is None


# Flags and words.


def test_a_flag_aims_at_one_run_or_at_all():
    assert flag().aims_at(7)
    assert not flag().aims_at(8)
    assert flag(fence=None, keep=True).aims_at(8)


def test_only_released_is_true():
    assert [result for result in ReleaseResult if result] == [ReleaseResult.RELEASED]


def test_every_reason_has_a_sentence_and_compares_as_text():
    assert all(reason.sentence for reason in LossReason)
    assert LossReason.TAKEN == "taken"
    assert {reason.name for reason in LossReason} == {"EXPIRED", "TAKEN", "FORGOTTEN", "FORCED", "FORKED", "MAX_HOLD"}
