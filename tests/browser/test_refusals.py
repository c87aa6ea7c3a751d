"""Who may not, gets nothing done: not by a button, not by a forged form, not by an old page."""

from django_claims.test import wait_until
from tests.browser.conftest import row_of, seen
from tests.browser.site import ACT, FLAGS, LIST

IMPORT = ("import_orders", "--pause=0.3")
FORBIDDEN = "status of 403"


def fence_of(page, name):
    return row_of(page, name).get_attribute("data-fence")


def send(page, token, **fields):
    """Post to the acts as a script on the page could, and return the status."""
    return page.evaluate(
        """async ([address, token, fields]) => {
            const body = new URLSearchParams(fields);
            const headers = token ? {"X-CSRFToken": token} : {};
            return (await fetch(address, {method: "POST", body, headers})).status;
        }""",
        [ACT, token, fields],
    )


def token_of(page):
    return next(one["value"] for one in page.context.cookies() if one["name"] == "csrftoken")


def test_who_may_only_look_sees_no_button_and_cannot_act(running, open_page):
    job = running(*IMPORT)
    page = seen(open_page("viewer", quiet=[FORBIDDEN]), "import-orders")

    assert page.locator("#content button:visible").all_inner_texts() == ["Search"]
    fields = {"act": "stop", "alias": "default", "name": "import-orders", "fence": fence_of(page, "import-orders")}
    assert send(page, token_of(page), **fields) == 403
    page.get_by_role("link", name="import-orders", exact=True).click()
    assert page.locator("#content button:visible").count() == 0
    assert job.poll() is None


def test_who_may_not_look_sees_nothing(running, open_page):
    page = open_page("stranger", path="/admin/", quiet=[FORBIDDEN])

    assert "Live claims" not in page.locator("body").inner_text()
    for path in (LIST, FLAGS):
        assert page.goto(path).status == 403


def test_a_forged_form_stops_nothing(running, open_page):
    job = running(*IMPORT)
    page = seen(open_page(quiet=[FORBIDDEN]), "import-orders")
    fields = {"act": "stop", "alias": "default", "name": "import-orders", "fence": fence_of(page, "import-orders")}

    assert send(page, None, **fields) == 403
    assert send(page, "x" * 32, **fields) == 403

    page.goto(LIST)
    assert "Running" in row_of(page, "import-orders").inner_text()
    assert job.poll() is None


def test_a_link_stops_nothing(running, open_page):
    job = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    fence = fence_of(page, "import-orders")

    link = f"{ACT}?act=stop&alias=default&name=import-orders&fence={fence}"
    assert page.context.request.get(link).status == 405

    page.goto(LIST)
    assert "Running" in row_of(page, "import-orders").inner_text()
    assert job.poll() is None


def test_an_old_page_does_not_stop_the_next_run(running, open_page):
    first = running(*IMPORT)
    page = seen(open_page(), "import-orders")
    first.terminate()
    first.wait(30)
    second = running(*IMPORT)
    other = open_page()
    old = fence_of(page, "import-orders")
    wait_until(
        lambda: (
            (row_of(other, "import-orders").count() and fence_of(other, "import-orders") != old)
            or (other.goto(LIST) and None)
        ),
        seconds=60,
    )

    page.get_by_role("button", name="Stop this run import-orders").click()

    assert "ended" in page.locator(".messagelist").inner_text()
    other.goto(LIST)
    assert "Running" in row_of(other, "import-orders").inner_text()
    assert second.poll() is None


def test_who_is_logged_out_is_told_and_the_page_asks_no_more(running, open_page):
    page = open_page()
    page.context.clear_cookies()
    page.select_option("#claims-every", label="every 5 seconds")

    page.get_by_text("You are no longer logged in.").wait_for()
    assert page.locator("#claims-every").input_value() == "0"
