"""A replay replaces old rows by new ones and changes nothing else; also readers and vacuums of the tables."""

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from rota.dataplane import names
from rota.dataplane.delta.tables import open_table
from rota.dataplane.delta.vacuum import vacuum
from rota.errors import ConfigError, EnvironmentFailed, ForeignTable, OffsetGap
from rota.ledger import change, replacing
from rota.ledger.ledger import Ledger
from rota.ledger.replacing import replace_rows
from rota.run.consume import CommittedBatch
from rota.run.replay import RefusedReplay, ReplayedRange, replay
from tests.dataplane.conftest import log
from tests.dataplane.counted_bad import make_counter
from tests.dataplane.delta_tables import META, again, batch, fill
from tests.dataplane.landing_folders import open_files
from tests.dataplane.world import World


def count_rows(table: Path) -> Counter[tuple[object, object]]:
    return Counter((r["_partition"], r["_offset"]) for r in log(table).rows())


def once(**ends: int) -> Counter[tuple[object, object]]:
    return Counter({(p, o): 1 for p, end in ends.items() for o in range(end)})


def replay_ranges(world: World, ranges: dict[str, tuple[int, int]]) -> dict[str, ReplayedRange | RefusedReplay]:
    return {e.partition: e for e in replay(world.tree, world.ports, ranges, "again")}


# --- the table alone ------------------------------------------------------------------------------------------------


def fill_two(folder: Path) -> Ledger:
    """Commit offsets 0 to 5 of p and of q."""
    return fill(folder, 3, "p", "q", token=5)


def test_rows_are_replaced_wherever_they_stand_and_offsets_and_tokens_stay(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    DeltaTable(Path(table.location)).optimize.compact()  # now one file holds both partitions
    before = log(Path(table.location)).transactions
    replace_rows(table, again(table, 1, 4))
    assert count_rows(Path(table.location)) == once(p=6, q=6)
    assert log(Path(table.location)).transactions == before
    replace_rows(table, again(table, 0, 6))
    assert count_rows(Path(table.location)) == once(p=6, q=6)
    (first, second) = (c["rota.replayed"] for c in log(Path(table.location)).said("replay"))
    assert (first, second) == ('{"p":[1,4]}', '{"p":[0,6]}')


def test_a_replay_beyond_the_offset_is_refused(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    with pytest.raises(OffsetGap, match="beyond what was consumed"):
        replace_rows(table, again(table, 4, 7))
    assert count_rows(Path(table.location)) == once(p=6, q=6)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "empty"])
def test_a_lost_data_file_is_replayed_after_it_was_taken_out_of_the_table(tmp_path: Path, gone: bool) -> None:
    """The error has the next step, and the file's offsets."""
    table = fill_two(tmp_path)
    lost = next(f for f in log(Path(table.location)).files if f.parent.name == names.split("p"))
    start = min(pq.ParquetFile(lost).read()["_offset"].to_pylist())
    lost.unlink() if gone else lost.write_bytes(b"")
    with pytest.raises(EnvironmentFailed, match=rf"{lost} cannot be read .* \(p from {start} to {start + 2}\)$"):
        replace_rows(table, again(table, start, start + 1))
    lost.unlink(missing_ok=True)
    DeltaTable(Path(table.location)).repair()
    with pytest.raises(ForeignTable, match="FSCK"):
        table.claim({"p": 5}, {"p": 0})
    table.adopt()
    replace_rows(table, again(table, start, start + 2))
    assert count_rows(Path(table.location)) == once(p=6, q=6)


def compaction(table: Ledger) -> None:
    DeltaTable(Path(table.location)).optimize.compact()


def other_replay(table: Ledger) -> None:
    replace_rows(table, again(table, 0, 2))


def live_batch(table: Ledger) -> None:
    claimed = table.claim({"p": 5}, {"p": 0})
    table.commit(claimed, batch(table, claimed))


@dataclass
class Racing:
    """Replay [0, 3) of p; after each of the first plans another writer commits first."""

    table: Ledger
    patch: pytest.MonkeyPatch
    plans: int = 0

    def replay(self, other: Callable[[Ledger], None], races: int = 1) -> None:
        plan = replacing.plan_replacement

        def meanwhile(*args: Any) -> object:
            planned = plan(*args)
            self.plans += 1
            if self.plans <= races:
                self.patch.setattr(replacing, "plan_replacement", plan)
                other(self.table)
                self.patch.setattr(replacing, "plan_replacement", meanwhile)
            return planned

        self.patch.setattr(replacing, "plan_replacement", meanwhile)
        replace_rows(self.table, again(self.table, 0, 3))

    def orphans(self) -> set[Path]:
        """Return the files that the replay wrote for rows to keep, and that no version names."""
        named = {Path(uri) for uri in DeltaTable(Path(self.table.location)).file_uris()}
        return set(Path(self.table.location).glob("data/*/kept/*")) - named


@pytest.fixture
def racing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Racing:
    return Racing(fill_two(tmp_path), monkeypatch)


@pytest.mark.parametrize("other", [compaction, other_replay])
def test_a_move_of_the_same_rows_meanwhile_makes_it_plan_again(racing: Racing, other: Callable[[Ledger], None]) -> None:
    racing.replay(other)
    assert racing.plans == 2
    assert count_rows(Path(racing.table.location)) == once(p=6, q=6)
    assert not racing.orphans()


def test_a_live_batch_meanwhile_costs_no_second_plan(racing: Racing) -> None:
    compaction(racing.table)
    racing.replay(live_batch, races=100)
    assert racing.plans == 1
    assert count_rows(Path(racing.table.location)) == once(p=8, q=6)
    assert not racing.orphans()


def test_if_each_lost_race_were_planned_again_it_would_starve(racing: Racing) -> None:
    racing.patch.setattr(replacing, "is_valid", lambda *_: False)
    racing.patch.setattr(change, "TRIES", 5)
    with pytest.raises(EnvironmentFailed, match="not written in 5 tries"):
        racing.replay(live_batch, races=100)


def test_without_looking_at_the_new_version_rows_are_doubled(racing: Racing) -> None:
    racing.patch.setattr(replacing, "is_valid", lambda *_: True)
    racing.replay(compaction)
    rows = [r for uri in DeltaTable(Path(racing.table.location)).file_uris() for r in pq.read_table(uri).to_pylist()]
    assert max(Counter((r["_partition"], r["_offset"]) for r in rows).values()) == 2


def test_a_compaction_that_was_overtaken_by_a_replay_is_refused(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    stale = DeltaTable(Path(table.location))
    replace_rows(table, again(table, 0, 2))
    with pytest.raises(CommitFailedError):
        stale.optimize.compact()
    assert count_rows(Path(table.location)) == once(p=6, q=6)


# --- the verb -------------------------------------------------------------------------------------------------------


def test_a_replay_beside_live_consumption(world: World) -> None:
    world.give("a", "b")
    for key in "ab":
        for name in "012":
            world.rows(key, name, 4)
    world.run("a", "b")
    world.write(
        "pipeline = Pipeline(source=source(), table=delta({table!r}), "
        "transform=lambda df: df.selectExpr('n', 'upper(word) as word', '_partition', '_offset'))\n"
    )
    world.rows("a", "3", 1)
    checkpoints = {p: c.record for p, c in world.tree.checkpoints().items()}
    events = replay_ranges(world, {"p:a": (1, 3), "p:b": (2, 4), "p:c": (0, 1), "p:d": (2, 2)})
    assert isinstance(events["p:a"], ReplayedRange)
    assert (events["p:a"].start, events["p:a"].end, events["p:a"].rows) == (1, 3, 8)
    reasons = {p: e.reason for p, e in events.items() if isinstance(e, RefusedReplay)}
    assert reasons == {
        "p:b": "only offsets below 3 were consumed. Give a range that ends there or before",
        "p:c": "only offsets below 0 were consumed. Give a range that ends there or before",
        "p:d": "[2, 2) is no range. Give 0 <= from < to",
    }
    assert {p: c.record for p, c in world.tree.checkpoints().items()} == checkpoints
    rows = log(world.table / "main").rows()
    upper = {(r["_partition"], r["_offset"]) for r in rows if str(r["word"]).isupper()}
    assert upper == {("p:a", 1), ("p:a", 2)}
    assert Counter((r["_partition"], r["_offset"]) for r in rows) == Counter(
        {(p, o): 4 for p in ("p:a", "p:b") for o in range(3)}
    )
    (event,) = (e for e in world.run("a", "b") if e.partition == "p:a")
    assert isinstance(event, CommittedBatch)
    assert (event.start, event.end) == (3, 4)


def test_a_source_without_the_whole_range_is_refused_before_anything_is_written(world: World) -> None:
    world.give("a")
    for name in "01":
        world.rows("a", name, 4)
    world.run("a")
    (world.folder / "land/a/1.json").unlink()
    event = replay_ranges(world, {"p:a": (0, 2)})["p:a"]
    assert isinstance(event, RefusedReplay)
    assert event.reason.startswith("the source no longer has the whole range: p:a: a/1.json (offset 1) vanished")
    assert isinstance(replay_ranges(world, {"p:a": (0, 1)})["p:a"], ReplayedRange)
    assert sum(count_rows(world.table / "main").values()) == 8


def test_a_file_that_was_corrected_in_place_is_read_as_it_is_now(world: World) -> None:
    """Its rows replace the wrong ones, and the file counts as consumed: no second copy needs to land."""
    world.give("a")
    for name in "01":
        world.rows("a", name, 4)
    world.run("a")
    world.rows("a", "0", 3, first=100)
    assert isinstance(replay_ranges(world, {"p:a": (0, 1)})["p:a"], ReplayedRange)
    rows = sorted((r["_offset"], r["n"]) for r in log(world.table / "main").rows())
    assert rows == [(0, 100), (0, 101), (0, 102), (1, 0), (1, 1), (1, 2), (1, 3)]
    source = open_files(world.pipeline)
    assert not source.find_broken({"p:a": (0, 2)})
    world.rows("a", "2", 1)
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch)
    assert (event.start, event.end, source.locate("p:a", 2)) == (2, 3, "a/2.json")


def test_bad_records_of_a_replay_take_the_place_of_the_old_ones(world: World) -> None:
    world.give("a")
    world.land("a", "0", [*(f'{{"n": {i}}}' for i in range(20)), "bad"])
    world.run("a")
    replay_ranges(world, {"p:a": (0, 1)})
    replay_ranges(world, {"p:a": (0, 1)})
    rows = log(world.table / "quarantine").rows()
    counts = make_counter(open_table(world.table / "main", "g", "").read_log())
    assert len(rows) == 3
    assert sum(counts(r["_partition"], r["_offset"], r["_attempt"]) for r in rows) == 1
    assert sum(count_rows(world.table / "main").values()) == 20


# --- other readers, and the vacuum ----------------------------------------------------------------------------------


def test_plain_spark_duckdb_polars_and_pandas_read_the_same_rows(world: World, spark: SparkSession) -> None:
    import duckdb
    import pandas as pd
    import polars as pl

    world.write(
        "schema = 'n int, word string, seen timestamp, price decimal(8,2), tags array<string>'\n"
        "pipeline = Pipeline(source=source(schema=schema), table=delta({table!r}))\n"
    )
    world.give("a", "b")
    for key in "ab":
        world.land(
            key, "0", ['{"n": 1, "word": "x", "seen": "2026-01-02T03:04:05.678901Z", "price": 1.25, "tags": ["t"]}'] * 3
        )
    world.run("a", "b")
    orphan = world.table / "main/data/dead"
    orphan.mkdir()
    main = str(world.table / "main")
    assert DeltaTable(main).to_pandas().shape == pl.read_delta(main).shape == (6, 7)  # as the README states
    files = DeltaTable(main).file_uris()
    names = ["n", "word", "seen", "price", "tags", "_partition", "_offset"]
    read_by_spark = spark.read.parquet(*files)
    assert (read_by_spark.columns, read_by_spark.count()) == (names, 6)
    assert pl.read_parquet(files).shape == (6, 7)
    assert pl.read_parquet(files).columns == names
    query = f"select count(*), max(seen)::varchar, sum(price)::varchar from read_parquet({files!r})"
    assert duckdb.sql(query).fetchall() == [(6, "2026-01-02 03:04:05.678901+00", "7.50")]
    frame = pd.read_parquet(files)
    assert list(frame.columns) == names
    assert str(frame["seen"].iloc[0]) == "2026-01-02 03:04:05.678901+00:00"


def test_the_vacuum_takes_what_no_version_names_and_leaves_what_is_young(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    young, old = (Path(table.location) / "data" / name / "p" / "f.parquet" for name in ("young", "old"))
    died = f"stage/{uuid.uuid4()}-{uuid.uuid4().hex[:12]}"
    staged, foreign = tmp_path / died, tmp_path / "stage" / f"shop={uuid.uuid4()}"
    for path in (young, old, staged / "link", foreign / "unread.json"):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    for path in (old, staged, foreign):
        os.utime(path, (time.time() - 8 * 86400,) * 2)
    assert vacuum(str(tmp_path)) == ("main/data/old/p/f.parquet", died)
    assert old.exists()
    assert vacuum(str(tmp_path), dry_run=False) == ("main/data/old/p/f.parquet", died)
    assert (foreign / "unread.json").exists(), "another program's"
    assert (young.exists(), old.exists(), staged.exists()) == (True, False, False)
    assert count_rows(Path(table.location)) == once(p=6, q=6)
    with pytest.raises(ConfigError, match="7 days"):
        vacuum(str(tmp_path), timedelta(days=6))


def test_the_vacuum_takes_old_checkpoints_and_the_log_is_the_same_without_them(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    path, folder = Path(table.location), Path(table.location) / "_delta_log"
    for _ in range(5):
        claimed = table.claim({"p": 5, "q": 5}, {"p": 0, "q": 0})
        table.commit(claimed, batch(table, claimed))
        DeltaTable(path).create_checkpoint()
    before = sorted(folder.glob("*.checkpoint.parquet"))

    def said() -> list[object]:
        at = [DeltaTable(path, version=v) for v in range(DeltaTable(path).version() + 1)]
        states = [(sorted(t.file_uris()), t.transaction_version("rota/g/p/offset")) for t in at]
        return [
            states,
            DeltaTable(path).history(),
            table.read_log(),
            table.read_positions(("p", "q")),
            log(path).transactions,
        ]

    everything = said()
    assert vacuum(str(tmp_path), dry_run=False) == (), "a reader may have opened the table by any of them"
    for one in before[:4]:
        os.utime(one, (time.time() - 2 * 86400,) * 2)
    gone = tuple(f"main/_delta_log/{one.name}" for one in before[:3])
    assert vacuum(str(tmp_path)) == gone
    assert sorted(folder.glob("*.checkpoint.parquet")) == before
    assert vacuum(str(tmp_path), dry_run=False) == gone
    assert sorted(folder.glob("*.checkpoint.parquet")) == before[3:]
    assert said() == everything
    claimed = table.claim({"p": 6, "q": 6}, {"p": 0, "q": 0})
    table.commit(claimed, batch(table, claimed))
    assert count_rows(path) == once(p=18, q=18)


def test_the_vacuum_leaves_the_checkpoints_of_a_shortened_log(tmp_path: Path) -> None:
    """They have facts that nothing else has."""
    table = fill_two(tmp_path)
    folder = Path(table.location) / "_delta_log"
    for _ in range(4):
        claimed = table.claim({"p": 5, "q": 5}, {"p": 0, "q": 0})
        table.commit(claimed, batch(table, claimed))
        DeltaTable(Path(table.location)).create_checkpoint()
    (folder / f"{0:020}.json").unlink()
    for one in folder.glob("*.checkpoint.parquet"):
        os.utime(one, (time.time() - 2 * 86400,) * 2)
    assert vacuum(str(tmp_path), dry_run=False) == ()


def test_offsets_and_tokens_survive_checkpoints_and_compaction_of_the_log(tmp_path: Path) -> None:
    table = fill_two(tmp_path)
    DeltaTable(Path(table.location)).create_checkpoint()
    DeltaTable(Path(table.location)).optimize.compact()
    DeltaTable(Path(table.location)).cleanup_metadata()
    assert table.read_positions(("p",))["p"].offset == 6
    assert table.claim({"p": 4}, {"p": 0}).newer == {"p": 5}
    assert open_table(Path(table.location), "g", META).read_log()[-1].op == "claim"
