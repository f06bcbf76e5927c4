"""The page as a person sees it, found by text: the epoch, a worker's name, a partition's lag, the lineage."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.face.line import Line, find_newest
from tests.waiting import LONG, wait_until

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]

IS_WHOLE = """image => {
    let box = image.parentElement;
    while (box.parentElement && getComputedStyle(box).overflowX === "visible") box = box.parentElement;
    return image.getBoundingClientRect().right <= box.getBoundingClientRect().right;
}"""

GO = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"


def follow(page: Page, path: str) -> None:
    """As a click on a link does: the page, of some megabytes of JavaScript, is loaded once."""
    page.evaluate(GO, path)


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=QUIET)
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.set_default_timeout(LONG * 1000)
        yield page
        browser.close()


def test_the_page_shows_epoch_worker_lag_and_lineage(line: Line, page: Page) -> None:
    expect.set_options(timeout=LONG * 1000)
    line.land("a", "x", 900)
    wait_until(lambda: ("a:x", 900) in line.rows("a"), pause=1)
    epoch = line.epoch("day")
    offset = len(list((line.landing / "a" / "x").glob("*.json")))
    wait_until(lambda: find_newest(line, "a", "checkpoints").get("a:x", {}).get("offset") == offset, pause=1)
    wait_until(lambda: find_newest(line, "day", "assignment").get("None", {}).get("epoch") == epoch.epoch, pause=1)

    page.goto(f"{line.dev.url}/assets/day/assignment")
    expect(page.get_by_text(f"Epoch {epoch.epoch}: ").first).to_be_visible()
    expect(page.get_by_text("w1", exact=True).first).to_be_visible()
    picture = page.get_by_role("img", name=re.compile("owners over time")).first
    wait_until(lambda: picture.evaluate("image => image.complete && image.naturalWidth > 0"), pause=0.5)
    assert picture.evaluate(IS_WHOLE), "nothing of it is cut"

    follow(page, "/assets/a/checkpoints?view=partitions&partition=a%3Ax")
    for label, number in (("lag", 0), ("offset", offset)):
        row = page.get_by_role("row").filter(has=page.get_by_text(label, exact=True)).first
        expect(row).to_have_text(re.compile(rf"^{label}\s*{number}$"))

    follow(page, "/assets/a/records?view=partitions&partition=a%3Ax")
    expect(page.get_by_role("cell", name="_offset", exact=True).first).to_be_visible()

    # The page of all assets folds each group into one box: the lineage is opened from an asset.
    follow(page, "/assets/day/assignment?view=lineage&lineageDepth=4")
    for asset in ("membership", "ownership", "records", "checkpoints"):
        expect(page.get_by_text(asset, exact=True).first).to_be_visible()
