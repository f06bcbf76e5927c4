"""The environment names of docs/protocol.md are the ones that `Settings` reads."""

import re
from dataclasses import fields
from pathlib import Path

from rota.settings import Settings

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_environment_is_documented() -> None:
    section = PROTOCOL.read_text().split("## Environment")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(ROTA_[A-Z_]+)` \|.*\| `([^`]+)` \|$", section, re.MULTILINE))
    assert list(rows) == [f"ROTA_{field.name.upper()}" for field in fields(Settings)]
    assert Settings.from_environment(rows) == Settings.from_environment({}), "the documented defaults are the defaults"
