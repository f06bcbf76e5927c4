"""Each constant of seconds stands on its page, with its value and with what breaks."""

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
            where = str(path.relative_to(ROOT))
            if not where.startswith("rota/sim/"):
                found |= {(where, *one) for one in SECONDS.findall(path.read_text())}
    rows = ROW.findall((ROOT / "docs" / "time.md").read_text())
    told = {(path, ", ".join(names.replace("`", "").split()), value) for path, names, value in rows}
    assert len(told) == len(rows) > 50
    assert told == found


def test_what_was_ten_things_is_called_what_it_is() -> None:
    rooms = ("core", "coordination", "ledger", "run", "group", "people", "face", "cli", "local", "demo", "sim")
    for room in rooms:
        for path in (ROOT / "rota" / room).rglob("*.py"):
            names = re.findall(r"^(PATIENCE|TRIES) =", path.read_text(), re.M)
            assert not names or path.name == "change.py", f"{path}: say what {names} is"
