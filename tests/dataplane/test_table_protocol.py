"""docs/protocol.md lists what the tables hold: columns, transactions, metadata."""

import re
from pathlib import Path

from rota.dataplane.files import file_index
from rota.dataplane.spark import quarantine
from rota.ledger import schema
from rota.ledger.entries import KEYS, describe_commit
from rota.ledger.values import Batch

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text().partition("## Tables")[2].partition("\n## ")[0]


def row(first: str) -> str:
    return next(line for line in TEXT.splitlines() if line.startswith(f"| `{first}`"))


def test_the_columns() -> None:
    kinds = re.compile(r"`(\w+)` (string|long|binary)")
    assert dict(kinds.findall(row("main"))) == schema.NEEDED
    assert dict(kinds.findall(row("quarantine"))) == quarantine.KINDS
    arrow = {f.name: "long" if str(f.type) == "int64" else str(f.type) for f in file_index.SCHEMA}
    assert dict(kinds.findall(row("index"))) == arrow


def test_the_metadata_of_a_commit() -> None:
    documented = set(re.findall(r"^\| `rota\.(\w+)` \|", TEXT, re.M))
    assert documented == {*KEYS, "replayed", "renamed", "took", "index"}
    one = Batch("c", "r", "w@0", "r-a", 1, {"p": (0, 1)})
    assert set(describe_commit(one, "g", {"p": 1})) == {f"rota.{k}" for k in KEYS}


def test_the_transactions() -> None:
    documented = re.findall(r"^\| `(rota/[^`]+)` \|", TEXT, re.M)
    assert documented == [
        "rota/<group>/<partition>/offset",
        "rota/<group>/<partition>/token",
        "rota/<group>/<partition>/leader-epoch",
        "rota/<group>/id/<meta id>",
        "rota/adopted",
        "rota/pipeline/<pipeline>",
        "rota/renaming",
        "rota/renamed/<old>/to/<new>",
        "rota/renamed",
        "rota/<partition>/index",
    ]  # test_fenced_table and test_landing check the values
