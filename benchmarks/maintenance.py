"""Measures the cost of 20,000 commits in a table with nightly maintenance, and without. Draws `docs/maintenance.png`.

    python -m benchmarks.maintenance [--commits 20000] [--pace 60] [--write]

Three tables get the same commits of one partition, one a simulated minute (`--pace` is in seconds):

kept     runs merge small files, and each simulated night the maintenance of `<pipeline>__maintain` runs
runs     runs merge small files, and no job maintains the table
nothing  small files stay as they are

A commit is a Parquet file of two rows, and a file of the log with rota's metadata. delta-rs writes a checkpoint every
hundred commits. Time is simulated by the times of the log's files: a file older than a simulated day is two days old.
Merged files stay in the checkpoints as removed, because Delta keeps that entry for a week of real time: the measured times
are those of a table that got all its commits within a week.

At ten points, a claim and a commit of the shipped ledger are timed on each table, in turn with a table of 20 commits (45 at
the end): in a running process, and in a process that has opened no table yet. Printed: the files that the table names, the
files in the folder of its log, and for both kinds of process the median CPU milliseconds of claim and commit, and the median
of their ratios to the table of 20 commits. At the end every offset must be in each table exactly once, the transaction must
be right, and every commit must be readable; else the exit code is 1.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.dataplane.delta.vacuum import A_DAY, shorten_logs, vacuum
from rota.ledger.change import read_back
from rota.ledger.entries import describe_commit
from rota.ledger.ledger import Ledger
from rota.ledger.merging import A_NIGHT, is_due, merge, merge_beside_run
from rota.ledger.schema import FIRST
from rota.ledger.values import Batch, DataFile, Ranges, TableClaim
from tests.dataplane.written import read_footers

PARTITION = "p:a"
ROWS = 2  # of a commit
SMALL = 20  # commits of the table that the others are compared with
ROUNDS = 25  # of each kind
KINDS = {"goes on": False, "begins": True}  # a process
POINTS = 10  # how often it is measured
PICTURE = Path(__file__).parents[1] / "docs" / "maintenance.png"
LOOK = {"kept": "#0b7a75", "runs": "#d9a441", "nothing": "#c8553d"}


@dataclass(slots=True)
class Table:
    """A table that gets commits, and its measurements."""

    folder: Path
    compacts: bool
    maintained: bool
    ledger: Ledger = field(init=False)
    offset: int = 0
    number: int = 0
    nights: int = 0
    seen: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Open the table as a new process does."""
        self.ledger = open_table(self.folder / "main", "g", "0" * 32, "p")

    @property
    def log(self) -> Path:
        """The folder of its log."""
        return self.folder / "main" / "_delta_log"

    def grow(self, pace: float) -> None:
        """Commit, do a run's work after a commit, and each night the maintenance."""
        if not self.number:
            self.number = self.commit(self.claim())
            return
        self._append()
        if self.number % 100 == 0:  # as delta-rs does at its commits
            DeltaTable(self.ledger.location).create_checkpoint()
        if self.compacts and is_due(self.number):
            merge_beside_run(self.ledger)
            self._look()
        night = int(A_DAY / pace)
        if self.maintained and self.number // night > self.nights:
            self.nights = self.number // night
            self._age(self.number - night)
            merge(self.ledger, A_NIGHT)
            shorten_logs(str(self.folder))
            vacuum(str(self.folder), dry_run=False)
            self._look()

    def _append(self) -> None:
        """A commit of `ROWS` rows, as delta-rs writes those of rota."""
        ranges = {PARTITION: (self.offset, self.offset + ROWS)}
        file = self._write_file(ranges)
        said = describe_commit(
            Batch(uuid.uuid4().hex, "run", "w@0", "a", 1, ranges, (), {PARTITION: ROWS}), "g", {}, "p"
        )
        now = int(time.time() * 1000)
        actions = [
            {"commitInfo": {"timestamp": now, "operation": "WRITE", **said, "rota.base": str(self.number)}},
            {"txn": {"appId": f"rota/g/{PARTITION}/offset", "version": self.offset + ROWS}},
            {"txn": {"appId": f"rota/g/{PARTITION}/token", "version": 5}},
            {
                "add": {
                    "path": file.path,
                    "partitionValues": {},
                    "size": file.size,
                    "modificationTime": file.modified,
                    "dataChange": True,
                    "stats": file.statistics,
                }
            },
        ]
        self.number, self.offset = self.number + 1, self.offset + ROWS
        with (self.log / f"{self.number:020}.json").open("x") as out:
            out.write("\n".join(map(json.dumps, actions)))

    def _look(self) -> None:
        newest = self.ledger.open()
        assert newest
        self.number = newest.number

    def _age(self, before: int) -> None:
        """Make the log's files up to that version two days old."""
        then = time.time() - 2 * A_DAY
        for file in os.scandir(self.log):
            if file.name[:20].isdigit() and int(file.name[:20]) <= before:
                os.utime(file.path, (then, then))

    def claim(self) -> TableClaim:
        """The claim of a run."""
        return self.ledger.claim({PARTITION: 5}, {PARTITION: 0})

    def write(self, claimed: TableClaim) -> Batch:
        """Write the files that Spark would write."""
        start = claimed.offsets[PARTITION]
        ranges = {PARTITION: (start, start + ROWS)}
        files = (self._write_file(ranges),)
        return Batch(uuid.uuid4().hex, "run", "w@0", "a", 1, ranges, files, {PARTITION: ROWS})

    def _write_file(self, ranges: Ranges) -> DataFile:
        start, end = ranges[PARTITION]
        attempt = uuid.uuid4().hex
        folder = Path(self.ledger.location) / "data" / attempt / names.split(PARTITION)
        folder.mkdir(parents=True)
        rows = pa.table({"_partition": [PARTITION] * (end - start), "_offset": list(range(start, end))})
        pq.write_table(rows.replace_schema_metadata({footers.SPARK: FIRST}), folder / "f.parquet")
        (file,) = read_footers(Path(self.ledger.location), attempt, ranges)
        return file

    def commit(self, claimed: TableClaim) -> int:
        """The version that it made."""
        self.offset = claimed.offsets[PARTITION] + ROWS
        return self.ledger.commit(claimed, self.write(claimed)).version

    def time_pair(self, begins: bool) -> float:
        """Return the CPU milliseconds of a claim and a commit; `begins`: in a process that has not opened the table."""
        if begins:
            self.open()
        begun = time.process_time()
        claimed = self.claim()
        between = time.process_time()
        batch = self.write(claimed)
        written = time.process_time()
        self.number = self.ledger.commit(claimed, batch).version
        self.offset = claimed.offsets[PARTITION] + ROWS
        return (between - begun + time.process_time() - written) * 1000

    def find_damage(self) -> list[str]:
        """Return the broken rules at the end."""
        self.open()
        newest, found = self.ledger.open(), Counter[int]()
        if newest is None:
            return ["there is no table"]
        for one in newest.files().to_pylist():
            path = Path(self.ledger.location) / one["path"]
            found.update(pq.read_table(path, columns=["_offset"])["_offset"].to_pylist())
        wrong = [] if found == Counter(range(self.offset)) else ["rows are lost or doubled"]
        if newest.transaction(f"rota/g/{PARTITION}/offset") != self.offset:
            wrong.append("the offset is another")
        said = read_back(newest)
        counted = Counter(o for one in said for r in _ranges(one) for o in range(*r))
        if len(said) != newest.number + 1 or counted != Counter(range(self.offset)):
            wrong.append("commits are missing")
        return wrong


def _ranges(said: dict[str, str]) -> list[list[int]]:
    return list(json.loads(said["rota.ranges"]).values()) if said.get("rota.op") == "commit" else []


def measure(tables: dict[str, Table], folder: Path) -> None:
    """Time each table in turn with a small table, and add the result to each."""
    seen: dict[str, dict[str, float]] = {name: {} for name in tables}
    for kind, begins in KINDS.items():
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in tables}
        small = {name: make_small(folder / uuid.uuid4().hex) for name in tables}
        for _ in range(ROUNDS):
            for name, table in tables.items():
                pairs[name].append((table.time_pair(begins), small[name].time_pair(begins)))
        for name, of in pairs.items():
            seen[name][f"ms, {kind}"] = statistics.median(mine for mine, _ in of)
            seen[name][f"times, {kind}"] = statistics.median(mine / its for mine, its in of)
    for name, table in tables.items():
        newest = table.ledger.open()
        assert newest
        counted = {"files": newest.files().num_rows, "log": len(list(table.log.iterdir()))}
        table.seen.append({"commits": table.offset / ROWS, **counted, **seen[name]})


def make_small(folder: Path) -> Table:
    """A table of `SMALL` commits."""
    table = Table(folder, compacts=False, maintained=False)
    for _ in range(SMALL):
        table.number = table.commit(table.claim())
    return table


def draw(tables: dict[str, Table], path: Path) -> None:
    """Files that the table names, files of its log, and what claim and commit take as that of a table of 20 commits, over
    commits: in a process that goes on, and by dashes in one that begins."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import StrMethodFormatter

    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#999999"})
    labels = {"kept": "maintained each night", "runs": "put together by runs alone", "nothing": "nothing put together"}
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.6))
    said = (
        ("files", "files that the table names"),
        ("log", "files in the folder of its log"),
        ("times", f"claim and commit, times {SMALL} commits"),
    )
    for axes, (key, title) in zip(panels, said, strict=True):
        for name, table in tables.items():
            for line, kind in zip(("-", "--"), KINDS if key == "times" else [""], strict=False):
                points = [(one["commits"], one[f"{key}, {kind}" if kind else key]) for one in table.seen]
                axes.plot(*zip(*points, strict=True), line, color=LOOK[name], label=labels[name], lw=2)
        axes.set_title(title, fontsize=9.5, fontweight="bold", loc="left")
        axes.set(xlabel="commits (dashed: a process that begins)" if key == "times" else "commits")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.1f}" if key == "times" else "{x:,.0f}"))
        axes.grid(True, color="#e6e6e6", lw=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    """Run the benchmark. Return 1 if a table is damaged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.maintenance", description="20,000 commits of a table")
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--pace", type=float, default=60.0, help="simulated seconds from a commit to the next")
    parser.add_argument("--write", action="store_true", help=f"draw {PICTURE.name}")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-maintenance-") as made:
        folder, wrong = Path(made), dict[str, list[str]]()
        kinds = {"kept": (True, True), "runs": (True, False), "nothing": (False, False)}
        tables = {name: Table(folder / name, *kind) for name, kind in kinds.items()}
        print(f"{'commits':>8} {'table':<8} {'files':>7} {'log':>7}  CPU ms, times a table of {SMALL}")  # noqa: T201
        for _ in range(POINTS):
            for table in tables.values():
                for _ in range(chosen.commits // POINTS - ROUNDS * len(KINDS)):
                    table.grow(chosen.pace)
            measure(tables, folder)
            for name, table in tables.items():
                one = table.seen[-1]
                said = f"{one['commits']:>8,.0f} {name:<8} {one['files']:>7,} {one['log']:>7,}"
                for kind in KINDS:
                    said += f"  {kind}: {one[f'ms, {kind}']:.1f}, {one[f'times, {kind}']:.2f}"
                print(said, flush=True)  # noqa: T201
        wrong = {name: damage for name, table in tables.items() if (damage := table.find_damage())}
        if chosen.write:
            draw(tables, PICTURE)
    print(f"load {os.getloadavg()[0]:.1f}. {wrong or 'Each row, offset and commit is there once'}")  # noqa: T201
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
