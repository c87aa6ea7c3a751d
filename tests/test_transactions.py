"""Leaving a claim inside an open transaction."""

import asyncio
import logging

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.test import TestCase

from django_claims import ClaimHeld, claim, registry, transactions
from tests.helpers import claims_settings, faults, run_in_thread, tidy, wait_until

_tidy = pytest.fixture(autouse=True)(tidy)

WARNING = "Claim left inside an open transaction"


@pytest.fixture(autouse=True)
def calm(settings, monkeypatch):
    settings.CLAIMS = claims_settings(TTL=60)
    monkeypatch.setattr(transactions, "_warned", set())
    return settings


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(WARNING)]


def free(name="x"):
    """Say whether another thread could have it now."""
    return run_in_thread(claim(name).available)


class Rollback(Exception):
    """Ends a transaction."""


# With release_on_commit.


def test_the_hold_stays_until_the_commit(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True) as hold:
            pass
        within = (hold.held, free())

    assert within == (True, False)
    assert not hold.held
    assert free()


def test_the_hold_stays_until_the_outermost_commit(transactional_db):
    with transaction.atomic():
        with transaction.atomic(), claim("x", release_on_commit=True) as hold:
            pass
        within = (hold.held, free())

    assert within == (True, False)
    assert free()


def test_a_rollback_frees_it_too(transactional_db):
    with pytest.raises(Rollback), transaction.atomic():
        with claim("x", release_on_commit=True) as hold:
            pass
        assert hold.held
        raise Rollback

    assert not hold.held
    assert free()


def test_the_bodys_own_exception_rolls_back_and_frees_it(transactional_db):
    with pytest.raises(Rollback), transaction.atomic(), claim("x", release_on_commit=True):
        raise Rollback

    assert free()


def test_a_rollback_to_a_savepoint_frees_what_was_left_within(transactional_db):
    with transaction.atomic():
        with pytest.raises(Rollback), transaction.atomic(), claim("x", release_on_commit=True) as hold:
            raise Rollback

        assert not hold.held
        assert free()


def test_a_savepoint_that_is_kept_frees_nothing_yet(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True) as hold, pytest.raises(Rollback), transaction.atomic():
            raise Rollback
        assert hold.held

    assert not hold.held


def test_a_connection_that_breaks_off_frees_it(transactional_db):
    with pytest.raises(Rollback), transaction.atomic():
        with claim("x", release_on_commit=True):
            pass
        connection.close()
        raise Rollback

    wait_until(free, 2)


def test_the_hold_stays_renewed_until_the_commit(transactional_db):
    with transaction.atomic():
        with claim("x", ttl=0.6, release_on_commit=True) as hold:
            pass
        before = faults.count("renew")
        wait_until(lambda: faults.count("renew") > before + 4, 5)

        assert hold.held
        assert not free()


def test_outside_a_transaction_it_is_freed_at_once(transactional_db):
    with claim("x", release_on_commit=True) as hold:
        with transaction.atomic():
            pass
        assert hold.held

    assert free()


def test_a_hold_used_by_its_own_with_stays_until_the_commit_as_well(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True).acquire() as hold:
            pass
        within = hold.held

    assert within
    assert free()


def test_a_release_by_hand_is_a_release(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True) as hold:
            hold.release()

        assert free()


def test_the_order_is_commit_and_then_release(transactional_db):
    order = []

    def release(real, requests):
        order.append(("release", connection.in_atomic_block))
        return real(requests)

    faults.on("release", release)
    with transaction.atomic():
        with claim("x", release_on_commit=True):
            pass
        transaction.on_commit(lambda: order.append(("committed", connection.in_atomic_block)))

    assert order == [("release", False), ("committed", False)]


def test_a_failing_release_harms_no_commit(transactional_db, caplog):
    committed = []
    with transaction.atomic():
        with claim("x", release_on_commit=True):
            pass
        transaction.on_commit(lambda: committed.append(True))
        faults.fail("release")

    assert committed == [True]
    assert "Release failed" in caplog.text


def test_a_lost_hold_is_not_kept_for_the_commit(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True) as hold:
            hold.lose("forced")

        assert free()
    assert hold.lost


def test_until_the_commit_the_same_thread_is_told_that_it_has_it(transactional_db):
    with transaction.atomic():
        with claim("x", release_on_commit=True):
            pass
        with pytest.raises(ClaimHeld, match="very thread"), claim("x"):
            pass

    assert free()


def test_nothing_of_it_is_left_behind(transactional_db):
    for _ in range(3):
        with transaction.atomic(), claim("x", release_on_commit=True):
            pass

    assert registry.all_holds() == []
    assert free()


# Without.


def test_leaving_inside_a_transaction_warns_once_for_each_name(transactional_db, caplog):
    for name in ("x", "x", "y"):
        with transaction.atomic():
            with claim(name):
                pass
            assert free(name)

    assert [message.rpartition("name=")[2] for message in warnings(caplog)] == ["x", "y"]
    assert "release_on_commit=True" in warnings(caplog)[0]


def test_leaving_outside_a_transaction_warns_of_nothing(transactional_db, caplog):
    with claim("x"), transaction.atomic():
        pass

    assert warnings(caplog) == []


def test_with_the_option_nothing_is_warned_of(transactional_db, caplog):
    with transaction.atomic(), claim("x", release_on_commit=True):
        pass

    assert warnings(caplog) == []


def test_a_warning_is_a_warning(transactional_db, caplog):
    with transaction.atomic(), claim("x"):
        pass

    assert [record.levelno for record in caplog.records if record.getMessage().startswith(WARNING)] == [logging.WARNING]


# Blocks that a test opens.


def test_the_block_of_a_test_does_not_count(db, caplog):
    with claim("x", release_on_commit=True) as hold:
        pass

    assert connection.in_atomic_block
    assert not hold.held
    assert free()
    with claim("x"):
        pass
    assert warnings(caplog) == []


def test_the_codes_own_block_within_that_of_a_test_counts(db, caplog):
    with transaction.atomic(), claim("x"):
        pass

    assert len(warnings(caplog)) == 1


def test_what_a_test_commits_frees_the_claim_as_a_commit_does(db):
    """Code that is called twice in one TestCase must not be refused by its own first call."""
    for _ in range(2):
        with transaction.atomic(), claim("x", release_on_commit=True):
            pass

    assert free()


def test_a_test_that_runs_its_commit_callbacks_frees_the_claim(db):
    with TestCase.captureOnCommitCallbacks(execute=True), transaction.atomic(), claim("x", release_on_commit=True):
        pass

    assert free()


def test_no_connection_is_opened_to_look():
    opened = []

    def look():
        from django.db import connections

        with claim("x", release_on_commit=True):
            pass
        with claim("y"):
            pass
        opened.extend(connections.all(initialized_only=True))

    run_in_thread(look)

    assert opened == []


def test_a_task_frees_it_at_once():
    async def main():
        async with claim("x", release_on_commit=True):
            pass
        return claim("x").lease()

    assert asyncio.run(main()) is None
    assert DEFAULT_DB_ALIAS
