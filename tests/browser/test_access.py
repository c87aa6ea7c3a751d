"""For everybody: screen readers, languages, right to left, dark."""

import pytest

from django_claims.test import wait_until
from tests.browser.conftest import seen
from tests.browser.site import FLAGS, LIST
from tests.conftest import missing

IMPORT = ("import_orders", "--pause=0.3")


@pytest.fixture
def faults_of():
    """Return the serious faults that axe finds on the page."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        missing("axe-playwright-python is not installed")
    axe = Axe()

    def faults_of(page):
        found = axe.run(page, context="#content").response["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] != "minor"]

    return faults_of


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(site, running, open_page, faults_of, shot, scheme):
    running(*IMPORT)
    site.manage("claims", "stop", "cleanup", "--keep", "--reason", "the disk is full")
    page = seen(open_page(color_scheme=scheme), "import-orders")
    shot(page, f"list-{scheme}")
    assert faults_of(page) == []

    page.goto(FLAGS)
    assert faults_of(page) == []
    page.goto(f"{LIST}?q=nothing-fits")
    assert faults_of(page) == []
    page.goto(LIST)
    page.get_by_role("link", name="import-orders", exact=True).click()
    force = page.get_by_role("button", name="Force release import-orders")
    force.wait_for()
    assert faults_of(page) == []
    force.click()
    page.get_by_text("two may run at the same time").wait_for()
    assert faults_of(page) == []


@pytest.mark.parametrize(
    "locale, title", [("de", "Aktive Belegungen"), ("fr", "Réservations en cours"), ("es", "Reservas activas")]
)
def test_the_pages_speak_the_language_of_the_browser(running, open_page, shot, locale, title):
    running(*IMPORT)
    page = seen(open_page(locale=locale), "import-orders")

    assert page.locator("html").get_attribute("lang") == locale
    assert page.locator("#content h1").inner_text() == title
    assert "Stop this run" not in page.locator("#content").inner_text()
    shot(page, f"list-{locale}")


def test_right_to_left_nothing_falls_out_of_the_page(running, open_page, shot):
    running(*IMPORT)
    page = seen(open_page(locale="ar"), "import-orders")
    assert page.locator("html").get_attribute("dir") == "rtl"

    bar, button = page.locator(".claims progress"), page.get_by_role("button", name="import-orders").first
    wait_until(lambda: bar.count() or (page.goto(LIST) and None), seconds=30)
    assert button.bounding_box()["x"] < bar.bounding_box()["x"]  # the last column is on the left
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    shot(page, "rtl")


def test_a_table_tells_what_its_cells_are(running, open_page):
    running(*IMPORT)
    page = seen(open_page(), "import-orders")

    table = page.get_by_role("table", name="Live claims")
    assert table.get_by_role("columnheader").count() >= 7
    assert table.get_by_role("rowheader", name="import-orders").count() == 1
    wait_until(lambda: table.get_by_role("progressbar").count() or (page.goto(LIST) and None), seconds=30)
