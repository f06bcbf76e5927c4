"""The verifier finds what is wrong: on a table made by hand, sound at first, then damaged in every way it must see."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.transaction import AddAction, create_table_with_add_actions

from rota.demo import deltalog
from rota.demo.verify import Verdict, verify
from rota.local.flights import MONTHS, FlightsFolder, NewFiles, find_archive

CARRIERS = ("AS", "HA", "OO")


class Made:
    """A landing folder with three carriers' year in it, and a table that consumed all of it, three files a commit."""

    def __init__(self, root: Path) -> None:
        self.landing, self.table = root / "landing", root / "table"
        self.landed = FlightsFolder(self.landing).prepare().land(MONTHS, CARRIERS)
        self.index()
        self.consume()

    def index(self) -> None:
        rows = [
            {"partition": f"flights:{carrier}", "ordinal": i, "path": str(path)}
            for carrier in CARRIERS
            for i, path in enumerate(sorted((self.landing / carrier).glob("2*.csv")))
        ]
        write_deltalake(self.table / "index", pa.Table.from_pylist(rows))

    def consume(self) -> None:
        files = deltalog.read(self.table / "index").files
        index = pa.concat_tables([pq.read_table(self.table / "index" / f) for f in files]).to_pylist()
        for carrier in CARRIERS:
            mine = sorted((r["ordinal"], r["path"]) for r in index if r["partition"] == f"flights:{carrier}")
            for start in range(0, len(mine), 3):
                self.commit(f"flights:{carrier}", mine[start : start + 3])

    def commit(self, partition: str, files: list[tuple[int, str]], again: bool = False) -> None:
        rows = pa.concat_tables([batch(partition, ordinal, Path(path)) for ordinal, path in files])
        start, end = files[0][0], files[-1][0] + 1
        name = f"data/{partition}-{start}{'-again' if again else ''}.parquet"
        (self.table / "main" / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, self.table / "main" / name)
        add = AddAction(
            name, (self.table / "main" / name).stat().st_size, {}, 0, True, json.dumps({"numRecords": rows.num_rows})
        )
        properties = CommitProperties(
            custom_metadata={"rota.ranges": json.dumps({partition: [start, end]})},
            app_transactions=[Transaction(f"rota/default/{partition}/offset", end)],
        )
        schema = Schema.from_arrow(rows.schema)
        if deltalog.exists(self.table / "main"):
            DeltaTable(self.table / "main").create_write_transaction(
                [add], "append", schema, commit_properties=properties
            )
        else:
            create_table_with_add_actions(
                str(self.table / "main"), schema, [add], "append", [], commit_properties=properties
            )

    def some_file(self) -> Path:
        return sorted((self.table / "main" / "data").glob("*.parquet"))[0]

    def verdict(self) -> Verdict:
        return verify(self.landing, self.table, "flights")


def batch(partition: str, ordinal: int, path: Path) -> pa.Table:
    rows = pcsv.read_csv(path, convert_options=pcsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True))
    rows = rows.set_column(
        rows.column_names.index("time_hour"), "time_hour", rows["time_hour"].cast(pa.timestamp("us", "UTC"))
    )
    rows = rows.append_column("_partition", pa.array([partition] * rows.num_rows))
    return rows.append_column("_offset", pa.array([ordinal] * rows.num_rows, pa.int64()))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def made(sound: Made, tmp_path: Path) -> Made:
    """A copy to damage."""
    shutil.copytree(sound.landing, tmp_path / "landing")
    shutil.copytree(sound.table, tmp_path / "table")
    copy = Made.__new__(Made)
    copy.landing, copy.table = tmp_path / "landing", tmp_path / "table"
    return copy


def test_a_table_that_was_put_together_is_right(made: Made) -> None:
    """By delta-rs, which calls every column nullable; the one file left as it was says that its partition never is."""
    rows = pq.read_table(file := made.some_file())
    at = rows.column_names.index("_partition")
    strict = rows.schema.set(at, pa.field("_partition", pa.string(), nullable=False))
    before = file.stat().st_size
    DeltaTable(made.table / "main").optimize.compact(target_size=before - 1)
    assert str(file.relative_to(made.table / "main")) in deltalog.read(made.table / "main").files
    pq.write_table(rows.cast(strict), file)
    verdict = made.verdict()
    assert (verdict.missing, verdict.duplicates, verdict.orphans, verdict.unreadable) == (0, 0, 0, 0)


def test_the_whole_year_lands_as_185_files_and_every_row_once(tmp_path: Path) -> None:
    landing = FlightsFolder(tmp_path).prepare()
    assert list(tmp_path.rglob("2*.csv")) == []  # prepared, nothing visible
    january = landing.land([1])
    assert (len(january.files), january.rows) == (16, 27004)
    rest = landing.land(MONTHS)
    assert (len(january.files) + len(rest.files), january.rows + rest.rows) == (185, 336_776)
    assert len({file.parent.name for file in rest.files}) == 16
    assert landing.land(MONTHS) == NewFiles((), 0)
    again = FlightsFolder(tmp_path).prepare()  # a second start over the same folder lands nothing twice
    assert again.land(MONTHS) == NewFiles((), 0)
    assert find_archive().is_file()


def test_a_sound_table_is_right(sound: Made) -> None:
    verdict = sound.verdict()
    assert verdict.right, verdict.details
    assert verdict.rows_landed == verdict.rows_written == sound.landed.rows
    assert (verdict.partitions, verdict.files_landed, verdict.orphans) == (3, len(sound.landed.files), 0)


def test_a_deleted_data_file_is_missed(made: Made) -> None:
    rows = pq.read_metadata(made.some_file()).num_rows
    made.some_file().unlink()
    verdict = made.verdict()
    assert not verdict.right
    assert (verdict.missing, verdict.unreadable, verdict.duplicates) == (rows, 1, 0)


def test_one_copied_row_is_a_duplicate(made: Made) -> None:
    rows = pq.read_table(made.some_file())
    pq.write_table(pa.concat_tables([rows, rows.slice(7, 1)]), made.some_file())
    verdict = made.verdict()
    assert not verdict.right
    assert (verdict.missing, verdict.duplicates) == (0, 1)


def test_one_changed_value_is_a_row_missing_and_a_row_too_many(made: Made) -> None:
    rows = pq.read_table(made.some_file())
    distance = rows["distance"].to_pylist()
    distance[0] += 1
    at = rows.column_names.index("distance")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(distance, pa.int64())), made.some_file())
    verdict = made.verdict()
    assert (verdict.missing, verdict.duplicates, verdict.right) == (1, 1, False)


def test_a_row_under_a_foreign_offset_is_seen(made: Made) -> None:
    rows = pq.read_table(made.some_file())
    at = rows.column_names.index("_offset")
    moved = [rows["_offset"][0].as_py() + 1, *rows["_offset"].to_pylist()[1:]]
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(moved, pa.int64())), made.some_file())
    assert not made.verdict().right


def test_a_range_committed_twice_is_an_overlap_and_its_rows_are_duplicates(made: Made) -> None:
    path = sorted((made.landing / "HA").glob("2*.csv"))[0]
    made.commit("flights:HA", [(0, str(path))], again=True)
    verdict = made.verdict()
    assert (verdict.overlaps, verdict.gaps, verdict.right) == (1, 0, False)
    assert verdict.duplicates == len(path.read_text().splitlines()) - 1


def test_a_landed_file_that_nobody_consumed_is_a_gap(made: Made) -> None:
    first = sorted((made.landing / "HA").glob("2*.csv"))[0]
    shutil.copy(first, first.with_name("2014-01.csv"))
    verdict = made.verdict()
    assert (verdict.gaps, verdict.right) == (1, False)
    assert verdict.missing == len(first.read_text().splitlines()) - 1


def test_files_that_no_version_names_are_orphans_and_harm_nobody(made: Made) -> None:
    left_over = made.table / "main" / "data" / "attempt" / "_temporary" / "part-0.parquet"
    left_over.parent.mkdir(parents=True)
    shutil.copy(made.some_file(), left_over)
    verdict = made.verdict()
    assert (verdict.orphans, verdict.right) == (1, True)
    assert verdict.orphan_bytes == left_over.stat().st_size


def test_a_checkpointed_log_reads_the_same(made: Made) -> None:
    before = deltalog.read(made.table / "main")
    DeltaTable(made.table / "main").create_checkpoint()
    after = deltalog.read(made.table / "main")
    assert (after.files, after.transactions, after.version) == (before.files, before.transactions, before.version)
    assert made.verdict().right


def test_a_log_with_a_hole_is_refused(made: Made) -> None:
    (made.table / "main" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(deltalog.DataError, match="no version 1"):
        made.verdict()
