"""
Remake the pictures of the docs: `python -m tests.browser.pictures`, from the root of a clone.

Needs Playwright, Pillow and a Chromium on PATH. Looks at `manage.py demo --serve` with real jobs, and at a site
without any; writes docs/images/*.png.
"""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Error, Page, sync_playwright

from django_claims.test import wait_until
from tests.browser.conftest import ARGUMENTS, WAIT_MS, row_of
from tests.browser.site import EXAMPLE, LIST, PASSWORD, Site
from tests.servers import free_port

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COLOURS = 128  # of a palette: the pages have few, and the files get small
LIMIT = 120_000  # bytes


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as directory:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        of_the_demo(browser, Path(directory))
        of_an_empty_site(browser, Path(directory))
        browser.close()


def of_the_demo(browser: Browser, directory: Path) -> None:
    log = directory / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE / "manage.py"), "demo", "--serve", f"--port={free_port()}"],
            cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        wait_until(lambda: "Ctrl-C ends it" in log.read_text() or process.poll() is not None, seconds=120)
        address, user, password = (
            re.search(rf"{word} +(\S+)", log.read_text())[1]  # type: ignore[index]
            for word in ("Open", "User", "Password")
        )
        page = logged_in(browser, address, user, password)
        wait_until(lambda: is_under_way(page, address), seconds=120)
        take(page, "admin-list")
        row_of(page, "import-orders").get_by_role("link", name="import-orders", exact=True).click()
        page.get_by_text(re.compile("Force release")).first.wait_for()
        take(page, "admin-detail", whole=True)
        page.get_by_role("button", name=re.compile("Force release")).first.click()
        page.wait_for_load_state()
        take(page, "admin-confirm")
        dark = logged_in(browser, address, user, password, color_scheme="dark")
        take(dark, "admin-dark")
        phone = logged_in(
            browser, address, user, password, viewport={"width": 390, "height": 780}, device_scale_factor=2
        )
        take(phone, "admin-phone")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def of_an_empty_site(browser: Browser, directory: Path) -> None:
    (directory / "empty").mkdir()
    site = Site(directory / "empty")
    try:
        take(logged_in(browser, site.url + LIST, "boss", PASSWORD), "admin-empty")
    finally:
        site.close()


def logged_in(browser: Browser, address: str, user: str, password: str, **options: Any) -> Page:
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 640}, "locale": "en", **options})
    context.add_init_script("localStorage.setItem('django.admin.navSidebarIsOpen', 'false')")  # the models at the left
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    wait_until(lambda: opened(page, address), seconds=60)
    page.fill("#id_username", user)
    page.fill("#id_password", password)
    page.press("#id_password", "Enter")
    page.wait_for_url(address)
    return page


def opened(page: Page, address: str) -> object:
    try:
        return page.goto(address)
    except Error:
        return None  # it does not listen yet


def is_under_way(page: Page, address: str) -> bool:
    """Say whether all jobs stand on the page, and the import has got somewhere."""
    page.goto(address)
    rows = [row_of(page, name) for name in ("import-orders", "backup:photos", "backup:letters", "cleanup:old-orders")]
    return all(row.count() for row in rows) and bool(re.search(r"[3-9]\d of 300", rows[0].inner_text()))


def take(page: Page, name: str, whole: bool = False) -> None:
    """Write a picture with a palette, below the limit."""
    picture = Image.open(io.BytesIO(page.screenshot(full_page=whole))).convert("RGB").quantize(COLOURS)
    path = IMAGES / f"{name}.png"
    picture.save(path, optimize=True)
    print(f"{path.name}: {path.stat().st_size // 1000} kB")
    assert path.stat().st_size < LIMIT, f"{path.name} is too large"


if __name__ == "__main__":
    main()
