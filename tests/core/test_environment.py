"""The environment names of docs/protocol.md are the ones that `Settings` reads."""

import re
from dataclasses import fields
from pathlib import Path

from rota.errors import ConfigError
from rota.settings import SECRETS, Settings

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


def test_the_environment_is_documented() -> None:
    section = PROTOCOL.read_text().split("## Environment")[1].split("\n## ")[0]
    found = re.findall(r"^\| `(ROTA_[A-Z_]+)` (\*? ?)\|.*\| (`[^`]+`|none[^|]*) \|$", section, re.MULTILINE)
    assert [name for name, _, _ in found] == [f"ROTA_{field.name.upper()}" for field in fields(Settings)]
    assert {name for name, star, _ in found if star.strip()} == {f"ROTA_{name.upper()}" for name in SECRETS}
    rows = {name: default.strip("`") for name, _, default in found if default.startswith("`")}
    assert Settings.from_environment(rows) == Settings.from_environment({}), "the documented defaults are the defaults"


def test_a_secret_is_in_no_repr_and_comes_from_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("longsecret\n")
    read = Settings.from_environment({f"ROTA_{name.upper()}_FILE": str(file) for name in SECRETS})
    assert {getattr(read, name) for name in SECRETS} == {"longsecret"}
    assert "longsecret" not in repr(read)
    assert str(ConfigError("longsecret is wrong")) == "*** is wrong", "also where a message holds it by mistake"
