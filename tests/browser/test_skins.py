"""The pages in the skins of the admin that people use."""

import importlib.util

import pytest

from tests.browser.conftest import WAIT_MS, row_of, seen
from tests.browser.site import FLAGS, Site
from tests.conftest import missing


@pytest.fixture(params=["unfold", "jazzmin", "grappelli"])
def skinned(request, tmp_path):
    skin = request.param
    if importlib.util.find_spec(skin) is None:
        missing(f"{skin} is not installed")
    site = Site(tmp_path, "tests.browser.skin_settings", CLAIMS_SKIN=skin)
    site.skin = skin
    yield site
    site.close()


def test_a_job_is_seen_and_stopped_in_another_skin(skinned, open_page, shot):
    job = skinned.start("import_orders", "--pause=0.3")
    skinned.manage("claims", "stop", "cleanup", "--keep", "--reason", "the disk is full")
    page = seen(open_page(on=skinned, quiet=["Failed to load resource", "cdn", "fonts."]), "import-orders")
    shot(page, f"skin-{skinned.skin}")
    button = page.get_by_role("button", name="Stop this run import-orders")
    colours = button.evaluate("one => [getComputedStyle(one).color, getComputedStyle(one).backgroundColor]")
    assert colours[0] != colours[1]
    assert button.bounding_box()["width"] > 60  # its words are inside

    row_of(page, "import-orders").get_by_role("link").first.click()
    page.get_by_role("button", name="Force release import-orders").wait_for(timeout=WAIT_MS)
    shot(page, f"skin-{skinned.skin}-detail", full_page=True)
    assert page.get_by_role("row", name="Name import-orders").count() == 1
    assert page.get_by_label("Reason").first.evaluate("one => getComputedStyle(one).borderStyle") == "solid"
    page.get_by_role("button", name="Stop this run import-orders").click()

    assert job.wait(40) == 0
    page.goto(FLAGS)
    assert "the disk is full" in page.locator("main, #content, .content-wrapper, body").first.inner_text()
    shot(page, f"skin-{skinned.skin}-flags")
