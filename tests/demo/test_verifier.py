"""The verifier finds what is wrong: on a table made by hand, sound at first, then damaged in every way it must see."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from rota.demo import deltalog
from rota.local.flights import MONTHS, FlightsFolder, NewFiles, find_archive
from rota.local.storage import open_folder
from tests.demo.made_table import Made


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
    """By delta-rs, which calls every column nullable; the unchanged file declares that its partition never is."""
    rows = pq.read_table(file := made.some_file())
    at = rows.column_names.index("_partition")
    strict = rows.schema.set(at, pa.field("_partition", pa.string(), nullable=False))
    before = file.stat().st_size
    DeltaTable(made.table / "main").optimize.compact(target_size=before - 1)
    assert str(file.relative_to(made.table / "main")) in deltalog.read(open_folder(made.table / "main")).files
    pq.write_table(rows.cast(strict), file)
    verdict = made.verdict()
    assert (verdict.missing, verdict.duplicates, verdict.orphans, verdict.unreadable) == (0, 0, 0, 0)


def test_the_whole_year_lands_as_185_files_and_every_row_once(tmp_path: Path) -> None:
    landing = FlightsFolder(open_folder(tmp_path)).prepare()
    assert list(tmp_path.rglob("2*.csv")) == []  # prepared, nothing visible
    january = landing.land([1])
    assert (len(january.files), january.rows) == (16, 27004)
    rest = landing.land(MONTHS)
    assert (len(january.files) + len(rest.files), january.rows + rest.rows) == (185, 336_776)
    assert len({path.split("/")[0] for path in rest.files}) == 16
    assert landing.land(MONTHS) == NewFiles((), 0)
    again = FlightsFolder(open_folder(tmp_path)).prepare()  # a second start over the same folder lands nothing twice
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


def test_a_landed_file_that_no_run_consumed_is_a_gap(made: Made) -> None:
    first = sorted((made.landing / "HA").glob("2*.csv"))[0]
    shutil.copy(first, first.with_name("2014-01.csv"))
    verdict = made.verdict()
    assert (verdict.gaps, verdict.right) == (1, False)
    assert verdict.missing == len(first.read_text().splitlines()) - 1


def test_files_that_no_version_names_are_harmless_orphans(made: Made) -> None:
    left_over = made.table / "main" / "data" / "attempt" / "70" / "part-0.parquet"
    left_over.parent.mkdir(parents=True)
    shutil.copy(made.some_file(), left_over)
    verdict = made.verdict()
    assert (verdict.orphans, verdict.right) == (1, True)
    assert verdict.orphan_bytes == left_over.stat().st_size


def test_a_checkpointed_log_reads_the_same(made: Made) -> None:
    before = deltalog.read(open_folder(made.table / "main"))
    DeltaTable(made.table / "main").create_checkpoint()
    after = deltalog.read(open_folder(made.table / "main"))
    assert (after.files, after.transactions, after.version) == (before.files, before.transactions, before.version)
    assert made.verdict().right


def test_a_log_with_a_hole_is_refused(made: Made) -> None:
    (made.table / "main" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(deltalog.DataError, match="no version 1"):
        made.verdict()
