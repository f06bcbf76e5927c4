"""What bookkeeping costs as tables age: a look and a claim at many files, an index of many files, a log of many versions.

    python benchmarks/scale.py main --files 300000 --partitions 1000
    python benchmarks/scale.py index --files 1000000 --partitions 16
    python benchmarks/scale.py versions --versions 100000
    python benchmarks/scale.py batches --batches 250 --rows 1000

main      a table of `files` files in its checkpoint: what opening it costs, a look at all partitions, and their claim
index     an index of `files` files: the first look of a process and each further one (both without listing the landing
          folder), the looks of one run that reads one new file of each partition, and an append of one file
versions  a log of `versions` commits, its newest checkpoint 50 before the end: opening, a look, what others altered
batches   `batches` commits of one file of `rows` rows each: how many files there are at most, and at the end, and what
          putting them together costs a batch, in CPU time

Each part is measured in a process of its own; seconds, the least of three where nothing is written. Peak memory in MiB.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from rota.dataplane.compacting import compact, due
from rota.dataplane.fileindex import Landed
from rota.dataplane.landing import Landing
from rota.dataplane.ledger import Ledger
from rota.dataplane.table import Batch, DataFile
from rota.pipeline import Delta, Files, Pipeline

CHUNK = 20_000


def ledger(folder: Path) -> Ledger:
    """The table under measure."""
    return Ledger(folder / "main", "g", "0" * 32)


def ids(partitions: int) -> tuple[str, ...]:
    """The partitions."""
    return tuple(f"p:k{i:04}" for i in range(partitions))


def timed(name: str, what: Callable[[], object], times: int = 3) -> None:
    """Writes the least time."""
    took = []
    for _ in range(times):
        began = time.monotonic()
        what()
        took.append(time.monotonic() - began)
    sys.stdout.write(f"  {name}: {min(took):.2f} s\n")


def peak() -> None:
    """Writes the most memory that this process had."""
    sys.stdout.write(f"  peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB\n")
    sys.stdout.flush()
    os._exit(0)


def main_of(folder: Path, files: int, partitions: int) -> None:
    """A table whose files are in its log alone: nothing here reads them."""
    table = ledger(folder)
    table.claim(dict.fromkeys(ids(partitions), 1), dict.fromkeys(ids(partitions), 0))
    now = int(time.time() * 1000)
    for start in range(0, files, CHUNK):
        handle = DeltaTable(table.path)
        added = []
        for number in range(start, min(files, start + CHUNK)):
            bounds = {"_partition": ids(partitions)[number % partitions], "_offset": number}
            said = json.dumps({"numRecords": 10, "minValues": bounds, "maxValues": bounds})
            path = f"data/run-{start}/{number:08x}/part-00000-{uuid.uuid4()}.c000.snappy.parquet"
            added.append(AddAction(path, 64 << 20, {}, now, True, said))
        said_of = CommitProperties(custom_metadata={"rota.op": "commit", "rota.base": str(handle.version())})
        handle.create_write_transaction(added, "append", handle.schema(), partition_by=[], commit_properties=said_of)
    DeltaTable(table.path).create_checkpoint()


def main_costs(folder: Path, partitions: int) -> None:
    """Of each step of a run that asks main."""
    table, wanted = ledger(folder), ids(partitions)
    timed("open", lambda: DeltaTable(table.path))
    timed(f"look at {partitions:,} partitions", lambda: table.standing(wanted))
    timed("what others altered", lambda: table.altered(wanted))
    tokens = iter(range(2, 10))
    claim = lambda: table.claim(dict.fromkeys(wanted, next(tokens)), dict.fromkeys(wanted, 0))  # noqa: E731
    timed(f"claim of {partitions:,} partitions", claim)
    peak()


def landing(folder: Path) -> Landing:
    """Its landing folder is empty: what a listing costs is not measured here."""
    source = Files(str(folder / "land"), "json", "n int", settle=0.0)
    return Landing.of(Pipeline(source=source, table=Delta(str(folder / "table")), name="p"))


def index_of(folder: Path, files: int, partitions: int) -> None:
    """All landed at once."""
    per = files // partitions
    for partition in ids(partitions):
        (folder / "land" / partition[2:]).mkdir(parents=True)

    def new(partition: str, _: object) -> list[Landed]:
        return [Landed(f"{partition[2:]}/events-2026-11-21-{n:09}.json", 1000 + n, 10**18 + n) for n in range(per)]

    landing(folder).index.extend(ids(partitions), new)


def index_costs(folder: Path, files: int, partitions: int) -> None:
    """Of a look, of a run, of an append."""
    one, wanted, end = landing(folder), ids(partitions), files // partitions
    timed("the first look of a process", lambda: one.latest(wanted), 1)
    timed("each further look", lambda: one.latest(wanted))
    timed("a look at one partition", lambda: one.latest(wanted[:1]))
    ranges = dict.fromkeys(wanted, (end - 1, end))

    def run() -> None:
        one.given(wanted)
        one.fix(wanted)
        one.capped(dict.fromkeys(wanted, end - 1), dict.fromkeys(wanted, end))
        one.broken(ranges)
        one.index.files(ranges)  # for the links
        one.broken(ranges)

    timed("the looks of a run", run)

    def late(partition: str, known: "frozenset[str]") -> list[Landed]:
        return [Landed(f"{partition[2:]}/late-{len(known)}.json", 1, 1)]

    began, appends = time.monotonic(), 50
    for _ in range(appends):
        one.index.extend(wanted[:1], late)
    sys.stdout.write(f"  an append of one file, mean of {appends}: {(time.monotonic() - began) / appends:.2f} s\n")
    named = DeltaTable(one.index.path).file_uris()
    there = list(one.index.path.glob("*.parquet"))
    sys.stdout.write(
        f"  its files: {len(named)}, on disk {len(there)}, {sum(f.stat().st_size for f in there) >> 10:,} KiB\n"
    )
    peak()


def versions_of(folder: Path, versions: int) -> None:
    """One partition, moved on by each commit."""
    table = ledger(folder)
    table.claim({"p": 1}, {"p": 0})
    log, last = table.path / "_delta_log", versions - 50
    for version in range(2, versions):
        if version == last:
            DeltaTable(table.path).create_checkpoint()
        said = {
            "timestamp": 1_795_000_000_000 + version, "operation": "WRITE", "operationParameters": {},
            "rota.op": "commit", "rota.base": str(version - 1), "rota.ranges": json.dumps({"p": [version - 2, version - 1]}),
        }  # fmt: skip
        moved = {"txn": {"appId": "rota/g/p/offset", "version": version - 1}}
        (log / f"{version:020}.json").write_text(f"{json.dumps(moved)}\n{json.dumps({'commitInfo': said})}\n")


def versions_costs(folder: Path) -> None:
    """Of a look."""
    table = ledger(folder)
    timed("open", lambda: DeltaTable(table.path))
    timed("look", lambda: table.standing(("p",)))
    timed("what others altered", lambda: table.altered(("p",)))
    timed("the newest 500 commits", table.recent)
    peak()


def batches_cost(folder: Path, batches: int, rows: int) -> None:
    """Every batch by its own claim, as runs do it; Spark is left out."""
    table, files, spent = ledger(folder), [0], 0.0
    kinds = {"_partition": "string", "_offset": "long", "n": "long", "x": "double", "s": "string"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in kinds.items()]
    for number in range(batches):
        claimed = table.claim({"p": 1}, {"p": 0})
        path = table.path / f"data/{number}/p/f.parquet"
        path.parent.mkdir(parents=True)
        values = [
            ["p"] * rows,
            [number] * rows,
            range(rows),
            [n / 7 for n in range(rows)],
            [f"dev{n}" for n in range(rows)],
        ]
        pq.write_table(pa.table(dict(zip(kinds, map(pa.array, values), strict=True))), path)
        size, bounds = path.stat().st_size, {"_partition": "p", "_offset": number}
        said = json.dumps({"numRecords": rows, "minValues": bounds, "maxValues": bounds})
        schema = json.dumps({"type": "struct", "fields": fields})
        file = DataFile(str(path.relative_to(table.path)), "p", size, rows, 0, said, schema)
        made = Batch(f"{number}", "run", "w@0", f"{number}", 1, {"p": (number, number + 1)}, (file,), {"p": rows})
        if due(table.commit(claimed, made)):
            began = time.process_time()
            compact(table.path)
            spent += time.process_time() - began
        files.append(len(DeltaTable(table.path).file_uris()))
    kept = sum(pq.read_metadata(table.path / f).num_rows for f in _named(table.path))
    sys.stdout.write(
        f"  files: {max(files)} at most, {files[-1]} at the end, with {kept:,} of {batches * rows:,} rows\n"
    )
    sys.stdout.write(f"  putting them together: {spent / batches * 1000:.1f} ms of CPU a batch\n")
    peak()


def _named(table: Path) -> list[str]:
    return [str(path) for path in pa.table(DeltaTable(table).get_add_actions())["path"].to_pylist()]


def main() -> None:
    """Builds in one process, measures in another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=["main", "index", "versions", "batches"])
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--versions", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=250)
    parser.add_argument("--rows", type=int, default=1_000)
    given = parser.parse_args()
    sys.stdout.write(f"{given.part}: {json.dumps({k: v for k, v in vars(given).items() if k != 'part'})}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps: dict[str, tuple[tuple[Callable[..., None], tuple[object, ...]], ...]] = {
            "main": ((main_of, (folder, given.files, given.partitions)), (main_costs, (folder, given.partitions))),
            "index": (
                (index_of, (folder, given.files, given.partitions)),
                (index_costs, (folder, given.files, given.partitions)),
            ),
            "batches": ((batches_cost, (folder, given.batches, given.rows)),),
            "versions": ((versions_of, (folder, given.versions)), (versions_costs, (folder,))),
        }
        for step, arguments in steps[given.part]:
            process = multiprocessing.get_context("spawn").Process(target=step, args=arguments)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
