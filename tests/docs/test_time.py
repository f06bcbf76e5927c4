"""Each constant of seconds is on its page, with its value and what breaks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = re.compile(r"^([A-Z_]+(?:, [A-Z_]+)*)(?:: [\w\[\], .]+)? = ([^#\n]+?)  # (?:.*; )?seconds\b", re.M)
ROW = re.compile(r"^\| `([\w./]+)` ([A-Z_` ]+) \| ([^|]+) \| [^|]+ \| [^|]+ \|$", re.M)


def test_each_constant_of_seconds_is_on_the_page_with_its_value() -> None:
    """Its comment begins with the word. One that is not there was chosen without asking what it breaks."""
    found: set[tuple[str, ...]] = set()
    for folder in ("rota", "assets", "sensors", "resources", "dagster_project"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= {(str(path.relative_to(ROOT)), *one) for one in SECONDS.findall(path.read_text())}
    rows = ROW.findall((ROOT / "docs" / "time.md").read_text())
    listed = {(path, ", ".join(names.replace("`", "").split()), value) for path, names, value in rows}
    assert len(listed) == len(rows) > 50
    assert listed == found


def test_what_was_ten_things_is_called_what_it_is() -> None:
    rooms = ("core", "coordination", "ledger", "run", "group", "people", "face", "cli", "local", "demo")
    for room in rooms:
        for path in (ROOT / "rota" / room).rglob("*.py"):
            names = re.findall(r"^(PATIENCE|TRIES) =", path.read_text(), re.M)
            assert not names or path.name == "change.py", f"{path}: say what {names} is"


def test_every_module_that_asks_the_wall_clock_is_on_the_page() -> None:
    """The demo is left out: its observer has one clock."""
    asks = re.compile(r"\btime\.time\b|\bdatetime\.now\b")
    listed = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / "time.md").read_text().split("## Wall clocks")[1]))
    found = {
        str(file.relative_to(ROOT))
        for room in ("rota", "assets", "sensors", "resources")
        for file in (ROOT / room).rglob("*.py")
        if not any(part.is_symlink() for part in file.parents) and asks.search(file.read_text())
    }
    assert {one for one in found if not one.startswith("rota/demo/")} == listed
