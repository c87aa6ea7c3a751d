"""For everybody: screen readers, languages, right to left, dark."""

import pytest

from django_claims.clock import clock
from django_claims.test import wait_until
from tests.browser.conftest import seen
from tests.browser.site import FLAGS, LIST
from tests.conftest import missing

PHONE = {"width": 390, "height": 780}
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
        found = axe.run(page, context={"include": ["#content", ".breadcrumbs"]}).response["violations"]
        return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found if one["impact"] != "minor"]

    return faults_of


LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "rtl": {"locale": "ar"},
    "phone": {"viewport": PHONE, "is_mobile": True, "has_touch": True},
}


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_no_fault(site, running, open_page, faults_of, shot, look):
    running(*IMPORT)
    site.manage("claims", "stop", "cleanup", "--keep", "--reason", "the disk is full")
    page = seen(open_page(**LOOKS[look]), "import-orders")
    shot(page, f"list-{look}")
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


LONG = ("x" * 500, "billing:" + "a name of many words, with blanks " * 3 + "and an end")


@pytest.mark.parametrize("locale", ["de", "fr", "ar"])
def test_everything_is_within_reach_at_any_width_and_with_the_longest_names(long_named, open_page, locale):
    page = open_page(locale=locale)
    reach(page)
    assert page.locator("#claims-rows button").count() >= len(LONG)
    for link in page.locator("#claims-rows th a").evaluate_all("all => all.map(one => one.href)"):
        page.goto(link)
        reach(page)
    page.goto(LIST)
    page.locator("#claims-all").check()
    page.select_option("#claims-act", "force_release")
    page.locator("#claims-many button").click()
    page.locator(".claims-form .claims-force").wait_for()
    reach(page)
    page.goto(FLAGS)
    reach(page)


@pytest.fixture(scope="module")
def long_named(site):
    """Commands with the longest names, of which one is asked to stop, and a stop that says a lot."""
    started = [site.start("claims", "run", name, "--", "sleep", "300") for name in LONG]
    site.manage("claims", "stop", "k" * 500, "--keep", "--reason", "r" * 500)
    for name in LONG:
        wait_until(lambda name=name: name in site.manage("claims", "list", "--json"), seconds=60)
    yield
    for process in started:
        process.terminate()
        process.wait(30)
    site.manage("claims", "clear-stop", "k" * 500)


def reach(page):
    """Assert that nothing on the page must be scrolled to sideways, at any width."""
    for width in (360, 768, 1024, 1200, 1366, 1460, 1600):
        page.set_viewport_size({"width": width, "height": 900})
        ends = clock() + 5
        while (found := beyond(page)) and clock() < ends:
            page.wait_for_timeout(50)  # until it is laid out anew
        assert (width, found) == (width, [])


def beyond(page):
    return page.evaluate(
        """() => {
            const wide = document.documentElement.clientWidth;
            const tables = Array.from(document.querySelectorAll(".claims-table"));
            const scrolled = tables.filter((one) => one.scrollWidth > one.clientWidth);
            const parts = Array.from(document.querySelectorAll("#content a, #content button, #content input"));
            const out = parts.filter((one) => one.checkVisibility() && !one.closest(".claims-hidden")).filter((one) => {
                const box = one.getBoundingClientRect();
                return box.left < 0 || box.right > wide + 1;
            });
            return [...scrolled, ...out].map((one) => one.outerHTML.slice(0, 100));
        }"""
    )


@pytest.mark.parametrize("path", [LIST, FLAGS])
def test_the_way_back_stands_above_a_page(open_page, path):
    page = open_page(path=path)
    way = page.get_by_role("navigation", name="Breadcrumbs")

    wait_until(lambda: way.get_by_role("link").all_inner_texts() == ["Home", "django-claims"])
    assert way.locator("[aria-current=page]").inner_text() == page.locator("#content h1").inner_text()


def test_the_way_from_a_claim_leads_to_the_list(running, open_page):
    running(*IMPORT)
    page = seen(open_page(), "import-orders")
    page.get_by_role("link", name="import-orders", exact=True).click()
    way = page.get_by_role("navigation", name="Breadcrumbs")
    wait_until(lambda: way.get_by_role("link").all_inner_texts() == ["Home", "django-claims", "Live claims"])
    assert way.locator("[aria-current=page]").inner_text() == "import-orders"

    page.get_by_role("button", name="Force release import-orders").click()
    page.get_by_text("two may run at the same time").wait_for()
    assert page.title().startswith("Force release | ")
    way.get_by_role("link", name="Live claims").click()

    page.wait_for_url(f"**{LIST}")
