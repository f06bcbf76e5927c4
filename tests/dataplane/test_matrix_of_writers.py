"""Each operation of deltalake together with each of rota on one table, in both orders.

Law: the table is right, or one of the two is refused in one line, or rota reports what happened, and following the report
makes the table right. Nothing is silent.

The verifier asks deltalake's query engine for rows, and shares no code with the ledger.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, TableFeatures, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from rota.dataplane.files.disk import DiskLanding
from rota.deltalog import delta_log, packing, packs
from rota.deltalog.delta_log import DeltaLog, DeltaVersion
from rota.deltalog.port import Move
from rota.errors import ForeignTable, RotaError
from rota.ledger import merging
from rota.ledger.ledger import Ledger
from rota.ledger.merging import A_NIGHT, merge
from rota.ledger.renaming import begin_rename, finish_rename
from rota.ledger.replacing import replace_rows
from rota.ledger.values import TableClaim
from rota.people.adopt import adopt
from rota.run.replay import ReplayedRange, replay
from tests.dataplane.delta_tables import batch, ledger
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark.foreign_programs import add_feature_by_spark, make_vector, remove, write_entry
from tests.dataplane.without_spark.trickle import Trickle

BATCHES, SOON = 4, 2**40
OLD, NEW = "p:a", "q:a"
ROW = pa.table({"_partition": [OLD], "_offset": pa.array([0], pa.int64())})
Rows = Counter[tuple[str, int]]


def make_row(theirs: DeltaTable) -> pa.Table:
    """Append a row at an offset that rota has also written."""
    more = {"n": pa.nulls(1, pa.int32())} if "n" in [field.name for field in theirs.schema().fields] else {}
    return pa.table({**dict(zip(ROW.column_names, ROW.columns, strict=True)), **more})


def list_files(theirs: DeltaTable) -> list[dict[str, Any]]:
    """Return the log's statement about each file, by offset."""
    return sorted(pa.table(theirs.get_add_actions(flatten=True)).to_pylist(), key=lambda one: one["min._offset"])


def delete_in_place(theirs: DeltaTable) -> None:
    """Delete the first row of a file by a deletion vector, as Delta for Spark does. Refused if the file is gone."""
    main, first = Path(theirs.table_uri.removeprefix("file://")), list_files(theirs)[0]
    if first["path"] not in [one["path"] for one in list_files(DeltaTable(main))]:
        raise CommitFailedError("a concurrent transaction deleted data")
    add_feature_by_spark(main, "deletionVectors", reader=True)
    add = {"path": first["path"], "partitionValues": {}, "size": first["size_bytes"], "modificationTime": 1}
    add |= {"dataChange": True, "stats": json.dumps({"numRecords": first["num_records"]})}
    gone = remove(main, main / first["path"])
    write_entry(main, "DELETE", gone, {"add": {**add, "deletionVector": make_vector(0)}})


THEIRS: dict[str, Callable[[DeltaTable], object]] = {
    "OPTIMIZE": lambda t: t.optimize.compact(),
    "ZORDER": lambda t: t.optimize.z_order(["_offset"]),
    "DELETE": lambda t: t.delete("_offset = 0"),
    "DELETE in place": delete_in_place,
    "UPDATE": lambda t: t.update({"_offset": "_offset + 1000"}, predicate="_offset = 0"),
    "MERGE": lambda t: t.merge(ROW, "s._offset = t._offset", "s", "t").when_matched_delete().execute(),
    "RESTORE": lambda t: t.restore(3),
    "VACUUM": lambda t: t.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "append": lambda t: write_deltalake(t, make_row(t), mode="append"),
    "overwrite": lambda t: write_deltalake(t, make_row(t), mode="overwrite"),
    "ADD COLUMNS": lambda t: t.alter.add_columns(Field("later", "long")),
    "SET TBLPROPERTIES": lambda t: t.alter.set_table_properties({"delta.checkpointInterval": "50"}),
    "ADD CONSTRAINT": lambda t: t.alter.add_constraint({"c": "_offset >= 0"}),
    "ADD FEATURE": lambda t: t.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True),
}


@dataclass
class Table:
    """A table with some batches of rota, and its expected rows."""

    folder: Path
    partition: str = OLD
    end: int = 0
    ours: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ours = ledger(self.folder, pipeline="p")
        for _ in range(BATCHES):
            self.commit()
        for _ in range(2):  # packing keeps the commits after the older of two checkpoints
            DeltaTable(self.main).create_checkpoint()
            self.commit()

    @property
    def main(self) -> Path:
        return self.folder / "main"

    @property
    def wanted(self) -> Rows:
        return Counter((self.partition, offset) for offset in range(self.end))

    def count(self) -> Rows | None:
        """Return the rows of the table; None if no reader can read it."""
        try:
            rows = QueryBuilder().register("t", DeltaTable(self.main)).execute("select _partition, _offset from t")
            read = pa.table(rows.read_all())
        except Exception:  # a file is gone
            return None
        return Counter(zip(read["_partition"].to_pylist(), read["_offset"].to_pylist(), strict=True))

    def commit(self) -> None:
        claimed = self.ours.claim({self.partition: 1 << 40}, {self.partition: 0})
        self.ours.commit(claimed, batch(self.ours, claimed))
        self.end += 2

    def replay(self, start: int, end: int) -> None:
        stand_in = TableClaim(None, 0, "", "", {}, {self.partition: start}, {})
        replace_rows(self.ours, batch(self.ours, stand_in, ends={self.partition: end}, **self.columns))

    @property
    def columns(self) -> dict[str, str]:
        return {field.name: "long" for field in DeltaTable(self.main).schema().fields if field.name == "later"}

    def adopt(self) -> None:
        self.ours = replace(self.ours, meta="1" * 32)
        self.ours.adopt()

    def rename(self) -> None:
        renamed = replace(self.ours, pipeline="q")
        begin_rename(renamed, "p", [OLD])
        finish_rename(renamed, "p", [OLD])
        self.ours, self.partition = renamed, NEW

    def report(self) -> str:
        """Return the reports of `rota status`, `rota check` and the next run."""
        said = self.ours.find_foreign_commits([self.partition]).get(self.partition, "") or self.ours.explain_harm()
        assert "\n" not in said
        return said

    def follow(self, again: Callable[[], object] | None) -> None:
        """Do what an operator does after a report. `again`: rota's operation was refused, and is repeated."""
        now = DeltaTable(self.main)
        now.repair()
        if "delta.constraints.c" in now.metadata().configuration:
            DeltaTable(self.main).alter.drop_constraint("c")
        with suppress(ForeignTable):  # the rename is half done and must be finished first
            self.ours.adopt()
        if DeltaTable(self.main).deletion_vectors().read_all().num_rows:
            DeltaTable(self.main).optimize.compact()  # the report of a replay or rename advises to rewrite the file
        if again:
            again()
        self.ours.adopt()
        self.replay(0, self.end)
        if (more := (self.count() or Counter()) - self.wanted) and all(offset >= self.end for _, offset in more):
            DeltaTable(self.main).delete(f"_offset >= {self.end}")  # rows at offsets that rota never read
            self.ours.adopt()


OURS: dict[
    str, tuple[Callable[[Table], object], tuple[object, str, bool]]
] = {  # the call in the middle of which deltalake acts
    "commit": (Table.commit, (DeltaVersion, "append", True)),
    "merge": (lambda one: merge(one.ours, A_NIGHT), (DeltaVersion, "append", True)),
    "replace": (lambda one: one.replay(1, 4), (DeltaVersion, "append", True)),
    "pack": (lambda one: packing.pack(DeltaLog(str(one.main)), SOON), (packs, "write_pack", False)),
    "adopt": (Table.adopt, (DeltaVersion, "append", True)),
    "rename": (Table.rename, (Ledger, "check_on_disk", False)),
}
RIGHT, THEIRS_REFUSED, OURS_REFUSED, REPORTED, SILENT = ".", "t", "o", "!", "?"


@contextmanager
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(merging, "FEW", 2)
        patched.setattr(packs, "PACKED", 2)
        yield


def play(folder: Path, theirs: str, ours: str, *, inside: bool) -> str:
    """Return the result. `inside`: deltalake's operation begins and ends within rota's; else rota's within deltalake's."""
    one, errors = Table(folder), dict[str, Exception]()
    act, (place, name, before) = OURS[ours]

    def do_theirs(table: DeltaTable) -> None:
        try:
            THEIRS[theirs](table)
        except (CommitFailedError, DeltaError) as error:
            errors["theirs"] = error

    opened = DeltaTable(one.main)
    striking = strike_at(place, name, lambda: do_theirs(DeltaTable(one.main)), before=before)
    with striking if inside else nullcontext():
        try:
            act(one)
        except RotaError as error:
            errors["ours"] = error
    assert not any("\n" in str(error) for name, error in errors.items() if name == "ours")
    if not inside:
        do_theirs(opened)
    right, said = one.count() == one.wanted, one.report()
    if not right and not said and "ours" not in errors:
        return SILENT
    if said or "ours" in errors:
        one.follow((lambda: act(one)) if "ours" in errors else None)
    assert one.count() == one.wanted
    one.ours.adopt()
    for _ in range(2):
        if not one.columns:
            one.commit()
    assert (one.count(), one.report()) == (one.wanted, "")
    if "ours" in errors:
        return OURS_REFUSED
    if said:
        return REPORTED
    return THEIRS_REFUSED if "theirs" in errors else RIGHT


# Results of rota's commit, merge, replace, pack, adopt and rename: theirs inside ours, and ours inside theirs.
MATRIX: dict[str, tuple[str, str]] = {
    "OPTIMIZE": ("......", ".tt..t"),
    "ZORDER": ("......", ".tt..t"),
    "DELETE": ("o!!!o!", "!tt!!t"),
    "DELETE in place": ("o!o!oo", "!tt!!t"),
    "UPDATE": ("o!!!o!", "!tt!!t"),
    "MERGE": ("o!!!o!", "ttt!!t"),
    "RESTORE": ("o!!!o!", "tttttt"),
    "VACUUM": ("!!o..o", "!tt..t"),
    "append": ("!!!!!!", "!tt!!t"),
    "overwrite": ("o!!!o!", "!tt!!t"),
    "ADD COLUMNS": ("......", ".tt..t"),
    "SET TBLPROPERTIES": ("......", ".tt..t"),
    "ADD CONSTRAINT": ("o!o!oo", "!tt!!t"),
    "ADD FEATURE": ("......", ".tt..t"),
}
COUNTS = {RIGHT: 49, THEIRS_REFUSED: 46, OURS_REFUSED: 20, REPORTED: 53}


@pytest.mark.parametrize("theirs", THEIRS)
def test_no_cell_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str) -> None:
    found = []
    with small(monkeypatch):
        for inside in (True, False):
            cells = [play(tmp_path / f"{inside}-{ours}", theirs, ours, inside=inside) for ours in OURS]
            found.append("".join(cells))
    assert tuple(found) == MATRIX[theirs]


def test_the_matrix_is_counted() -> None:
    cells = Counter("".join(cell for both in MATRIX.values() for cell in both))
    assert (dict(cells), MATRIX.keys()) == (COUNTS, THEIRS.keys())


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("theirs", ["OPTIMIZE", "ZORDER"])
def test_without_its_metadata_a_merge_is_doubled_and_without_the_count_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, counted: bool
) -> None:
    """Ablations of the prevention and of the detection."""
    real = delta_log.write_commit

    def plain(draft: Any, metadata: Any) -> bytes:
        return b"\n".join(line for line in real(draft, metadata).split(b"\n") if not line.startswith(b'{"metaData"'))

    monkeypatch.setattr(delta_log, "write_commit", plain)
    if not counted:
        monkeypatch.setattr(Move, "keeps_rows", True)
    with small(monkeypatch):
        assert play(tmp_path / "x", theirs, "merge", inside=False) == (REPORTED if counted else SILENT)


def count_numbers(one: Trickle) -> Counter[tuple[str, int]] | None:
    """Return key and number of each row; None if no reader can read the table."""
    try:
        asked = "select _partition, n from t"
        rows = QueryBuilder().register("t", DeltaTable(one.world.table / "main")).execute(asked)
        read = pa.table(rows.read_all())
    except Exception:  # a file is gone
        return None
    keys = (partition.partition(":")[2] for partition in read["_partition"].to_pylist())
    return Counter(zip(keys, read["n"].to_pylist(), strict=True))


def play_archive(folder: Path, theirs: str, *, inside: bool) -> str:
    """The same during a run that archives the files that it consumed: a replay reads them in the archive."""
    one, errors = Trickle(folder, 'after="archive:_done"'), list[Exception]()
    for _ in range(BATCHES):
        one.land("a")
        one.consume()
    main = one.world.table / "main"

    def do_theirs(table: DeltaTable) -> None:
        try:
            THEIRS[theirs](table)
        except (CommitFailedError, DeltaError) as error:
            errors.append(error)

    opened = DeltaTable(main)
    one.land("a")
    with strike_at(DiskLanding, "take", lambda: do_theirs(DeltaTable(main)), before=True) if inside else nullcontext():
        one.consume()
    if not inside:
        do_theirs(opened)
    right, said = count_numbers(one) == +one.wanted, one.ports.main.explain_harm()
    if not right and not said:
        return SILENT
    if said:
        DeltaTable(main).repair()
        if "delta.constraints.c" in DeltaTable(main).metadata().configuration:
            DeltaTable(main).alter.drop_constraint("c")
        adopt(one.world.tree, [one.world.pipeline])
        if DeltaTable(main).deletion_vectors().read_all().num_rows:
            DeltaTable(main).optimize.compact()
        (done,) = replay(one.world.tree, one.ports, {"p:a": (0, BATCHES + 1)}, "again")
        assert isinstance(done, ReplayedRange), done
        if count_numbers(one) != +one.wanted:
            DeltaTable(main).delete("_offset >= 1000")  # rows at offsets that rota never read
            adopt(one.world.tree, [one.world.pipeline])
    assert (count_numbers(one), one.ports.main.explain_harm()) == (+one.wanted, "")
    return REPORTED if said else THEIRS_REFUSED if errors else RIGHT


ARCHIVE = {  # deltalake's operation inside the archiving, and the run inside deltalake's
    "OPTIMIZE": "..", "ZORDER": "..", "DELETE": "!!", "DELETE in place": "!!", "UPDATE": "!!", "MERGE": "!t",
    "RESTORE": "!t", "VACUUM": ".!", "append": "!!", "overwrite": "!!", "ADD COLUMNS": "..", "SET TBLPROPERTIES": "..",
    "ADD CONSTRAINT": "!!", "ADD FEATURE": "..",
}  # fmt: skip


@pytest.mark.parametrize("theirs", THEIRS)
def test_beside_a_run_that_archives(tmp_path: Path, theirs: str) -> None:
    found = "".join(play_archive(tmp_path / f"{inside}", theirs, inside=inside) for inside in (True, False))
    assert found == ARCHIVE[theirs]
