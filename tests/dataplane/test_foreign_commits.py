"""A foreign table, or one whose rows another program changed, is left alone until it is adopted."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field

from rota.dataplane.delta.tables import open_table
from rota.errors import ForeignTable
from rota.ledger.ledger import Ledger
from rota.ledger.replacing import replace_rows
from rota.ledger.values import Batch, TableClaim
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, append_batch, batch, expect_rows, fill, ledger


def count_versions(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


@pytest.mark.parametrize("owner", [{"meta": "1" * 32}, {"group": "other"}], ids=["another ZooKeeper", "another group"])
def test_a_foreign_table_is_left_alone_until_it_is_adopted(tmp_path: Path, owner: dict[str, str]) -> None:
    mine = ledger(tmp_path)
    claimed = mine.claim({"p": 9}, {"p": 0})
    mine.commit(claimed, batch(mine, claimed))
    other = open_table(Path(mine.location), **{"group": "g", "meta": META, **owner})
    before = count_versions(Path(mine.location))
    with pytest.raises(ForeignTable, match="rota adopt"):
        other.claim({"p": 3}, {"p": 0})
    assert count_versions(Path(mine.location)) == before
    assert other.adopt() == 9  # the greatest token: the new token base lies above
    assert other.claim({"p": 10}, {"p": 0}).offsets == {"p": 2}
    with pytest.raises(ForeignTable):  # and the former group is stopped at once
        mine.claim({"p": 9}, {"p": 0})


def test_a_table_that_was_made_by_hand_is_foreign_once_it_has_rows(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    DeltaTable.create(tmp_path / "main", pa.schema([("_partition", pa.string()), ("_offset", pa.int64())]))
    (table := ledger(tmp_path)).check_owner(table.open_existing())
    write_deltalake(tmp_path / "main", pa.table({"_partition": ["p"], "_offset": [0]}), mode="append")
    with pytest.raises(ForeignTable):
        ledger(tmp_path).claim({"p": 1}, {"p": 0})


def restore(table: Ledger) -> None:
    DeltaTable(Path(table.location)).restore(2)


def empty(table: Ledger) -> None:
    DeltaTable(Path(table.location)).delete("_offset >= 2")


@pytest.mark.parametrize("change", [restore, empty], ids=["RESTORE", "DELETE"])
def test_a_table_whose_rows_another_program_took_is_left_alone_until_it_is_adopted(
    tmp_path: Path, change: Callable[[Ledger], None]
) -> None:
    """Its offsets are unchanged: if runs continued, the rows would be missing for ever. A replay restores them."""
    table = fill(tmp_path)
    change(table)
    before = count_versions(Path(table.location))
    for _ in range(2):
        with pytest.raises(ForeignTable, match=r"version 5 \((RESTORE|DELETE)\) changed rows, .* then: rota adopt"):
            append_batch(table)
    assert count_versions(Path(table.location)) == before
    assert ("(of p: 2 to 6)" in table.find_foreign_commits(["p"])["p"]) == (change is restore)
    assert table.adopt() == 1
    assert table.adopt() == 1
    assert count_versions(Path(table.location)) == before + 1, "adopted once"
    lost = TableClaim(None, 0, "", "", {}, {"p": 2}, {})
    replace_rows(table, batch(table, lost, ends={"p": 6}))
    append_batch(table)
    assert damage(Path(table.location), expect_rows(p=8)) == NO_DAMAGE


@pytest.mark.parametrize("change", [restore, empty], ids=["RESTORE", "DELETE"])
def test_without_looking_at_what_others_did_rows_are_gone(
    tmp_path: Path, change: Callable[[Ledger], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "find_foreign_commit", lambda *_: None)
    table = fill(tmp_path)
    change(table)
    append_batch(table)
    assert damage(Path(table.location), expect_rows(p=8))["lost"] == 4


@pytest.mark.parametrize("change", [restore, empty], ids=["RESTORE", "DELETE"])
def test_what_takes_rows_refuses_the_commit_that_was_claimed_before(
    tmp_path: Path, change: Callable[[Ledger], None]
) -> None:
    table = fill(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    made = batch(table, claimed)
    change(table)
    with pytest.raises(ForeignTable, match="changed rows"):
        table.commit(claimed, made)


@pytest.mark.parametrize("later", [0, 20], ids=["at once", "below other commits"])
def test_what_slips_in_between_a_claim_and_its_commit_is_found_by_the_next(tmp_path: Path, later: int) -> None:
    """Delta allows an append after another append."""
    from deltalake import write_deltalake

    table = fill(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    made = batch(table, claimed)
    write_deltalake(Path(table.location), pa.table({"_partition": ["p"], "_offset": [0]}), mode="append")
    assert table.commit(claimed, made).version == 6
    for number in range(later):
        DeltaTable(Path(table.location)).alter.set_table_properties({"delta.checkpointInterval": str(100 + number)})
    with pytest.raises(ForeignTable, match="WRITE"):
        append_batch(table)


def test_of_what_a_restore_took_only_what_was_read_is_to_be_replayed(tmp_path: Path) -> None:
    table = fill(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    table.commit(claimed, Batch("s", "run", "", "", 0, {"p": (6, 7)}, op="skip"))
    append_batch(table)
    replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 0}, {}), ends={"p": 1}))
    restore(table)
    assert table.find_foreign_commits(["p"])["p"].endswith("(of p: 0 to 1, 2 to 6, 7 to 9)")


def test_what_a_restore_took_is_named_also_below_what_else_was_done(tmp_path: Path) -> None:
    table = fill(tmp_path)
    restore(table)
    DeltaTable(Path(table.location)).delete("_offset = 0")
    assert "(DELETE) changed rows" in table.find_foreign_commits(["p"])["p"]
    assert table.find_foreign_commits(["p"])["p"].endswith("(of p: 2 to 6)")


def test_what_changes_no_row_stops_no_run(tmp_path: Path) -> None:
    table = fill(tmp_path)
    DeltaTable(Path(table.location)).optimize.compact()
    DeltaTable(Path(table.location)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(Path(table.location)).alter.add_columns(Field("later", "long"))
    DeltaTable(Path(table.location)).create_checkpoint()
    replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 2}, {}), ends={"p": 6}))
    assert not table.find_foreign_commits(["p"])
    append_batch(table)
    assert damage(Path(table.location), expect_rows(p=8)) == NO_DAMAGE


def test_a_commit_without_metadata_is_checked_too(tmp_path: Path) -> None:
    """`commitInfo` is optional in Delta; delta-rs passes such a commit over and gives its number to the one before."""
    table = fill(tmp_path)
    gone = log(Path(table.location)).files[0]
    removed = {"path": str(gone.relative_to(Path(table.location))), "deletionTimestamp": 0, "dataChange": True}
    said = [{"remove": removed}, {"domainMetadata": {"domain": "x", "configuration": "\u2028", "removed": False}}]
    version = DeltaTable(Path(table.location)).version() + 1
    commit = "\n".join(json.dumps(action, ensure_ascii=False) for action in said)
    (Path(table.location) / f"_delta_log/{version:020}.json").write_text(commit)
    DeltaTable(Path(table.location)).alter.set_table_properties({"delta.checkpointInterval": "50"})
    with pytest.raises(ForeignTable, match=rf"version {version} \(a commit\)"):
        append_batch(table)


def test_a_compaction_does_not_hide_a_restore(tmp_path: Path) -> None:
    table = fill(tmp_path)
    DeltaTable(Path(table.location)).restore(3)
    DeltaTable(Path(table.location)).optimize.compact()
    replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 0}, {}), ends={"p": 2}))
    with pytest.raises(ForeignTable, match="RESTORE"):
        append_batch(table)
