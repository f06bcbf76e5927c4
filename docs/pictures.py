"""Makes the pictures of these pages, and the printed lines of the README: `make pictures`.

It runs `rota demo`, then `rota up`, kills one of its workers, and looks at Dagster's page in a headless Chromium. It uses
commands and the page alone, as a user does. It needs the demo's data, Java and Chromium, and some four minutes.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Page, expect, sync_playwright
from recording import record_status

DOCS = Path(__file__).parent
ROOT = DOCS.parent
README = ROOT / "README.md"
HOME = "~/rota"  # what stands for this machine's folders
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
ROTA = [sys.executable, "-m", "rota"]
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
WIDTH = 110  # letters of a printed line
PATIENCE = 240.0  # seconds that a step may take
VICTIM = "w3"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rota-pictures-") as made:
        folder = Path(made).resolve()
        demo = subprocess.run([*ROTA, "demo"], cwd=folder, env=ENVIRON, capture_output=True, text=True)
        if demo.returncode:
            raise SystemExit(f"rota demo failed: {demo.stdout[-2000:]}{demo.stderr[-2000:]}")
        shutil.copyfile(folder / ".rota" / "demo" / "history.png", DOCS / "history.png")
        ended = demo.stdout[demo.stdout.index(f"{find_victim(demo.stdout)} was killed in a batch") :]
        write_block("make demo", [part for text in ended.strip().splitlines() for part in wrap(text)])
        with run_line(folder) as (printed, environ, address):
            write_block("make dev", [text.replace(str(folder), HOME).replace(str(ROOT), HOME) for text in printed])
            wait_for_year(environ)
            with record_status(environ, DOCS / "status.gif"):
                time.sleep(3)
                kill(VICTIM)
                wait_for_takeover(environ, VICTIM)
            take_pictures(address)


def find_victim(text: str) -> str:
    """The worker that the demo killed."""
    found = re.search(r"^(w\d) was killed in a batch", text, re.M)
    if found is None:
        raise SystemExit(f"rota demo killed nobody: {text[-2000:]}")
    return found[1]


def wrap(text: str) -> list[str]:
    """A printed line as it fits the page."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


def write_block(name: str, lines: list[str]) -> None:
    """Writes what a command printed into its block of the README."""
    block = f"<!-- {name} -->\n```\n" + "\n".join(lines) + "\n```\n<!-- end -->"
    README.write_text(re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _: block, README.read_text(), flags=re.S))


@contextmanager
def run_line(folder: Path) -> Iterator[tuple[list[str], dict[str, str], str]]:
    """A `rota up` of three workers in the folder: the lines until it was up, its variables, the address of the page."""
    command = [*ROTA, "up", "--workers", "3"]
    process = subprocess.Popen(command, cwd=folder, env=ENVIRON, stdout=subprocess.PIPE, text=True)
    try:
        lines: list[str] = []
        while not (lines and "Ctrl-C" in lines[-1]):
            lines.append(process.stdout.readline().rstrip() if process.stdout else "")
            if process.poll() is not None:
                raise SystemExit(f"rota up ended: {lines}")
        said = "\n".join(lines)
        exports = re.search(r"export (.*)$", said, re.M)
        address = re.search(r"look at +(\S+)", said)
        if exports is None or address is None:
            raise SystemExit(f"rota up did not say where it is: {said}")
        chosen = dict(word.split("=", 1) for word in shlex.split(exports[1]))
        yield lines, {**ENVIRON, **chosen}, address[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)


def read_status(environ: dict[str, str]) -> dict[str, list[dict[str, object]]]:
    """What `rota status` says."""
    said = subprocess.run([*ROTA, "status", "--json"], env=environ, capture_output=True, text=True)
    return json.loads(said.stdout) if said.returncode == 0 else {"partitions": [], "workers": []}


def wait_for_year(environ: dict[str, str]) -> None:
    """Waits until every partition has an owner and no lag."""

    def done() -> bool:
        now = read_status(environ)
        rested = [p for p in now["partitions"] if p["owner"] and p["offset"] and p["lag"] == 0]
        return len(now["workers"]) == 3 and len(rested) == len(now["partitions"]) == 16

    wait_until(done, "the year to be consumed")


def wait_for_takeover(environ: dict[str, str], gone: str) -> None:
    """Waits until others own what the dead worker had."""

    def done() -> bool:
        owners = [p["owner"] for p in read_status(environ)["partitions"]]
        return len(owners) == 16 and all(owners) and gone not in owners

    wait_until(done, f"the partitions of {gone} to be taken over")


def kill(worker: str) -> None:
    """SIGKILL to the process group of a worker of ours: a machine that lost its power."""
    for process in psutil.Process().children(recursive=True):
        if process.cmdline()[3:6] == ["worker", "--id", worker]:
            os.killpg(process.pid, signal.SIGKILL)
            return
    raise SystemExit(f"no process of {worker} is there")


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Looks once a second."""
    deadline = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:g} s for {what}")
        time.sleep(1)


def take_pictures(address: str) -> None:
    """The pictures of Dagster's page."""
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.set_default_timeout(60_000)
        page.goto(f"{address}/assets/default/assignment")
        expect(page.get_by_text(re.compile(rf"{VICTIM} .*partitions moved")).first).to_be_visible()
        page.get_by_text("Metadata", exact=True).first.evaluate("heading => heading.scrollIntoView()")
        drawn = page.get_by_role("img", name=re.compile("owners over time")).first
        wait_until(lambda: drawn.evaluate("image => image.complete && image.naturalWidth > 0"), "the epoch's picture")
        take_picture(page, "page-assignment")
        page.goto(f"{address}/assets/flights/records?view=partitions&partition=flights%3AUA")
        expect(page.get_by_role("row").filter(has=page.get_by_text("first rows", exact=True)).first).to_be_visible()
        take_picture(page, "page-partition")
        page.goto(f"{address}/assets/default/assignment?view=lineage&lineageDepth=5")
        page.set_viewport_size({"width": 1760, "height": 800})
        for asset in ("membership", "ownership", "records", "checkpoints", "delays"):
            expect(page.get_by_text(asset, exact=True).first).to_be_visible()
        take_picture(page, "page-lineage")
        browser.close()


def take_picture(page: Page, name: str) -> None:
    """One picture, once nothing of the page is loading."""
    page.wait_for_load_state("networkidle")
    expect(page.get_by_text("Loading")).to_have_count(0)
    page.screenshot(path=str(DOCS / f"{name}.png"))


if __name__ == "__main__":
    main()
