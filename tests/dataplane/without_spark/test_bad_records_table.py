"""The table of bad records."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from rota.errors import Fenced
from tests.dataplane.delta_tables import batch, ledger


def test_bad_records_of_a_replay_alone_do_not_make_a_foreign_table(tmp_path: Path) -> None:
    """A replay may have the first bad records; the next live batch then accepts the quarantine table as its own."""
    aside = ledger(tmp_path)
    source = ledger(tmp_path / "other")
    claimed = source.claim({"p": 1}, {"p": 0})
    made = batch(aside, claimed)
    aside.append(made)
    again = aside.claim({"p": 1}, {"p": 0})
    assert again.offsets == {"p": 0}


def test_a_zombie_adds_no_column(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    zombie = table.claim({"p": 7}, {"p": 0})
    table.claim({"p": 8}, {"p": 0})
    before = DeltaTable(Path(table.location)).version()
    with pytest.raises(Fenced):
        table.commit(zombie, batch(table, zombie, late="long"))
    assert DeltaTable(Path(table.location)).version() == before
