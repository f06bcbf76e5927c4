"""Operations in progress while a pipeline is renamed: late runs, owners, compactions, changes by others, replays."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.ports import ASSIGN
from rota.deltalog.port import Version
from rota.errors import ForeignTable
from rota.ids import rename_id
from rota.ledger.ledger import Ledger
from rota.ledger.replacing import replace_rows
from rota.ledger.values import Batch, TableClaim
from rota.people.adopt import adopt
from rota.people.rename import rename
from rota.run.consume import IdlePartition
from tests.dataplane.conftest import log
from tests.dataplane.delta_tables import batch
from tests.dataplane.landing_folders import open_files
from tests.dataplane.renamed_tables import count_each, count_rows, fill, tables
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_an_owner_of_before_the_rename_claims_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The page was reloaded and the new name claimed; then the worker with the old name returned, under a greater token,
    and consumed: the new name's owner would have a smaller token for ever."""
    fill(world, "0")
    world.call("q")
    world.give("a")
    world.call("p")
    world.join("w2")
    fill(world, "1")
    world.call("q")
    if not guarded:
        monkeypatch.setattr("rota.coordination.pipeline_records.free", lambda *_: None)
    owned = world.tree.owned(("q:a",))["q:a"]
    rename(world.tree, "p", world.pipeline)
    if guarded:
        assert world.tree.owned(("q:a",))["q:a"].incarnation is None
        settled_owner = world.give("a")
        assert [type(e) for e in world.run("a", incarnation=settled_owner, connect=no_spark)] == [IdlePartition]
        return
    with pytest.raises(ForeignTable, match=r"above .* of the partition's owner"):
        world.run("a", incarnation=owned.incarnation, connect=no_spark)


def read_index(world: World) -> Counter[tuple[object, object]]:
    """Return the rows of the index, from its log and its files."""
    return Counter((r["partition"], r["path"]) for r in log(world.table / "index").rows())


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_offsets_that_a_late_run_gave_under_the_old_name_are_gone_when_it_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A run that paused between the table and the index assigns new offsets to all files: no run uses them."""
    fill(world, "1")
    late = open_files(world.pipeline)
    fill(world, "0")
    world.call("q")
    if not guarded:

        def kept(index: FileIndex, table: Version, old: str, new: str) -> Any:
            removes, adds = {}, []
            for said, file in index.read_named_files(table):
                rows = pq.read_table(Path(file.location, file.path))
                ids = pa.array([rename_id(p, old, new) for p in rows["partition"].to_pylist()])
                adds += index.write_files(rows.set_column(0, rows.field(0), ids))
                removes[said["path"]] = said["size_bytes"]
            return removes, tuple(adds)

        monkeypatch.setattr(FileIndex, "rewrite_renamed", kept)
    rename(world.tree, "p", world.pipeline)
    late.observe(("p:a",), ASSIGN)
    assert open_files(world.pipeline).locate("q:a", 0) == "a/1.json"
    world.call("p")
    rename(world.tree, "q", world.pipeline)
    assert read_index(world) == dict.fromkeys([("p:a", "a/0.json"), ("p:a", "a/1.json")], 1 if guarded else 2)
    assert open_files(world.pipeline).locate("p:a", 0) == "a/1.json" or not guarded


@pytest.mark.parametrize("again", [7, 8], ids=["guarded", "without the guard"])
def test_the_index_goes_over_once_for_each_rename(world: World, again: int) -> None:
    """Rows of other names than the old one are dropped: the second time that would be all rows."""
    fill(world, "0", "1")
    for number in (7, again):
        open_files(world.pipeline).index.rename("p", "q", number)
    assert len(read_index(world)) == (2 if again == 7 else 0)


def test_a_compaction_beside_a_rename_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program's OPTIMIZE moves the rows while they are rewritten: the rename reads them again."""
    fill(world, "0")
    fill(world, "1")
    world.call("q")
    real, times = Ledger.check_on_disk, [2]

    def meanwhile(ledger: Ledger, files: Any) -> None:
        real(ledger, files)
        if times[0]:
            times[0] -= 1
            DeltaTable(Path(ledger.location)).optimize.compact()

    monkeypatch.setattr(Ledger, "check_on_disk", meanwhile)
    assert rename(world.tree, "p", world.pipeline) == 1
    assert (count_rows(world), count_rows(world, "quarantine")) == (count_each("q:a", 2), count_each("q:a", 2))


def test_a_rename_hides_no_rows_that_another_program_took(world: World) -> None:
    fill(world, "0")
    fill(world, "1")
    DeltaTable(world.table / "main").delete("_offset = 0")
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    world.give("a")
    assert "(DELETE) changed rows" in tables(world).main.find_foreign_commits(["q:a"])["q:a"]
    with pytest.raises(ForeignTable, match="DELETE"):
        tables(world).main.claim({"q:a": 1 << 40}, {"q:a": 0})
    adopt(world.tree, [world.pipeline])
    assert not tables(world).main.find_foreign_commits(["q:a"])


def test_a_log_that_was_shortened_loses_no_offset(world: World) -> None:
    """The group's records name its partitions."""
    fill(world, "0")
    fill(world, "1")
    world.call("q")
    DeltaTable(world.table / "main").optimize.compact()
    for version in sorted((world.table / "main" / "_delta_log").glob("*.json"))[:-1]:
        DeltaTable(world.table / "main").create_checkpoint()
        version.unlink()
    with pytest.raises(ForeignTable, match="is the table of pipeline"):
        adopt(world.tree, [world.pipeline])
    assert rename(world.tree, "p", world.pipeline) == 1
    assert tables(world).main.read_positions(("q:a",))["q:a"].offset == 2


def test_a_replay_after_a_rename_replaces_the_rows_of_before(world: World) -> None:
    fill(world, "0", "1")
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    main = tables(world).main
    replace_rows(main, batch(main, TableClaim(None, 0, "", "", {}, {"q:a": 0}, {}), ends={"q:a": 1}))
    assert count_rows(world) == count_each("q:a", 2)


def test_bad_records_of_a_late_replay_do_not_keep_the_table_of_them_from_the_new_name(world: World) -> None:
    """The first bad records of the pipeline come from a replay during which it was renamed: no run node names it. The table
    for them was made for the old name, and every batch of the new one with a bad record failed, for ever."""
    world.give("a")
    world.rows("a", "0", 1)
    (end,) = open_files(world.pipeline).observe(("p:a",), ASSIGN).ends.values()
    main, late = tables(world).main, tables(world).quarantine
    claimed = main.claim({"p:a": 9}, {"p:a": 0})
    main.commit(claimed, batch(main, claimed, ends={"p:a": end}))
    world.call("q")
    rename(world.tree, "p", world.pipeline)
    with pytest.raises(ForeignTable, match="is the table of pipeline 'q'"):
        late.append(Batch("late", "", "", "late", 0, {"p:a": (0, 1)}))
    aside = tables(world).quarantine
    assert aside.claim({"q:a": 9}, {"q:a": 0}).tokens == {"q:a": 9}
