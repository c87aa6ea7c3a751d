"""Staff look at real jobs and stop them."""

import re

from django_claims.test import wait_until
from tests.browser.conftest import WAIT_MS, row_of, seen
from tests.browser.site import FLAGS, LIST

IMPORT = ("import_orders", "--pause=0.3")


def progress_of(page, name):
    return int(re.search(r"(\d+) of 300", row_of(page, name).inner_text())[1])


def test_a_job_is_seen_moves_is_stopped_and_goes(running, open_page, shot):
    job = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    assert "import_orders" in row_of(page, "import-orders").inner_text()

    page.select_option("#claims-every", label="every 5 seconds")
    page.evaluate("window.sameOldPage = true")
    began = progress_of(page, "import-orders")
    wait_until(lambda: progress_of(page, "import-orders") > began or page.wait_for_timeout(200), seconds=60)
    shot(page, "list")
    assert page.evaluate("window.sameOldPage") is True

    page.get_by_role("button", name="Stop this run import-orders").click()
    page.locator("#claims-followed", has_text="import-orders: has ended").wait_for(timeout=WAIT_MS)
    assert job.wait(20) == 0
    row_of(page, "import-orders").wait_for(state="detached")


def test_without_script_the_pages_work_by_links_and_buttons(running, open_page):
    job = running(*IMPORT)
    page = seen(open_page(java_script_enabled=False), "import-orders")
    assert not page.locator("#claims-every").is_visible()

    page.get_by_role("link", name="Refresh").click()
    page.get_by_role("button", name="Stop this run import-orders").click()

    assert job.wait(30) == 0
    page.get_by_role("link", name="Refresh").click()
    assert row_of(page, "import-orders").count() == 0


def test_by_keyboard_alone(running, open_page):
    job = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    button = page.get_by_role("button", name="Stop this run import-orders")

    for _ in range(80):
        page.keyboard.press("Tab")
        if button.evaluate("one => one === document.activeElement"):
            break
    outline = button.evaluate("one => getComputedStyle(one).outlineStyle")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    assert outline == "solid"
    assert job.wait(30) == 0


def test_the_focus_and_the_selection_stay_where_they_were(running, open_page):
    running(*IMPORT)
    page = seen(open_page(), "import-orders")
    box = page.get_by_role("checkbox", name="Select import-orders")
    box.check()
    page.get_by_role("button", name="Stop this run import-orders").focus()
    read = page.locator("#claims-read").inner_text()

    page.select_option("#claims-every", label="every 5 seconds")
    page.get_by_role("button", name="Stop this run import-orders").focus()
    wait_until(lambda: page.locator("#claims-read").inner_text() != read or page.wait_for_timeout(200), seconds=60)

    assert box.is_checked()
    assert "Stop this run" in page.evaluate("document.activeElement.textContent")


def test_a_hidden_tab_asks_nothing(running, open_page):
    page = open_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))

    def be(hidden):
        page.evaluate(
            "hidden => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange')); }",
            hidden,
        )

    page.select_option("#claims-every", label="every 5 seconds")
    be(True)
    page.wait_for_timeout(7000)  # nothing can be waited for: it must not happen
    assert asked == []
    be(False)
    wait_until(lambda: asked or page.wait_for_timeout(100), seconds=30)


def test_one_that_is_kept_stopped_runs_again_once_that_is_cleared(site, running, open_page, shot):
    job = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    row_of(page, "import-orders").get_by_role("link").click()
    shot(page, "detail", full_page=True)
    form = page.locator("form", has=page.get_by_role("button", name="Stop and keep stopped import-orders"))
    form.get_by_label("Reason").fill("the file is wrong <b>")
    form.get_by_role("button").click()

    assert job.wait(30) == 0
    refused = site.start(*IMPORT)
    assert refused.wait(60) == 75
    page.goto(FLAGS)
    assert "the file is wrong <b>" in page.locator("#content").inner_text()
    shot(page, "flags")
    page.get_by_role("button", name="Clear stop import-orders").click()
    page.wait_for_load_state()
    again = running(*IMPORT)
    seen(page, "import-orders")
    assert again.poll() is None


def test_a_forced_release_asks_first_and_the_holder_is_told(running, open_page, shot):
    job = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    row_of(page, "import-orders").get_by_role("link").click()
    page.get_by_role("button", name="Force release import-orders").click()
    assert "two may run at the same time" in page.locator("#content").inner_text()
    assert "Last heartbeat" in page.locator("#content").text_content()
    shot(page, "confirm")
    assert job.poll() is None

    page.get_by_role("button", name="Force release").click()

    assert job.wait(30) == 70  # lost while running


def test_several_are_stopped_at_once(running, open_page):
    first = running(*IMPORT)
    second = running("nightly_report", "--pause=5")
    page = seen(seen(open_page(), "import-orders"), "command:reports.nightly_report")
    page.get_by_role("checkbox", name="Select all on this page").check()
    page.select_option("#claims-act", "stop")
    page.get_by_role("button", name="Go").click()

    assert (first.wait(30), second.wait(30)) == (0, 0)


def test_names_are_text_wherever_they_stand(running, open_page):
    name = """<script>document.title="x"</script> "q" {{ 7 }} \u05d0\u05d1"""
    running("claims", "run", name, "--", "sleep", "100")
    page = seen(open_page(), name)

    page.get_by_role("link", name=name, exact=True).click()

    assert name in page.locator("#content").inner_text()
    assert page.title() != "x"


def test_nothing_is_wider_than_a_phone(running, open_page, shot):
    running(*IMPORT)
    page = seen(open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True), "import-orders")
    for path in (LIST, FLAGS, page.get_by_role("link", name="import-orders", exact=True).get_attribute("href")):
        page.goto(path)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, path
    page.goto(LIST)
    shot(page, "phone")


def test_when_nothing_is_held_the_page_says_so(open_page, shot):
    page = open_page(color_scheme="dark")

    assert "No live claims." in page.locator("#claims-empty").inner_text()
    shot(page, "empty")
