"""The page as a person sees it, found by text: the epoch, a worker's name, a partition's lag."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.face.line import Line
from tests.face.test_face_line import newest
from tests.waiting import wait_until

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=QUIET)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def test_the_page_shows_epoch_worker_and_lag(line: Line, page: Page) -> None:
    expect.set_options(timeout=60_000)
    line.land("a", "x", 900)
    wait_until(lambda: "x" in newest(line, "a", "checkpoints"), 90, pause=0.5)
    epoch = line.epoch("day")
    page.goto(f"{line.dev.url}/assets/day/assignment")
    expect(page.get_by_text(f"Epoch {epoch.epoch}:").first).to_be_visible()
    expect(page.get_by_text("w1", exact=True).first).to_be_visible()
    page.goto(f"{line.dev.url}/assets/a/checkpoints?view=partitions&partition=x")
    expect(page.get_by_text("lag", exact=True).first).to_be_visible()
