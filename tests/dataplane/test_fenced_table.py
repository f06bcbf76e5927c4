"""The table alone fences: each law with two handles, each guard with what happens without it.

The checker reads the log as JSON and the files with pyarrow (see conftest); it shares no code with the ledger.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError

from rota.dataplane import columns, footers, names
from rota.dataplane.delta import replacement
from rota.dataplane.delta.commit_info import KEYS
from rota.dataplane.delta.fenced_table import FencedTable
from rota.dataplane.ports import Batch, TableClaim
from rota.errors import BadTransform, EnvironmentFailed, Fenced, ForeignTable, OffsetGap
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, batch, expected, ledger


def test_a_batch_moves_rows_offset_and_token_together(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    assert table.read_positions(("p",))["p"].offset is None
    assert not table.path.exists()
    claimed = table.claim({"p": 7, "q": 8}, {"p": 0, "q": 0})
    assert table.commit(claimed, one := batch(table, claimed)) == 2
    assert {p: (s.offset, s.token) for p, s in table.read_positions(("p", "q")).items()} == {"p": (2, 7), "q": (2, 8)}
    assert damage(table.path, expected(p=2, q=2)) == NO_DAMAGE
    (said,) = log(table.path).said("commit")
    assert {f"rota.{k}" for k in KEYS} <= set(said)
    assert json.loads(str(said["rota.tokens"])) == {"p": 7, "q": 8}
    assert table.read_log()[0].commit == one.id


def test_the_names_of_the_transactions(tmp_path: Path) -> None:
    table = ledger(tmp_path, pipeline="pipe")
    table.claim({"p": 7}, {"p": 5})
    assert log(table.path).transactions == {
        "rota/g/p/token": 7, "rota/g/p/offset": 5, f"rota/g/id/{META}": 1, "rota/adopted": 1, "rota/pipeline/pipe": 1,
    }  # fmt: skip


def test_a_second_claim_of_the_same_owner_writes_nothing(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    table.claim({"p": 7}, {"p": 0})
    assert table.claim({"p": 7}, {"p": 0}).version == 1


def test_an_owner_that_was_overtaken_is_fenced_whatever_it_tries(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    zombie = table.claim({"p": 1, "q": 1}, {"p": 0, "q": 0})
    late = batch(table, zombie)
    newer = table.claim({"p": 2}, {"p": 0})
    with pytest.raises(Fenced) as fenced:
        table.commit(zombie, late)
    assert fenced.value.partitions == ("p",)
    table.commit(newer, batch(table, newer))
    with pytest.raises(Fenced):
        table.renew(zombie, ("p",))
    assert table.claim({"p": 1}, {"p": 0}).newer == {"p": 2}
    assert damage(table.path, expected(p=2)) == NO_DAMAGE


def test_two_runs_of_one_owner_write_a_range_once(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    one, two = table.claim({"p": 1}, {"p": 0}), table.claim({"p": 1}, {"p": 0})
    table.commit(one, batch(table, one))
    with pytest.raises(OffsetGap) as moved:
        table.commit(two, batch(table, two))
    assert moved.value.facts["partitions"] == ("p",)
    assert damage(table.path, expected(p=2)) == NO_DAMAGE


def test_a_conflict_over_another_partition_is_no_fence(tmp_path: Path) -> None:
    """A batch of p and q where q moved: p alone goes in on the renewed claim."""
    table = ledger(tmp_path)
    both, other = table.claim({"p": 1, "q": 1}, {"p": 0, "q": 0}), table.claim({"q": 2}, {"q": 0})
    table.commit(other, batch(table, other))
    with pytest.raises(Fenced) as fenced:
        table.commit(both, batch(table, both))
    assert fenced.value.partitions == ("q",)
    again = table.renew(both, ("p",))
    table.commit(again, batch(table, again))
    assert damage(table.path, expected(p=2, q=2)) == NO_DAMAGE


def test_ranges_start_where_the_table_ends(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    gap = batch(table, claimed)
    with pytest.raises(OffsetGap) as gapped:
        table.commit(claimed, Batch(**{**{f: getattr(gap, f) for f in gap.__slots__}, "ranges": {"p": (1, 2)}}))
    assert gapped.value.facts["partitions"] == ("p",)


# --- a reply that got lost ------------------------------------------------------------------------------------------


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The next writing of a batch: `before` it happens, or `after` it did, this is called and its error raised."""

    def arm(before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        real, armed = DeltaTable.create_write_transaction, [True]

        def write(table: DeltaTable, actions: list[Any], *args: Any, **more: Any) -> None:
            ours = bool(actions) and bool(armed) and bool(armed.pop())
            if ours:
                before()
            real(table, actions, *args, **more)
            if ours:
                after()

        monkeypatch.setattr(DeltaTable, "create_write_transaction", write)

    return arm


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


LOST = [OSError("timeout"), CommitFailedError("conflict with itself, after a retried put")]


@pytest.mark.parametrize("error", LOST, ids=["timeout", "conflict"])
def test_a_commit_that_landed_without_a_reply_is_found(
    tmp_path: Path, interfere: Callable[..., None], error: Exception
) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(after=fail(error))
    assert table.commit(claimed, one) == 2
    assert damage(table.path, expected(p=2)) == NO_DAMAGE


def test_it_is_found_below_the_commits_of_others(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})

    def others() -> None:
        for _ in range(3):
            other = table.claim({"q": 1}, {"q": 0})
            table.commit(other, batch(table, other))
        raise OSError("late")

    one = batch(table, claimed)
    interfere(after=others)
    assert table.commit(claimed, one) == 2
    assert damage(table.path, expected(p=2, q=6)) == NO_DAMAGE


def test_without_looking_into_the_history_it_is_written_twice(
    tmp_path: Path, interfere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for look in ("find_commit", "_check_unmoved"):
        monkeypatch.setattr(FencedTable, look, lambda *_: None)
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(after=fail(LOST[1]))
    with pytest.raises(EnvironmentFailed, match="the commit is not in the log"):
        table.commit(claimed, one)
    assert damage(table.path, expected(p=2))["overlaps"] == 2


def test_a_commit_that_never_landed_is_an_error_of_the_disk(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(before=fail(OSError("No space left on device")))
    with pytest.raises(EnvironmentFailed, match="No space left"):
        table.commit(claimed, one)
    assert table.commit(claimed, one) == 2


def test_another_schema_in_between_is_no_fence(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(
        before=lambda: DeltaTable(table.path).alter.add_columns(columns.find_added(columns.FIRST, [schema(b="long")]))
    )
    table.commit(claimed, one)
    assert damage(table.path, expected(p=2)) == NO_DAMAGE


# --- without the guards ---------------------------------------------------------------------------------------------


def test_on_a_fresh_handle_the_zombie_doubles_rows(tmp_path: Path) -> None:
    """delta-rs compares no versions of transactions: only the handle on which the offset was read fences."""
    table = ledger(tmp_path)
    zombie = table.claim({"p": 1}, {"p": 0})
    late, newer = batch(table, zombie), table.claim({"p": 2}, {"p": 0})
    table.commit(newer, batch(table, newer))
    table.commit(replace(zombie, snapshot=table.open()), late)
    wrong = damage(table.path, expected(p=2))
    assert (wrong["doubled"], wrong["overlaps"], wrong["backwards"]) == (2, 2, 1)


def test_without_tokens_an_old_owner_takes_the_partition_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FencedTable, "_find_newer", lambda *_: {})
    table = ledger(tmp_path)
    for token in (1, 2, 1):
        claimed = table.claim({"p": token}, {"p": 0})
        table.commit(claimed, batch(table, claimed))
    assert damage(table.path, expected(p=6))["backwards"] == 1


def test_without_identity_another_zookeeper_writes_into_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FencedTable, "check_owner", lambda *_: None)
    for meta in (META, "1" * 32):
        table = ledger(tmp_path, meta=meta)
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed))
    assert len(log(table.path).said("commit")) == 2


# --- whose table ----------------------------------------------------------------------------------------------------


def version(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


@pytest.mark.parametrize("who", [{"meta": "1" * 32}, {"group": "other"}], ids=["another ZooKeeper", "another group"])
def test_a_foreign_table_is_left_alone_until_it_is_adopted(tmp_path: Path, who: dict[str, str]) -> None:
    mine = ledger(tmp_path)
    claimed = mine.claim({"p": 9}, {"p": 0})
    mine.commit(claimed, batch(mine, claimed))
    other = FencedTable(mine.path, **{"group": "g", "meta": META, **who})
    before = version(mine.path)
    with pytest.raises(ForeignTable, match="rota adopt"):
        other.claim({"p": 3}, {"p": 0})
    assert version(mine.path) == before
    assert other.adopt() == 9  # the greatest token: the new token base lies above
    assert other.claim({"p": 10}, {"p": 0}).offsets == {"p": 2}
    with pytest.raises(ForeignTable):  # and the former group is stopped at once
        mine.claim({"p": 9}, {"p": 0})


def test_a_table_that_somebody_made_by_hand_is_foreign_once_it_has_rows(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    DeltaTable.create(tmp_path / "main", pa.schema([("_partition", pa.string()), ("_offset", pa.int64())]))
    ledger(tmp_path).check_owner(DeltaTable(tmp_path / "main"))
    write_deltalake(tmp_path / "main", pa.table({"_partition": ["p"], "_offset": [0]}), mode="append")
    with pytest.raises(ForeignTable):
        ledger(tmp_path).claim({"p": 1}, {"p": 0})


# --- a table whose rows somebody else changed -----------------------------------------------------------------------


def restored(table: FencedTable) -> None:
    DeltaTable(table.path).restore(2)


def emptied(table: FencedTable) -> None:
    DeltaTable(table.path).delete("_offset >= 2")


def filled(folder: Path, **more: Any) -> FencedTable:
    """Offsets 0 to 5 of p; after version 2 the table holds the first two."""
    table = ledger(folder, **more)
    for _ in range(3):
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed))
    return table


def go_on(table: FencedTable) -> None:
    claimed = table.claim({"p": 1}, {"p": 0})
    table.commit(claimed, batch(table, claimed))


@pytest.mark.parametrize("change", [restored, emptied], ids=["RESTORE", "DELETE"])
def test_a_table_whose_rows_somebody_took_is_left_alone_until_it_is_adopted(
    tmp_path: Path, change: Callable[[FencedTable], None]
) -> None:
    """Its offsets stand where they stood: whoever went on would leave the hole for good. A replay fills it."""
    table = filled(tmp_path)
    change(table)
    before = version(table.path)
    for _ in range(2):
        with pytest.raises(ForeignTable, match=r"version 5 \((RESTORE|DELETE)\) changed rows, .* then: rota adopt"):
            go_on(table)
    assert version(table.path) == before
    assert ("(of p: 2 to 6)" in table.find_foreign_commits(["p"])["p"]) == (change is restored)
    assert table.adopt() == 1
    assert table.adopt() == 1
    assert version(table.path) == before + 1, "adopted once"
    lost = TableClaim(None, 0, "", "", {}, {"p": 2}, {})
    replacement.replace_rows(table, batch(table, lost, ends={"p": 6}))
    go_on(table)
    assert damage(table.path, expected(p=8)) == NO_DAMAGE


@pytest.mark.parametrize("change", [restored, emptied], ids=["RESTORE", "DELETE"])
def test_without_looking_at_what_others_did_rows_are_gone(
    tmp_path: Path, change: Callable[[FencedTable], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FencedTable, "_find_foreign_commit", lambda *_: None)
    table = filled(tmp_path)
    change(table)
    go_on(table)
    assert damage(table.path, expected(p=8))["lost"] == 4


@pytest.mark.parametrize("change", [restored, emptied], ids=["RESTORE", "DELETE"])
def test_what_takes_rows_refuses_the_commit_that_was_claimed_before(
    tmp_path: Path, change: Callable[[FencedTable], None]
) -> None:
    table = filled(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    made = batch(table, claimed)
    change(table)
    with pytest.raises(ForeignTable, match="changed rows"):
        table.commit(claimed, made)


@pytest.mark.parametrize("later", [0, 20], ids=["at once", "below other commits"])
def test_what_slips_in_between_a_claim_and_its_commit_is_found_by_the_next(tmp_path: Path, later: int) -> None:
    """Delta lets an append pass an append."""
    from deltalake import write_deltalake

    table = filled(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    made = batch(table, claimed)
    write_deltalake(table.path, pa.table({"_partition": ["p"], "_offset": [0]}), mode="append")
    assert table.commit(claimed, made) == 6
    for number in range(later):
        DeltaTable(table.path).alter.set_table_properties({"delta.checkpointInterval": str(100 + number)})
    with pytest.raises(ForeignTable, match="WRITE"):
        go_on(table)


def test_of_what_a_restore_took_only_what_was_read_is_to_be_replayed(tmp_path: Path) -> None:
    table = filled(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    table.commit(claimed, Batch("s", "who", "", "", 0, {"p": (6, 7)}, op="skip"))
    go_on(table)
    replacement.replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 0}, {}), ends={"p": 1}))
    restored(table)
    assert table.find_foreign_commits(["p"])["p"].endswith("(of p: 0 to 1, 2 to 6, 7 to 9)")


def test_what_a_restore_took_is_named_also_below_what_else_was_done(tmp_path: Path) -> None:
    table = filled(tmp_path)
    restored(table)
    DeltaTable(table.path).delete("_offset = 0")
    assert "(DELETE) changed rows" in table.find_foreign_commits(["p"])["p"]
    assert table.find_foreign_commits(["p"])["p"].endswith("(of p: 2 to 6)")


def test_what_changes_no_row_stops_nobody(tmp_path: Path) -> None:
    table = filled(tmp_path)
    DeltaTable(table.path).optimize.compact()
    DeltaTable(table.path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(table.path).alter.add_columns(Field("later", "long"))
    DeltaTable(table.path).create_checkpoint()
    replacement.replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 2}, {}), ends={"p": 6}))
    assert not table.find_foreign_commits(["p"])
    go_on(table)
    assert damage(table.path, expected(p=8)) == NO_DAMAGE


def test_a_commit_that_says_nothing_of_itself_is_looked_at_too(tmp_path: Path) -> None:
    """`commitInfo` is optional in Delta; delta-rs passes such a commit over and gives its number to the one before."""
    table = filled(tmp_path)
    gone = log(table.path).files[0]
    removed = {"path": str(gone.relative_to(table.path)), "deletionTimestamp": 0, "dataChange": True}
    said = [{"remove": removed}, {"domainMetadata": {"domain": "x", "configuration": "\u2028", "removed": False}}]
    version = DeltaTable(table.path).version() + 1
    commit = "\n".join(json.dumps(action, ensure_ascii=False) for action in said)
    (table.path / f"_delta_log/{version:020}.json").write_text(commit)
    DeltaTable(table.path).alter.set_table_properties({"delta.checkpointInterval": "50"})
    with pytest.raises(ForeignTable, match=rf"version {version} \(a commit\)"):
        go_on(table)


def test_a_compaction_does_not_hide_a_restore(tmp_path: Path) -> None:
    table = filled(tmp_path)
    DeltaTable(table.path).restore(3)
    DeltaTable(table.path).optimize.compact()
    replacement.replace_rows(table, batch(table, TableClaim(None, 0, "", "", {}, {"p": 0}, {}), ends={"p": 2}))
    with pytest.raises(ForeignTable, match="RESTORE"):
        go_on(table)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_copy_that_took_the_place_of_the_table_refuses_what_was_claimed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """A backup brought back while a run works, and another partition consumed into it up to the version of the claim:
    the offsets that the copy does not have would be passed over."""
    if not guarded:
        monkeypatch.setattr(FencedTable, "_check_same_copy", lambda *_: None)
    table = ledger(tmp_path)
    first = table.claim({"p": 1}, {"p": 0})
    table.commit(first, batch(table, first))
    shutil.copytree(table.path, tmp_path / "copy")
    second = table.claim({"p": 1}, {"p": 0})
    table.commit(second, batch(table, second))
    late = table.claim({"p": 1}, {"p": 0})
    made = batch(table, late)
    shutil.rmtree(table.path)
    (tmp_path / "copy").rename(table.path)
    table.claim({"q": 1}, {"q": 0})
    with pytest.raises(EnvironmentFailed, match="is not the one of the claim") if guarded else nullcontext():
        table.commit(late, Batch(**{**{f: getattr(made, f) for f in made.__slots__}, "files": ()}))
    stands = table.read_positions(("p",))["p"].offset or 0
    wrong = damage(table.path, expected(p=stands))
    assert (wrong["lost"] > 0, wrong["gaps"]) == ((False, 0) if guarded else (True, 2))


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("verb", ["commit", "replay", "bad records of a replay"])
def test_a_copy_without_what_the_run_wrote_is_not_made_to_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, guarded: bool
) -> None:
    """A table that names files that are not there is read by nobody any more."""
    if not guarded:
        for look in ("_check_same_copy", "check_on_disk"):
            monkeypatch.setattr(FencedTable, look, lambda *_: None)
    table = filled(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    shutil.copytree(table.path, tmp_path / "copy")
    made = batch(table, claimed if verb == "commit" else TableClaim(None, 0, "", "", {}, {"p": 2}, {}))
    shutil.rmtree(table.path)
    (tmp_path / "copy").rename(table.path)
    with pytest.raises(EnvironmentFailed, match=r"which this run wrote .* is gone") if guarded else nullcontext():
        if verb == "commit":
            table.commit(claimed, made)
        else:
            (replacement.replace_rows if verb == "replay" else replacement.append_rows)(table, made)
    missing = [file for file in log(table.path).files if not file.exists()]
    assert bool(missing) != guarded


@pytest.mark.parametrize("torn", [True, False], ids=["half a commit", "a commit missing"])
def test_a_damaged_log_is_one_line_with_the_way_on(tmp_path: Path, torn: bool) -> None:
    table = filled(tmp_path)
    newest, *_, oldest = sorted((table.path / "_delta_log").glob("*.json"), reverse=True)
    if torn:
        newest.write_bytes(newest.read_bytes()[:50])
    else:
        newest.with_name(oldest.name.replace("0.json", "1.json")).unlink()
    for look in (
        table.read_log,
        lambda: table.find_foreign_commits(["p"]),
        table.adopt,
        lambda: table.read_positions(("p",)),
    ):
        with pytest.raises(
            EnvironmentFailed, match=r"main is no table that can be read \(.*Bring its _delta_log back"
        ) as said:
            look()
        assert "\n" not in str(said.value)
        assert "unknown" not in str(said.value)


# --- columns --------------------------------------------------------------------------------------------------------


def schema(**kinds: Any) -> str:
    kinds = {"_partition": "string", "_offset": "long", **kinds}
    return json.dumps(
        {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": False, "metadata": {}} for n, t in kinds.items()],
        }
    )


def test_new_columns_are_added_before_the_commit(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    for extra in ({}, {"a": "integer"}, {"a": "integer", "b": "timestamp"}):
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed, **extra))
    assert [f.name for f in DeltaTable(table.path).schema().fields] == ["_partition", "_offset", "a", "b"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (schema(a="string"), "Column a is string and was long"),
        (schema(), "dropped the column a"),
        (schema(a="long", rota_partition="string"), "taken by rota"),
        (schema(a="long", Rota_Partition="string"), "taken by rota"),  # Spark knows one column of a name in any case
        (schema(a="long", A="long"), "stand twice"),
        (schema(a="long", i="interval day to second"), "cannot hold"),
        (json.dumps({"type": "struct", "fields": []}), "dropped the column _partition"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(found: str, said: str) -> None:
    with pytest.raises(BadTransform, match=said):
        columns.check_columns(found, schema(a="long"))


def test_nullability_does_not_matter() -> None:
    array = {"type": "array", "elementType": "long", "containsNull": False}
    columns.check_columns(schema(a=array), schema(a={**array, "containsNull": True}))


def test_a_foreign_partition_or_offset_is_seen_in_the_footers(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    one = batch(table, table.claim({"p": 1}, {"p": 0}))
    with pytest.raises(BadTransform, match="does not hold"):
        footers.read_footers(table.path, one.attempt, {"q": (0, 2)})
    with pytest.raises(BadTransform, match="offsets outside"):
        footers.read_footers(table.path, one.attempt, {"p": (0, 1)})
    with pytest.raises(BadTransform, match="offsets outside"):
        footers.read_footers(table.path, one.attempt, {"p": (1, 2)})


def test_folders_that_spark_split_off_are_named_after_the_rows_in_them(tmp_path: Path) -> None:
    """Two partitions in one file, whatever the reason, or rows of none, are refused."""

    def write(number: int, *partitions: str | None) -> None:
        folder = tmp_path / "data" / "one" / f"{columns.SPLIT}={number}"
        folder.mkdir(parents=True)
        rows = {"_partition": pa.array(partitions, pa.string()), "_offset": [0] * len(partitions)}
        pq.write_table(pa.table(rows), folder / "part-0.parquet")

    long = "p:" + "ä" * 55
    write(1, "p:a", "p:a")
    write(-2, long)
    ranges = {"p:a": (0, 1), "p:b": (0, 1), long: (0, 1)}
    found = {f.path: f.partition for f in footers.read_footers(tmp_path, "one", ranges)}
    assert found == {f"data/one/{names.split(p)}/part-0.parquet": p for p in ("p:a", long)}
    write(3, "p:b", "p:c")
    with pytest.raises(EnvironmentFailed, match="holds rows of another partition"):
        footers.read_footers(tmp_path, "one", ranges)
    write(4, None)
    with pytest.raises(BadTransform, match="made rows without _partition"):
        footers.read_footers(tmp_path, "one", ranges)
