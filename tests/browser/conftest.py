"""A real browser, and a real site to look at with it. What the browser complains of fails the test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from django_claims.test import wait_until
from tests.browser.site import LIST, PASSWORD, Site
from tests.conftest import missing

ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WAIT_MS = 40_000
POLICY = (
    "default-src 'self'; style-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types django-claims"
)


def pytest_collection_modifyitems(items):
    """A browser takes its time."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def chromium():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        missing("there is no Chromium on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The example, on SQLite."""
    site = Site(tmp_path_factory.mktemp("site"))
    yield site
    site.close()


@pytest.fixture
def running(site):
    """Start a command, which is ended with the test."""
    started = []

    def start(*arguments):
        started.append(site.start(*arguments))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.wait(30)


@pytest.fixture
def open_page(chromium, site, tmp_path):
    """Return a page of the site for somebody who has logged in; a strict policy holds, and errors are kept."""
    contexts, complaints = [], []

    def open_page(who="boss", path=LIST, on=None, quiet=(), **options):
        at = on or site
        context = chromium.new_context(base_url=at.url, **options)
        contexts.append(context)
        context.set_default_timeout(WAIT_MS)
        if on is None:
            context.route("**/admin/**", with_policy)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: (
                said.type in ("error", "warning")
                and not any(word in said.text for word in quiet)
                and complaints.append(said.text)
            ),
        )
        page.goto(f"/admin/login/?next={path}")
        page.fill("[name=username]", who)
        page.fill("[name=password]", PASSWORD)
        page.press("[name=password]", "Enter")
        page.wait_for_url(f"**{path}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def with_policy(route):
    """Serve a page as a site with a strict content security policy does."""
    if route.request.resource_type != "document":
        route.continue_()
        return
    answer = route.fetch(max_redirects=0)
    route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": POLICY})


def row_of(page, name):
    return page.locator("#claims-rows tr", has=page.get_by_role("link", name=name, exact=True))


def seen(page, name):
    """Return the page of the list once the claim stands on it."""
    wait_until(lambda: row_of(page, name).count() or (page.goto(LIST) and None), seconds=60)
    return page


@pytest.fixture
def shot(request):
    """Keep a picture where CLAIMS_TEST_PICTURES says, to be looked at by people."""

    def shot(page, name, **options):
        directory = os.environ.get("CLAIMS_TEST_PICTURES")
        if directory:
            page.screenshot(path=Path(directory) / f"{name}.png", **options)

    return shot
