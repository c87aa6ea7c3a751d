"""What test_fencing.py asks of SQLite, asked of PostgreSQL and MariaDB: there, writers wait for rows."""

import pytest

from tests.backends.sql_servers import MariaDBServer, PostgreSQLServer, Site, server_or_skip
from tests.test_fencing import (  # noqa: F401
    _tidy,
    new,
    old,
    shop,
    tea,
    test_a_database_that_cannot_read_the_table_it_writes_is_asked_before,
    test_a_deferred_fence_is_no_matter,
    test_a_fence_in_the_parents_table_is_compared_there,
    test_a_filter_over_a_relation_works,
    test_a_plain_save_leaves_the_stored_fence_as_it_is,
    test_a_read_bars_an_older_holder_though_nothing_was_written_yet,
    test_a_rolled_back_write_takes_its_fence_with_it,
    test_a_row_named_by_a_unique_value_is_written_in_one_statement,
    test_a_save_that_fails_otherwise_leaves_the_fences_alone,
    test_an_older_holder_that_waits_for_the_row_is_turned_away_when_it_gets_it,
    test_an_outer_transaction_goes_on_after_a_stale_write,
    test_composite_primary_keys_are_fenced,
    test_no_acknowledged_save_is_lost_either,
    test_of_several_rows_all_are_written_or_none,
    test_querysets_of_every_kind_are_fenced,
    test_the_experiment_loses_updates_without_the_fence_and_none_with_it,
    test_values_in_the_parents_table_are_guarded_by_a_fence_in_the_childs,
    test_what_is_filtered_by_may_be_what_is_written,
    test_with_the_fence_on_read_and_write_no_acknowledged_update_is_lost,
    unaware,
)


@pytest.fixture(scope="module", params=[(PostgreSQLServer, "psycopg"), (MariaDBServer, "MySQLdb")], ids=["pg", "maria"])
def site(request):
    """A database of its own on a server."""
    kind, driver = request.param
    site = Site(server_or_skip(kind, driver), "fencing")
    yield site
    site.drop()


@pytest.fixture
def shop_entry(site):
    return site.entry
