"""What the records of our loggers carry besides their message."""

import logging
import re
from pathlib import Path

import pytest

from django_claims import LossReason, claim, force_release, request_stop, single_instance
from django_claims.logs import get_logger
from django_claims.test import beat, expire, held, lose, override_claims
from tests.helpers import claims_settings, faults, listening, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)
heard = pytest.fixture(listening)

PACKAGE = Path(__file__).parent.parent / "django_claims"
KEYS = ("claim", "claim_alias", "claim_fence", "claim_holder")


def about(record):
    return tuple(getattr(record, key) for key in KEYS)


def test_every_module_logs_through_our_loggers():
    others = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.name != "logs.py" and "getLogger" in path.read_text()
    ]
    assert others == []


def test_every_message_on_a_claim_names_it_in_the_way_that_is_read():
    """`name=%s`, and not `name=%r` in words of its own or `claim %s`."""
    calls = re.compile(r"logger\.(?:debug|info|warning|error|exception|critical)\((.*?)\n", re.DOTALL)
    odd = [
        found
        for path in PACKAGE.rglob("*.py")
        for found in calls.findall(path.read_text())
        if re.search(r"\b(fence|alias)=%[^sd]", found)
    ]
    assert odd == []


def test_all_records_of_a_life_say_what_they_are_about(caplog):
    caplog.set_level(logging.DEBUG, "django_claims")
    with override_claims(TTL=180):
        with claim("x", label="my job") as hold:
            claim("x").acquire()
            request_stop("x")
            force_release("x", fence=hold.fence)
        with held("x", by="web-2"):
            claim("x").acquire()

        @single_instance(name="x")
        def job():
            lose("x", LossReason.FORGOTTEN)

        job()

    mine = [record for record in caplog.records if record.name.startswith("django_claims")]
    said = {record.getMessage().split(" name=")[0] for record in mine}
    assert said >= {"Claim acquired", "Claim refused", "Stop observed", "Claim force-released", "Claim lost"}
    assert {record.claim for record in mine} == {"x"}
    assert {record.claim_alias for record in mine} == {"default"}
    lost = next(record for record in mine if record.getMessage().startswith("Claim lost"))
    assert about(lost) == ("x", "default", hold.fence, str(hold.holder))
    assert lost.filename == "renewing.py"
    refused = [record for record in mine if record.getMessage().startswith("Claim refused name")]
    assert "web-2" in refused[-1].claim_holder
    for record in mine:
        assert hold.token not in repr(vars(record))


def test_a_renewal_that_fails_names_its_hold(caplog, settings):
    settings.CLAIMS = claims_settings(TTL=6, HEARTBEAT=0.1)
    with claim("x") as hold:
        faults.fail("renew")
        wait_until(lambda: faults.count("renew") > 1)
        faults.clear()

        record = next(record for record in caplog.records if record.getMessage().startswith("Renewal failed"))
        assert about(record) == ("x", "default", hold.fence, str(hold.holder))


def test_a_record_about_no_claim_has_the_same_keys(caplog):
    get_logger("django_claims.x").warning("It is %d %% full (%.1f)", 3, 0.5)

    (record,) = caplog.records
    assert about(record) == (None, None, None, None)
    assert record.getMessage() == "It is 3 % full (0.5)"
    assert record.filename == "test_logs.py"


def test_what_a_call_says_itself_goes_before(caplog):
    log = get_logger("django_claims.x")
    log.error("Lost name=%s fence=%d", "x", 7, extra={"claim": "y", "more": 1})
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.exception("Failed alias=%s", None)

    first, second = caplog.records
    assert about(first) == ("y", None, 7, None)
    assert first.more == 1
    assert about(second) == (None, None, None, None)
    assert second.exc_info[0] is ZeroDivisionError


def test_a_level_that_is_off_costs_nothing(caplog):
    caplog.set_level(logging.WARNING, "django_claims")
    get_logger("django_claims.x").info("name=%s %s", "too few arguments")

    assert caplog.records == []


def test_renewals_are_told_with_the_margin_that_was_left(heard):
    with override_claims(TTL=180), claim("x") as hold:
        beat()
        hold.renew()
        expire("x")

    first, second = heard.all("claim_renewed")
    assert first["name"] == second["name"] == "x"
    assert 60 < first["margin"] <= 120
    assert 0 <= first["took"] < 60
    assert first["lease"].fence == hold.fence


def test_a_renewal_that_fails_is_told_with_what_is_left(heard, settings):
    settings.CLAIMS = claims_settings(TTL=6, HEARTBEAT=0.1)
    with claim("x") as hold:
        faults.fail("renew")
        wait_until(lambda: heard.all("claim_renewal_failed"))
        faults.clear()

    told = heard.all("claim_renewal_failed")[0]
    assert told["lease"].fence == hold.fence
    assert 0 < told["remaining"] <= 4
    assert "connection refused" in str(told["error"])
