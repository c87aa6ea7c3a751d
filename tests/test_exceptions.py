"""Errors: sentences, attributes, pickles."""

import pickle
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from freezegun import freeze_time
from kombu.utils import json as kombu_json

import django_claims
from django_claims import (
    AlreadyRunning,
    BackendUnavailable,
    ClaimError,
    ClaimHeld,
    ClaimLost,
    ClaimRefused,
    ClaimStopped,
    CommandRefused,
    Holder,
    InvalidClaim,
    InvalidClaimsSetting,
    KeptStopped,
    Lease,
    LossReason,
    StaleFence,
    StopFlag,
    StopRequested,
    UnsupportedFeature,
    claim,
    claim_backends,
)
from tests.helpers import run_in_thread, tidy

_tidy = pytest.fixture(autouse=True)(tidy)

NOW = datetime(2026, 3, 4, 2, 0, 7, tzinfo=UTC)
LEASE = Lease(
    name="nightly-report", alias="default", fence=7, state="held", ttl=180.0, heartbeat=60.0, age=4.0, remaining=176.0,
    holder=Holder(host="web-1", pid=4242, label="manage.py nightly_report"),
    acquired_at=NOW - timedelta(seconds=4), renewed_at=NOW - timedelta(seconds=4),
    expires_at=NOW + timedelta(seconds=176), read_at=NOW,
)  # fmt: skip
FLAG = StopFlag(name="nightly-report", alias="default", fence=None, keep=True, reason="bad feed", by="ana")

ERRORS = [
    (ClaimHeld("x", LEASE), {"name": "x", "lease": LEASE, "reentrant": False}),
    (ClaimHeld("x"), {"name": "x", "lease": None, "reentrant": False}),
    (ClaimHeld("x", None, True), {"name": "x", "lease": None, "reentrant": True}),
    (ClaimStopped("x", FLAG), {"name": "x", "flag": FLAG}),
    (ClaimStopped("x"), {"name": "x", "flag": None}),
    (ClaimLost("x", LossReason.TAKEN), {"name": "x", "reason": LossReason.TAKEN}),
    (ClaimLost("x"), {"name": "x", "reason": None}),
    (BackendUnavailable("default", "timed out"), {"alias": "default", "detail": "timed out"}),
    (BackendUnavailable("default"), {"alias": "default", "detail": ""}),
    (UnsupportedFeature("fencing", "default"), {"feature": "fencing", "alias": "default"}),
    (StaleFence("x", 7), {"name": "x", "fence": 7}),
    (InvalidClaim("wrong: 5"), {}),
    (StopRequested("x", "bad feed", "ana"), {"name": "x", "reason": "bad feed", "by": "ana"}),
    (StopRequested("x"), {"name": "x", "reason": "", "by": ""}),
    (InvalidClaimsSetting("wrong"), {}),
    (CommandRefused("no"), {}),
    (AlreadyRunning("no", LEASE, 9), {"message": "no", "lease": LEASE, "returncode": 9}),
    (KeptStopped("no", FLAG, 9), {"message": "no", "flag": FLAG, "returncode": 9}),
]


@pytest.mark.parametrize("error, attributes", ERRORS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_pickles_with_its_attributes_and_its_sentence(error, attributes, protocol):
    copy = pickle.loads(pickle.dumps(error, protocol))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert {name: getattr(copy, name) for name in attributes} == attributes


def test_every_public_error_is_pickled_above():
    public = {
        value for value in vars(django_claims).values() if isinstance(value, type) and issubclass(value, Exception)
    }

    assert public - {type(error) for error, _ in ERRORS} == {ClaimError, ClaimRefused}


def test_the_tree_is_as_documented():
    assert issubclass(ClaimHeld, ClaimRefused)
    assert issubclass(ClaimStopped, ClaimRefused)
    for error in (ClaimRefused, ClaimLost, BackendUnavailable, UnsupportedFeature, StaleFence, InvalidClaim):
        assert issubclass(error, ClaimError)
    assert issubclass(InvalidClaim, ValueError)
    assert not issubclass(StopRequested, ClaimError)
    assert issubclass(CommandRefused, CommandError)
    assert issubclass(AlreadyRunning, CommandRefused)
    assert issubclass(KeptStopped, CommandRefused)
    assert issubclass(InvalidClaimsSetting, ImproperlyConfigured)


@freeze_time("2026-03-04T03:00:00Z")
def test_held_answers_the_person_at_the_terminal(settings):
    settings.TIME_ZONE = "UTC"

    assert str(ClaimHeld("nightly-report", LEASE)) == (
        "Claim 'nightly-report' is held by web-1 (pid 4242, manage.py nightly_report) since 02:00:03, "
        "last heartbeat 4 s ago, 176 s left."
    )


@pytest.mark.parametrize(
    "error", [ClaimHeld("x", LEASE), ClaimStopped(FLAG.name, FLAG), ClaimLost("x", LossReason.TAKEN)]
)
def test_an_error_that_celery_wrote_as_json_still_has_its_name_and_says_the_same(error):
    arguments = kombu_json.loads(kombu_json.dumps(error.args))

    made = type(error)(*arguments)

    assert made.name == error.name
    assert str(made) == str(error).replace(LossReason.TAKEN.sentence, "taken")


def test_held_by_one_who_has_just_ended_says_so():
    assert "has just ended" in str(ClaimHeld("x"))


def test_held_by_oneself_says_so_and_the_way_out():
    assert "already held by this very thread or task" in str(ClaimHeld("x", None, True))
    assert "current_hold()" in str(ClaimHeld("x", None, True))


def test_stopped_says_who_why_and_how_to_go_on():
    assert "kept stopped by ana (bad feed)" in str(ClaimStopped("x", FLAG))
    assert "clear_stop('x')" in str(ClaimStopped("x"))


@pytest.mark.parametrize("reason", list(LossReason))
def test_lost_says_why_in_words(reason):
    assert str(ClaimLost("x", reason)).startswith(f"Claim 'x' was lost: {reason.sentence}.")


def test_lost_without_reason_is_still_a_sentence():
    assert str(ClaimLost("x")) == "Claim 'x' was lost. Another holder may be at work; stop, and acquire again."


def test_unavailable_is_neither_yes_nor_no():
    assert "no answer (timed out), so nobody can tell" in str(BackendUnavailable("default", "timed out"))
    assert "'manage.py claims doctor'" in str(BackendUnavailable("default"))


def test_the_others_say_what_and_what_now():
    assert "does not support fencing" in str(UnsupportedFeature("fencing", "default"))
    assert "later than fence 7" in str(StaleFence("x", 7))
    assert str(StopRequested("x", "bad feed", "ana")) == "Claim 'x' was asked to stop by ana: bad feed."
    assert str(StopRequested("x")) == "Claim 'x' was asked to stop."


def test_a_refusal_pickles_without_the_token(monkeypatch):
    tokens = iter(["SECRETTOKEN1", "SECRETTOKEN2"])
    monkeypatch.setattr("django_claims.trying.new_token", lambda: next(tokens))

    with claim("x"), pytest.raises(ClaimHeld) as refused:
        run_in_thread(lambda: claim("x").__enter__())

    assert claim_backends["default"].held("x", "SECRETTOKEN1") is False
    assert b"SECRETTOKEN" not in pickle.dumps(refused.value)
    assert "SECRETTOKEN" not in repr(refused.value) + str(refused.value) + repr(vars(refused.value))
