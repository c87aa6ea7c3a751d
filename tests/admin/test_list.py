"""The list of live claims: what it shows, finds, sorts and cuts, and what it says when it cannot."""

import html
import json
import re

import pytest
from django.http import QueryDict
from django.urls import reverse

from django_claims import claim, list_claims, request_stop
from django_claims.admin.keys import key_of
from django_claims.backends import memory
from django_claims.backends.memory import MemoryBackend
from django_claims.exceptions import BackendUnavailable, UnsupportedFeature
from django_claims.leases import LeasePage
from tests.admin.conftest import CHANGE, FLAGS, LIST, ROWS, SHARED, look, tell
from tests.helpers import FLAKY, faults


class CannotListBackend(MemoryBackend):
    """A backend that keeps leases and cannot tell which."""

    is_process_local = False

    def leases(self, **kwargs):
        raise UnsupportedFeature("listing", self.alias)


class SeesNothingBackend(MemoryBackend):
    """A backend whose listing has missed all of them."""

    is_process_local = False

    def leases(self, **kwargs):
        return LeasePage(leases=[], total=0, page=1, per_page=100, complete=False)


class MissesSomeBackend(MemoryBackend):
    is_process_local = False

    def leases(self, **kwargs):
        page = super().leases(**kwargs)
        return type(page)(leases=page.leases, total=page.total, page=page.page, per_page=page.per_page, complete=False)


def test_a_row_says_who_holds_since_when_how_fresh_how_long_and_how_far(staff, held):
    hold = held("import:orders", label="manage.py import_orders")
    tell(hold, 3, 10, note="rows of May")

    row = look(staff).row("import:orders")

    assert "manage.py import_orders" in row.text
    assert hold.lease.holder.host in row.text
    assert str(hold.lease.holder.pid) in row.text
    assert re.search(r"\b\d s ago", row.text)
    assert "3 min" in row.text
    assert "3 of 10 (30 %)" in row.text
    assert "rows of May" in row.text
    assert "Running" in row.text
    assert '<progress value="0.3000" max="1"' in row.source


def test_progress_without_a_total_is_a_number_and_no_bar(staff, held):
    tell(held("a"), 12345, note="lines")

    row = look(staff).row("a")

    assert "12,345" in row.text
    assert "<progress" not in row.source


def test_a_stop_that_was_not_seen_yet_says_so(staff, held):
    held("slow")
    faults.on("renew", lambda real, *args: [])  # the job hears nothing
    faults.on("poll", lambda real: [])
    request_stop("slow", reason="disk full", by="bob")

    row = look(staff).row("slow")

    assert "Stop asked" in row.text
    assert "not yet seen" in row.text
    assert "disk full" in row.text


def test_what_is_kept_stopped_and_does_not_run_is_listed_too(staff):
    request_stop("nightly", keep=True, reason="migration", by="bob")

    page = look(staff)

    assert page.names == ["nightly"]
    assert "Kept stopped until cleared" in page.row("nightly").text
    assert "0 live claims, 1 kept stopped" in page.text


def test_nothing_held_says_so_and_names_the_store(staff):
    page = look(staff)

    assert "No live claims." in page.text
    assert "default (memory of this process)" in page.text
    assert "<table" not in page.source.split('id="content-main"')[1]


def test_claims_that_are_off_are_said_to_be_off(staff, settings):
    settings.CLAIMS = None

    for page in (look(staff), look(staff, FLAGS), look(staff, CHANGE, "default:a"), look(staff, ROWS)):
        assert page.status == 200
        assert "Claims are off" in page.text


@pytest.mark.parametrize("address", [LIST, FLAGS, ROWS])
def test_a_store_that_does_not_answer_is_a_banner_and_no_failure(staff, shared, held, address):
    shared(FLAKY)
    held("a")
    faults.fail("leases", "lease", "flags", "flag")

    page = look(staff, address)

    assert page.status == 200
    assert "gave no answer" in page.text
    assert "No live claims" not in page.text


@pytest.mark.parametrize("name", ["a", "名" * 500])
def test_the_page_of_a_claim_does_not_say_that_it_ended_when_nobody_can_tell(staff, shared, held, name):
    shared(FLAKY)
    held(name)
    faults.fail("leases", "lease", "flags", "flag")

    page = look(staff, CHANGE, key_of("default", name))

    assert page.status == 200
    assert "gave no answer" in page.text
    assert "ended" not in page.text


def test_a_run_that_is_followed_is_not_said_to_have_ended_when_nobody_can_tell(staff, shared, held):
    shared(FLAKY)
    fence = held("a").fence
    faults.fail("leases", "lease", "flags", "flag")

    assert "has ended" not in look(staff, run=f"{fence} default:a").text


def test_a_store_that_fails_half_way_keeps_what_is_known_and_says_what_is_not(staff, shared, held):
    shared(FLAKY)
    held("a")
    faults.fail("flags")

    page = look(staff)

    assert page.names == ["a"]
    assert "gave no answer" in page.text


def test_one_store_that_is_down_does_not_hide_the_others(staff, settings, held):
    settings.CLAIMS = {"down": {"BACKEND": SHARED}, "default": {"BACKEND": SHARED}}
    held("there")

    def leases(real, **kwargs):
        if real.__self__.alias == "down":
            raise BackendUnavailable("down", "connection refused")
        return real(**kwargs)

    faults.on("leases", leases)

    page = look(staff)

    assert page.names == ["there"]
    assert "The store “down” gave no answer" in page.text
    assert "1 live claim, as far as the stores answered" in page.text
    assert "connection refused" in page.text


def test_settings_that_cannot_be_used_are_a_banner(staff, settings):
    settings.CLAIMS = {"default": {"BACKEND": "no.such.Backend"}}

    page = look(staff)

    assert page.status == 200
    assert "cannot be imported" in page.text


def test_a_backend_that_cannot_list_says_so_and_shows_no_table(staff, shared, held):
    shared(f"{__name__}.CannotListBackend")
    held("known")

    page = look(staff)

    assert "cannot list its claims" in page.text
    assert "<table" not in page.source.split('id="content-main"')[1]
    assert "Running" in look(staff, CHANGE, "default:known").text

    found = look(staff, q="known")

    assert found.names == ["known"]
    assert found.form("stop")["name"] == "known"
    assert look(staff, q="unknown").names == []
    assert look(staff, q="\x00").status == 200


def test_a_claim_that_the_listing_misses_is_found_by_its_whole_name(staff, shared, held):
    shared(f"{__name__}.SeesNothingBackend")
    held("import:1")

    assert look(staff).names == []
    assert look(staff, q="import").names == []
    assert look(staff, q="import:1").names == ["import:1"]


@pytest.mark.parametrize("backend", [f"{__name__}.MissesSomeBackend", "tests.cli.stores.ForgetfulBackend"])
def test_a_listing_that_may_miss_some_says_so_above_the_table(staff, shared, held, backend):
    shared(backend)
    held("seen")

    page = look(staff)

    assert page.names == ["seen"]
    assert "cannot list everything" in page.text.split("seen")[0]


def test_a_store_of_this_process_alone_says_so(staff, settings, held):
    settings.CLAIMS = {"default": {"BACKEND": "django_claims.backends.memory.MemoryBackend"}}
    held("own")

    assert "memory of each process" in look(staff).text


def test_a_search_finds_by_name_and_by_holder_with_all_of_its_words(staff, held):
    held("import:orders", label="manage.py load")
    held("import:stock", label="celery")
    held("report", label="manage.py load")

    assert look(staff, q="IMPORT").names == ["import:orders", "import:stock"]
    assert look(staff, q="load").names == ["import:orders", "report"]
    assert look(staff, q="import load").names == ["import:orders"]
    assert look(staff, q="nothing").names == []
    assert "No claim matches." in look(staff, q="nothing").text


def test_a_search_among_many_looks_at_names_first_and_offers_the_holders(staff, held, monkeypatch):
    monkeypatch.setattr("django_claims.admin.listing.SMALL", 2)
    held("load:a", "b", label="x")
    held("c", label="load")

    page = look(staff, q="load")
    assert page.names == ["load:a"]
    assert "only their names were searched" in page.text

    assert look(staff, q="load", **{"in": "holders"}).names == ["c", "load:a"]
    assert look(staff, q="x").names == ["b", "load:a"], "no name fits, so holders are searched at once"


def test_filters_narrow_by_group_state_and_host(staff, held):
    held("import:a", "import:b", "report:a", "importer")
    request_stop("import:b")

    page = look(staff)
    assert [choice in page.text for choice in ("import (2)", "report (1)")] == [True, True]
    assert look(staff, group="import").names == ["import:a", "import:b"]
    assert look(staff, group="import", state="held").names == ["import:a"]
    host = claim("import:a").lease().holder.host
    assert len(look(staff, host=host.upper()).names) == 4
    assert look(staff, host="elsewhere").names == []


def test_filters_by_alias(staff, settings, held):
    settings.CLAIMS = {
        "default": {"BACKEND": SHARED},
        "other": {"BACKEND": SHARED},
    }
    held("b")
    held("a", "b", using="other")

    assert look(staff).names == ["a", "b", "b"]
    assert look(staff, alias="other").names == ["a", "b"]
    assert look(staff, alias="default").names == ["b"]


def test_columns_sort_both_ways(staff, held):
    held("b", label="2")
    held("a", label="3")
    held("c", label="1")

    assert look(staff).names == ["a", "b", "c"]
    assert look(staff, o="-name").names == ["c", "b", "a"]
    assert look(staff, o="held").names == ["c", "a", "b"], "the youngest first"
    assert look(staff, o="-held").names == ["b", "a", "c"]
    assert look(staff, o="holder").names == ["c", "b", "a"]
    assert 'aria-sort="descending"' in look(staff, o="-held").source


def test_what_makes_no_sense_in_an_address_is_left_out(staff, held):
    held("a")

    for query in (
        {"o": "password"},
        {"p": "-1"},
        {"p": "9" * 30},
        {"p": "x"},
        {"p": "²"},
        {"state": "<b>"},
        {"alias": "?"},
    ):
        assert look(staff, **query).names == ["a"], query
    assert look(staff, run="x").names == ["a"]
    assert look(staff, run="1 nowhere:a").names == ["a"]


def test_pages_of_a_hundred(staff, held):
    held(*(f"job:{number:03d}" for number in range(250)))

    assert len(look(staff).names) == 100
    assert look(staff, p=3).names == [f"job:{number:03d}" for number in range(200, 250)]
    assert look(staff, p=99).names[-1] == "job:249", "past the end is the last one"
    assert "250 live claims" in look(staff).text
    links = re.findall(r'<a href="(\?[^"]*p=\d+)"', look(staff, group="job").source)
    assert links == ["?group=job&amp;p=2", "?group=job&amp;p=3"]


def test_rows_as_json_have_the_names_of_the_records_and_no_token(staff, held):
    hold = held("a")

    found = staff.get("/admin/django_claims/liveclaim/rows/").json()

    assert found["leases"][0]["name"] == "a"
    assert found["leases"][0].keys() == list_claims().as_dict()["leases"][0].keys()
    assert {"total", "page", "per_page", "complete"} <= found.keys()
    assert hold.token not in str(found)
    assert "data-key" in found["rows"]


def test_no_page_shows_an_owner_token(staff, held):
    hold = held("a")

    for address, *args in ((LIST,), (ROWS,), (CHANGE, "default:a")):
        assert hold.token not in look(staff, address, *args).source


def test_numbers_and_words_follow_the_readers_language(staff, held):
    tell(held("a"), 12345.5, 50000)
    staff.cookies["django_language"] = "de"

    page = look(staff)

    assert "12.345,5" in page.text
    assert '<progress value="0.2469" max="1"' in page.source


def test_no_script_or_style_stands_in_a_page(staff, held):
    tell(held("a"), 1, 2)
    request_stop("a")

    for page in (look(staff), look(staff, CHANGE, "default:a"), look(staff, FLAGS)):
        ours = page.source.split('id="content-main"')[1]
        assert re.findall(r"<script(?![^>]*\bsrc=)", ours) == []
        assert not re.search(r"<style|\sstyle=|\son\w+=", ours)


def test_a_run_is_followed_where_the_listing_misses_it(staff, shared, held):
    shared(f"{__name__}.SeesNothingBackend")
    fence = held("a").fence

    page = look(staff, run=f"{fence} default:a")

    assert page.names == []
    assert "a: Running" in page.text


def test_a_foreign_record_of_any_kind_breaks_no_page(staff, held):
    tell(held("nan"), 1, 2)
    tell(held("late"), 1, 2)
    tell(held("text"), 1, 2)
    rows = next(iter(memory.stores.values())).rows
    rows["nan"].progress = '[NaN, Infinity, "n", 0]'
    rows["text"].progress = '["<b>", [1], {"x": 1}, 0]'
    rows["late"].expires_us = 253_402_300_799_000_000  # the last second of the year 9999
    request_stop("kept", keep=True)

    for address, *args in ((LIST,), (CHANGE, "default:nan"), (CHANGE, "default:text"), (CHANGE, "default:late")):
        page = look(staff, address, *args)
        assert page.status == 200
        assert "<b>" not in page.source.split('id="content-main"')[1]
    for query in ({}, {"claim": "default:nan"}, {"claim": "default:late"}, {"o": "progress"}, {"o": "left"}):
        source = look(staff, ROWS, **query).source
        json.loads(source, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize("address", [LIST, ROWS, FLAGS])
def test_no_proxy_keeps_a_page(staff, held, address):
    held("a")

    response = staff.get(reverse(address))

    assert {"no-store", "private", "max-age=0"} <= set(response["Cache-Control"].split(", "))
    assert response["Content-Type"] == ("application/json" if address == ROWS else "text/html; charset=utf-8")


@pytest.mark.parametrize("use_tz", [True, False])
def test_the_times_of_a_page_name_their_zone(staff, held, settings, use_tz):
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Asia/Tokyo"
    held("a")

    assert re.search(r"read at \d\d:\d\d:\d\d \(Asia/Tokyo\)", look(staff).text)
    assert "By the clock of Asia/Tokyo." in look(staff, CHANGE, "default:a").text


def test_switches_survive_a_search_a_filter_a_sort_and_a_page(staff, held):
    held(*(f"import:{number:03d}" for number in range(201)))

    page = look(staff, q="import", group="import", o="-held", p="2")

    links = re.findall(r'href="(\?[^"]*)"', page.source)
    assert len(links) > 8
    for link in links:
        asked = QueryDict(html.unescape(link)[1:])
        assert (asked["q"], asked["group"]) == ("import", "import")
    assert '<input type="hidden" name="o" value="-held">' in page.source
    assert page.form("stop", page.names[0])["back"] == "q=import&group=import&o=-held&p=2"
