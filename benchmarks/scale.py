"""Measures the cost of bookkeeping in old tables: an observation and a claim with many files, an index of many files, a log
of many versions.

    python benchmarks/scale.py main --files 300000 --partitions 1000
    python benchmarks/scale.py index --files 1000000 --partitions 16
    python benchmarks/scale.py versions --versions 100000
    python benchmarks/scale.py batches --batches 250 --rows 1000
    python benchmarks/scale.py offsets --offsets 10000000 --commits 1000

main      a table of `files` files in its checkpoint: to open it, to read the positions of all partitions, claim and commit
index     an index of `files` files: the first observation of a process and each further one (without a listing of the
          landing folder), those of a run that reads one new file of each partition, and an append of one file
versions  a log of `versions` commits, its newest checkpoint 50 before the end: to open it, to read positions and foreign
          commits, and a claim and a commit of one file
batches   `batches` commits of one file of `rows` rows each: the number of files at most and at the end, and the CPU time per
          batch of merging them
offsets   a stream of `offsets` consumed messages in `commits` commits: the cost of `rota why`, `rota check` and of choosing
          a replay by time, by change and by file; without a broker

Each part is measured in its own process, which opens a table once and then reads new commits. Marked rows are of a new
process without a cache. Seconds are the least of three if nothing is written. Peak memory is in MiB.
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
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from rota.dataplane.delta.tables import open_table
from rota.dataplane.files.file_index import LandedFile
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import ASSIGN
from rota.errors import ConfigError
from rota.ledger import schema
from rota.ledger.ledger import Ledger
from rota.ledger.merging import is_due, merge_beside_run
from rota.ledger.values import Batch, DataFile, TableClaim
from rota.pipeline import Pipeline, delta, files
from rota.rabbitmq import streams
from rota.registry import open_ports, open_source
from rota.run.rewritten import explain_rewritten
from rota.run.spans import Choice, choose_spans

CHUNK = 20_000


def open_measured(folder: Path) -> Ledger:
    """The table under measure."""
    return open_table(folder / "main", "g", "0" * 32)


def name_partitions(partitions: int) -> tuple[str, ...]:
    """The partitions."""
    return tuple(f"p:k{i:04}" for i in range(partitions))


def print_least_time(name: str, what: Callable[[], object], times: int = 3) -> None:
    """Writes the least time, and the least time of processors, which depends less on other work on the machine."""
    took, cpu = [], []
    for _ in range(times):
        began, spent = time.monotonic(), time.process_time()
        what()
        took.append(time.monotonic() - began)
        cpu.append(time.process_time() - spent)
    sys.stdout.write(f"  {name}: {min(took):.3f} s ({min(cpu):.3f} of CPU)\n")


def print_peak_and_exit() -> None:
    """Writes the most memory that this process had."""
    sys.stdout.write(f"  peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB\n")
    sys.stdout.flush()
    os._exit(0)


def build_table(folder: Path, files: int, partitions: int) -> None:
    """A table whose files are in its log alone: nothing here reads them."""
    table = open_measured(folder)
    table.claim(dict.fromkeys(name_partitions(partitions), 1), dict.fromkeys(name_partitions(partitions), 0))
    now = int(time.time() * 1000)
    for start in range(0, files, CHUNK):
        handle = DeltaTable(Path(table.location))
        added = []
        for number in range(start, min(files, start + CHUNK)):
            bounds = {"_partition": name_partitions(partitions)[number % partitions], "_offset": number}
            said = json.dumps({"numRecords": 10, "minValues": bounds, "maxValues": bounds})
            path = f"data/run-{start}/{number:08x}/part-00000-{uuid.uuid4()}.c000.snappy.parquet"
            added.append(AddAction(path, 64 << 20, {}, now, True, said))
        said_of = CommitProperties(custom_metadata={"rota.op": "commit", "rota.base": str(handle.version())})
        handle.create_write_transaction(added, "append", handle.schema(), partition_by=[], commit_properties=said_of)
    DeltaTable(Path(table.location)).create_checkpoint()


def measure_table(folder: Path, partitions: int) -> None:
    """Of each step of a run that asks main."""
    table, wanted = open_measured(folder), name_partitions(partitions)
    print_least_time("open", lambda: DeltaTable(Path(table.location)))
    print_least_time(f"look at {partitions:,} partitions", lambda: table.read_positions(wanted))
    print_least_time("what others altered", lambda: table.find_foreign_commits(wanted))
    tokens = iter(range(2, 10))

    def claim(table: Ledger = table) -> TableClaim:
        return table.claim(dict.fromkeys(wanted, next(tokens)), dict.fromkeys(wanted, 0))

    print_least_time(f"claim of {partitions:,} partitions", claim)
    print_least_time("claim in a process that begins", lambda: claim(open_measured(folder)))
    claims = [table.claim(dict.fromkeys(wanted, 20), dict.fromkeys(wanted, 0))]

    def commit(table: Ledger = table) -> None:
        table.commit(claims[0], make_batch(table, claims[0]))
        claims[0] = table.claim(dict.fromkeys(wanted, 20), dict.fromkeys(wanted, 0))

    print_least_time(f"commit of {partitions:,} partitions, and the claim after it", commit)
    print_least_time("the same in a process that begins", lambda: commit(open_measured(folder)))
    print_peak_and_exit()


def make_batch(table: Ledger, claim: TableClaim) -> Batch:
    """The next offset of each partition of the claim, and one file."""
    name = uuid.uuid4().hex
    (Path(table.location) / name).write_bytes(b"never read")
    ranges = {p: (at, at + 1) for p, at in claim.offsets.items()}
    first = next(iter(ranges))
    return Batch(
        name, "run", "w@0", name, 1, ranges, (DataFile(name, first, 15, 1, 0, "{}", schema.FIRST),), {first: 1}
    )


def open_landing(folder: Path) -> FilesSource:
    """Its landing folder is empty: what a listing costs is not measured here."""
    declared = files(str(folder / "land"), format="json", schema="n int", settle=0.0)
    source = open_source(Pipeline(source=declared, table=delta(str(folder / "table")), name="p"))
    assert isinstance(source, FilesSource)
    return source


def build_index(folder: Path, files: int, partitions: int) -> None:
    """All landed at once."""
    per = files // partitions
    for partition in name_partitions(partitions):
        (folder / "land" / partition[2:]).mkdir(parents=True)

    def new(partition: str, _: object) -> list[LandedFile]:
        return [LandedFile(f"{partition[2:]}/events-2026-11-21-{n:09}.json", 1000 + n, 10**18 + n) for n in range(per)]

    open_landing(folder).index.extend(name_partitions(partitions), new)


def measure_index(folder: Path, files: int, partitions: int) -> None:
    """Of a look, of a run, of an append."""
    one, wanted, end = open_landing(folder), name_partitions(partitions), files // partitions
    print_least_time("the first look of a process", lambda: one.observe(wanted).ends, 1)
    print_least_time("each further look", lambda: one.observe(wanted).ends)
    print_least_time("a look at one partition", lambda: one.observe(wanted[:1]).ends)
    ranges = dict.fromkeys(wanted, (end - 1, end))

    def run() -> None:
        one.observe(wanted, ASSIGN)
        one.plan_jobs(dict.fromkeys(wanted, end - 1), dict.fromkeys(wanted, end))
        one.find_broken(ranges)
        one.index.files(ranges)  # for the links
        one.find_broken(ranges)

    print_least_time("the looks of a run", run)

    def late(partition: str, known: "frozenset[str]") -> list[LandedFile]:
        return [LandedFile(f"{partition[2:]}/late-{len(known)}.json", 1, 1)]

    began, appends = time.monotonic(), 50
    for _ in range(appends):
        one.index.extend(wanted[:1], late)
    sys.stdout.write(f"  an append of one file, mean of {appends}: {(time.monotonic() - began) / appends:.2f} s\n")
    named = DeltaTable(one.index.location).file_uris()
    there = list(Path(one.index.location).glob("*.parquet"))
    sys.stdout.write(
        f"  its files: {len(named)}, on disk {len(there)}, {sum(f.stat().st_size for f in there) >> 10:,} KiB\n"
    )
    print_peak_and_exit()


def build_log(folder: Path, versions: int, partition: str = "p", each: int = 1) -> None:
    """One partition, moved on by `each` offsets by each commit."""
    table = open_measured(folder)
    table.claim({partition: 1}, {partition: 0})
    log, last = Path(table.location) / "_delta_log", versions - 50
    for version in range(2, versions):
        if version == last:
            DeltaTable(Path(table.location)).create_checkpoint()
        start, end = (version - 2) * each, (version - 1) * each
        said = {
            "timestamp": 1_795_000_000_000 + version, "operation": "WRITE", "operationParameters": {},
            "rota.op": "commit", "rota.base": str(version - 1), "rota.ranges": json.dumps({partition: [start, end]}),
        }  # fmt: skip
        moved = {"txn": {"appId": f"rota/g/{partition}/offset", "version": end}}
        (log / f"{version:020}.json").write_text(f"{json.dumps(moved)}\n{json.dumps({'commitInfo': said})}\n")


def measure_log(folder: Path) -> None:
    """Of a look."""
    table = open_measured(folder)
    print_least_time("open", lambda: DeltaTable(Path(table.location)))
    print_least_time("look", lambda: table.read_positions(("p",)))
    print_least_time("what others altered", lambda: table.find_foreign_commits(("p",)))
    print_least_time("the newest 500 commits", table.read_recent_log)
    tokens = iter(range(2, 30))
    print_least_time("claim", lambda: table.claim({"p": next(tokens)}, {"p": 0}), 10)
    print_least_time(
        "claim in a process that begins", lambda: open_measured(folder).claim({"p": next(tokens)}, {"p": 0})
    )
    claims = iter([table.claim({"p": 30}, {"p": 0})])

    def commit(table: Ledger = table) -> None:
        claim = next(claims, None) or table.claim({"p": 30}, {"p": 0})
        table.commit(claim, make_batch(table, claim))

    print_least_time("commit, with the claim before it", commit, 10)
    print_least_time("the same in a process that begins", lambda: commit(open_measured(folder)))
    print_peak_and_exit()


def measure_offsets(folder: Path) -> None:
    """Of a stream whose messages are not listed one by one."""
    declared = streams("amqp://localhost", prefix="s", count=1, schema="n int")
    ports = open_ports(Pipeline(declared, delta(str(folder)), group="g", name="p"), "g", "0" * 32)
    print_least_time("the log alone", ports.main.read_log)
    started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    past = ports.main.read_log()
    sys.stdout.write(
        f"  {len(past):,} commits, {sum(end - start for one in past for start, end in one.ranges.values()):,} offsets\n"
    )

    def choose(choice: Choice) -> None:
        with suppress(ConfigError):
            choose_spans(ports, ("p:0",), choice)

    print_least_time("rota why", lambda: explain_rewritten(ports.source, ports.main.read_log(), "p:0", most=None))
    print_least_time("rota check", lambda: explain_rewritten(ports.source, ports.main.read_log(), most=None))
    print_least_time("replay by time", lambda: choose(Choice(time=(0.0, 1e12))))
    print_least_time("replay by change, also a backfill", lambda: choose(Choice(changed=True)))
    print_least_time("replay by file", lambda: choose(Choice(files=("message 7 of s0",))))
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - started
    sys.stdout.write(f"  peak beyond the log's: {more >> 10} MiB\n")
    print_peak_and_exit()


def measure_batches(folder: Path, batches: int, rows: int) -> None:
    """Every batch by its own claim, as runs do it; Spark is left out."""
    table, files, spent = open_measured(folder), [0], 0.0
    kinds = {"_partition": "string", "_offset": "long", "n": "long", "x": "double", "s": "string"}
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in kinds.items()]
    for number in range(batches):
        claimed = table.claim({"p": 1}, {"p": 0})
        path = Path(table.location) / f"data/{number}/p/f.parquet"
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
        file = DataFile(str(path.relative_to(Path(table.location))), "p", size, rows, 0, said, schema)
        made = Batch(f"{number}", "run", "w@0", f"{number}", 1, {"p": (number, number + 1)}, (file,), {"p": rows})
        if is_due(table.commit(claimed, made).version):
            began = time.process_time()
            merge_beside_run(table)
            spent += time.process_time() - began
        files.append(len(DeltaTable(Path(table.location)).file_uris()))
    kept = sum(pq.read_metadata(Path(table.location) / f).num_rows for f in _list_files(Path(table.location)))
    sys.stdout.write(
        f"  files: {max(files)} at most, {files[-1]} at the end, with {kept:,} of {batches * rows:,} rows\n"
    )
    sys.stdout.write(f"  putting them together: {spent / batches * 1000:.1f} ms of CPU a batch\n")
    print_peak_and_exit()


def _list_files(table: Path) -> list[str]:
    return [str(path) for path in pa.table(DeltaTable(table).get_add_actions())["path"].to_pylist()]


def main() -> None:
    """Builds in one process, measures in another."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=["main", "index", "versions", "batches", "offsets"])
    parser.add_argument("--files", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--versions", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=250)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--offsets", type=int, default=10_000_000)
    parser.add_argument("--commits", type=int, default=1_000)
    given = parser.parse_args()
    sys.stdout.write(f"{given.part}: {json.dumps({k: v for k, v in vars(given).items() if k != 'part'})}\n")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps: dict[str, tuple[tuple[Callable[..., None], tuple[object, ...]], ...]] = {
            "main": (
                (build_table, (folder, given.files, given.partitions)),
                (measure_table, (folder, given.partitions)),
            ),
            "index": (
                (build_index, (folder, given.files, given.partitions)),
                (measure_index, (folder, given.files, given.partitions)),
            ),
            "batches": ((measure_batches, (folder, given.batches, given.rows)),),
            "offsets": (
                (build_log, (folder, given.commits + 2, "p:0", given.offsets // given.commits)),
                (measure_offsets, (folder,)),
            ),
            "versions": ((build_log, (folder, given.versions)), (measure_log, (folder,))),
        }
        for step, arguments in steps[given.part]:
            process = multiprocessing.get_context("spawn").Process(target=step, args=arguments)
            process.start()
            process.join()


if __name__ == "__main__":
    main()
