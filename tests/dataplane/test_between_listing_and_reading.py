"""Files that are appended to, replaced, cut or deleted while a run is on its way to them, in each format, at each moment.

Law: what is committed under an offset are the records that its file had when it got the offset, all of them and no other,
and a file that is another one since is named. Else nothing of it is committed, and its partition has the reason. The
partition beside it goes on.
"""

import io
import json
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.files import avro_reading, parquet, texts
from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.files.listed import Listed
from rota.dataplane.spark import bisection, writing
from rota.errors import RotaError
from rota.ledger.ledger import Ledger
from rota.run.consume import CommittedBatch
from rota.run.rewritten import explain_rewritten
from tests.dataplane import avro_cases
from tests.dataplane.conftest import log
from tests.dataplane.striking import strike_at
from tests.dataplane.world import World

Change = Callable[[Path, bytes], object]
FORMATS = ("json", "csv", "parquet", "avro")
MOMENTS: dict[str, tuple[object, str, bool]] = {  # what is called then, and whether it is before that
    "after the listing": (FileIndex, "extend", False),
    "after the first look": (FilesSource, "find_broken", False),
    "after the bytes were counted": (texts, "count_most", False),
    "after the footers were read": (parquet, "explain_misfit", False),
    "after the blocks were counted": (avro_reading, "explain_misfit", False),
    "before Spark lists": (Listed, "load", True),
    "after Spark listed": (writing, "write", True),
    "after Spark read": (writing, "write", False),
    "before the commit": (Ledger, "commit", True),
}
ONLY = {
    "after the bytes were counted": ("json", "csv"),
    "after the footers were read": ("parquet",),
    "after the blocks were counted": ("avro",),
    "before Spark lists": ("json", "csv", "parquet"),  # tasks open files of Avro by their names
}
CHANGES: dict[str, Change] = {
    "appended": lambda path, more: append(path, more),
    "replaced": lambda path, more: (path.with_name("_new").write_bytes(more), path.with_name("_new").replace(path)),
    "emptied": lambda path, more: path.write_bytes(b""),
    "cut": lambda path, more: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "deleted": lambda path, more: path.unlink(),
    "untouched": lambda path, more: None,
}
CASES = [(format, moment) for format in FORMATS for moment in MOMENTS if format in ONLY.get(moment, (format,))]


def append(path: Path, more: bytes) -> None:
    with path.open("ab") as file:
        file.write(more)


def make_bytes(format: str, numbers: range) -> bytes:
    if format == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int32())}), sink, row_group_size=5)
        return sink.getvalue()
    if format == "avro":  # a block for every five records
        return avro_cases.write_file({"n": "int"}, [{"n": n} for n in numbers], sync_interval=8)
    return "".join(f"{json.dumps({'n': n}) if format == 'json' else n}\n" for n in numbers).encode()


@pytest.mark.parametrize(("format", "moment"), CASES)
def test_no_record_is_lost_and_none_that_came_later_is_taken_for_it(format: str, moment: str, world: World) -> None:
    assert play(format, moment, world, CHANGES) == []


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])  # a task finds that a file of Avro has another size
def test_without_the_second_look_files_are_committed_as_others_than_they_were(
    format: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisection.Bisection, "look_again", lambda *_: None)
    assert play(format, "after the first look", world, ("replaced", "untouched")) != []


def play(format: str, moment: str, world: World, changes: Collection[str]) -> list[str]:
    """What is wrong after it."""
    world.write(f"pipeline = Pipeline(source=source(format={format!r}, schema='n int'), table=delta({{table!r}}))\n")
    landed = {key: world.folder / "land" / key / f"0.{format}" for key in changes}
    for path in landed.values():
        path.parent.mkdir(parents=True)
        path.write_bytes(make_bytes(format, range(20)))
    world.give(*landed)

    def change() -> None:
        for key, path in landed.items():
            CHANGES[key](path, make_bytes(format, range(100, 107)))

    said: dict[str, str] = {}
    place, call, before = MOMENTS[moment]
    with strike_at(place, call, change, before=before):
        for _ in range(2):
            try:
                events = world.run(*landed)
            except RotaError as error:
                said |= dict.fromkeys(map(world.pipeline.partition, landed), str(error))
                continue
            said |= {e.partition: getattr(e, "reason", "") for e in events if not isinstance(e, CommittedBatch)}
    found: dict[str, Counter[int]] = {}
    for row in log(world.table / "main").rows():
        found.setdefault(str(row["_partition"]), Counter())[int(str(row["n"]))] += 1
    named = explain_rewritten(world.ports.source, world.ports.main.read_log())
    parked = world.tree.parked()
    wrong = []
    for key in changes:
        p = world.pipeline.partition(key)
        reason = parked[p].record.reason if p in parked else ""
        if p not in found and f"{key}/0.{format} (offset 0)" not in reason:
            wrong.append(f"{key}: nothing is committed, and the reason is {reason!r}, {said.get(p)!r}")
        elif p in found and found[p] != Counter(range(20)):
            wrong.append(f"{key}: {found[p]}")
        elif p in found and (p in named) != (key not in ("untouched", "deleted")):
            wrong.append(f"{key}: named is {named.get(p)!r}")
    if "p:untouched" not in found:
        wrong.append("the partition beside them does not go on")
    if (len(found) == len(changes)) != (moment == "before the commit"):
        wrong.append(f"committed: {sorted(found)}")
    return wrong
