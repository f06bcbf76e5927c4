"""Packing of a long log under fire: writers commit, maintenances are killed, readers have older versions open.

    python -m tests.chaos.packing --seconds 120 --bucket

A day is `--day` seconds here. Laws, by a reader of the JSON of the log and of the packs alone:

1. The log and the packs hold each version once and byte for byte as it was first seen.
2. Each acknowledged commit is in it once; no row is lost or doubled, now and at each version of the last day,
   for that reader and for deltalake, also where deltalake opened the version before.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import click
import pyarrow.parquet as pq
from deltalake import DeltaTable

from rota.dataplane.delta.tables import open_table
from rota.deltalog import packs
from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.packing import pack
from rota.errors import Fenced, OffsetGap, RotaError
from rota.ledger.merging import A_NIGHT, merge
from rota.local.bucket import serve_buckets
from tests.bucket import Place, in_bucket, on_disk
from tests.dataplane.delta_tables import META
from tests.dataplane.racing_writers import make_batch

fork = get_context("fork")
ENOUGH = 20  # observations after the first pack


def write(location: str, name: str, acknowledged: Path, stop: Path) -> None:
    """Commits two rows of an own partition again and again, and at times of one that the others want, too."""
    table, tokens = open_table(location, "g", META), count(os.getpid())
    chance = random.Random(name)
    with acknowledged.open("a") as log:
        while not stop.exists():
            partition, token = ("shared", next(tokens)) if chance.random() < 0.2 else (name, 1)
            try:
                claimed = table.claim({partition: token}, {partition: 0})
                if not claimed.newer:
                    log.write(f"{table.commit(claimed, make_batch(table, claimed)).commit}\n")
                    log.flush()
            except (Fenced, OffsetGap):
                continue


def maintain(location: str, day: float) -> None:
    """What a maintenance does to this table, as if a day took so many seconds."""
    table = open_table(location, "g", META)
    merge(table, A_NIGHT)
    log = DeltaLog(location)
    if log.checkpoint():
        pack(log, time.time() - day)


@dataclass
class Watch:
    """What is seen of the table in `folder` by its files alone; `location` is what deltalake calls it."""

    folder: Path
    location: str
    day: float
    texts: dict[int, bytes] = field(default_factory=dict)  # of each version, as it was first seen
    seen: dict[int, float] = field(default_factory=dict)
    held: list[tuple[float, DeltaTable]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)

    def read_new(self) -> None:
        """Notes commits that came."""
        for version in count(len(self.texts)):
            path = self.folder / f"_delta_log/{version:020}.json"
            if not path.exists():
                return
            self.texts[version], self.seen[version] = path.read_bytes(), time.time()

    def read_rows(self, version: int) -> Counter[tuple[str, int]]:
        """The rows of a version: partition and offset."""
        files = dict[str, bool]()
        for number in range(version + 1):
            for action in map(json.loads, self.texts[number].splitlines()):
                if "add" in action:
                    files[action["add"]["path"]] = True
                elif "remove" in action:
                    files.pop(action["remove"]["path"], None)
        found = Counter[tuple[str, int]]()
        for path in files:
            rows = pq.ParquetFile(self.folder / path).read().to_pydict()
            found.update(zip(rows["_partition"], rows["_offset"], strict=True))
        return found

    def count_rows(self, version: int) -> int:
        """By the commits alone: two rows of each batch."""
        return sum(2 * (b'"rota.op":"commit"' in self.texts[v].replace(b'": "', b'":"')) for v in range(version + 1))

    def observe(self, chance: random.Random) -> None:
        """Opens a version of the last day by deltalake, and asks one that was opened before."""
        young = [v for v, at in self.seen.items() if v > 1 and at > time.time() - 0.6 * self.day]
        if young:
            self.ask("opened", chance.choice(young))
        due = [one for one in self.held if one[0] < time.time()]
        self.held = [one for one in self.held if one[0] >= time.time()]
        for _, table in due:
            self.compare("held", table)

    def ask(self, kind: str, version: int) -> None:
        try:
            table = DeltaTable(self.location, version=version)
        except Exception as error:
            self.wrong.append(f"version {version} of {time.time() - self.seen[version]:.1f} s: {error}")
            return
        self.compare(kind, table)
        self.held.append((time.time() + random.uniform(0, 0.3) * self.day, table))

    def compare(self, kind: str, table: DeltaTable) -> None:
        try:
            found = table.count()
        except Exception as error:
            self.wrong.append(f"{kind} version {table.version()}: {error}")
            return
        self.reads[kind] += 1
        if found != (wanted := self.count_rows(table.version())):
            self.wrong.append(f"{kind} version {table.version()} has {found} rows, not {wanted}")

    def finish(self, acknowledged: list[str]) -> None:
        """The laws, once all rest."""
        self.read_new()  # what came since the last observation is young, and so it is in the log
        packed = dict[int, bytes]()
        for path in (self.folder / "_past").glob("*.parquet"):
            rows = pq.read_table(path).to_pydict()
            packed |= dict(zip(rows["version"], rows["commit"], strict=True))
        there = {int(path.stem): path.read_bytes() for path in (self.folder / "_delta_log").glob("*.json")}
        for version, text in self.texts.items():
            ways = [of[version] for of in (packed, there) if version in of]
            if not ways or any(one != text for one in ways):
                self.wrong.append(f"version {version} is {len(ways)} times there, or is another")
        if lost := {*packed, *there} ^ self.texts.keys():
            self.wrong.append(f"versions {sorted(lost)[:5]}")
        actions = (action for text in self.texts.values() for action in map(json.loads, text.splitlines()))
        said = [one["commitInfo"] for one in actions if "commitInfo" in one]
        commits = Counter(one["rota.commit"] for one in said if one.get("rota.op") == "commit")
        if bad := [one for one in acknowledged if commits[one] != 1]:
            self.wrong.append(f"{len(bad)} of {len(acknowledged)} commits are not there once")
        rows = self.read_rows(len(self.texts) - 1)
        ends = Counter(p for p, _ in rows)
        if rows != Counter({(p, o): 1 for p, end in ends.items() for o in range(end)}) or sum(ends.values()) < 2 * len(
            acknowledged
        ):
            self.wrong.append(f"rows lost or doubled: {ends}")
        now = DeltaTable(self.location)
        if now.count() != sum(ends.values()):
            self.wrong.append(f"deltalake has {now.count()} rows, not {sum(ends.values())}")
        for name, number in self.reduce_transactions().items():
            if now.transaction_version(name) != number:
                self.wrong.append(f"transaction {name} is {now.transaction_version(name)}, not {number}")
        entries = open_table(self.location, "g", META).read_log()
        if Counter(one.commit for one in entries if one.op == "commit") != commits:
            self.wrong.append(f"rota reads {len(entries)} entries of {commits.total()} commits")
        self.reads |= {
            "commits": len(acknowledged),
            "versions": len(self.texts),
            "packed": len(packed),
            "in the log": len(there),
        }

    def reduce_transactions(self) -> dict[str, int]:
        found = dict[str, int]()
        for version in sorted(self.texts):
            for action in map(json.loads, self.texts[version].splitlines()):
                if "txn" in action:
                    found[action["txn"]["appId"]] = action["txn"]["version"]
        return found


def play(place: Place, folder: Path, seconds: float, day: float, seed: int, packed_after: float | None) -> Watch:
    """Two writers, and maintenances of which most are killed. They pack what is as old as a day, or as `packed_after`."""
    chance, end, stop = random.Random(seed), time.time() + seconds, folder / "stop"
    location, acknowledged = f"{place.address}/main", [folder / "acknowledged-0", folder / "acknowledged-1"]
    writers = [
        fork.Process(target=write, args=(location, f"own{n}", path, stop), daemon=True)
        for n, path in enumerate(acknowledged)
    ]
    for one in writers:
        one.start()
    watch = Watch(place.files / "main", location, day)
    while not (place.files / "main/_delta_log" / f"{2:020}.json").exists():
        time.sleep(0.05)
    after = day if packed_after is None else packed_after
    striker = fork.Process(target=strike, args=(location, after, stop, seed, folder / "strikes"))
    striker.start()
    while time.time() < end or watch.reads["since a pack"] < ENOUGH:
        watch.read_new()
        watch.observe(chance)
        watch.reads["since a pack"] += any((watch.folder / "_past").glob("*.parquet"))
    stop.touch()
    for one in (*writers, striker):
        one.join()
        if one.exitcode:
            watch.wrong.append(f"{one.name} ended with {one.exitcode}")
    watch.reads.update(json.loads((folder / "strikes").read_text()))
    watch.finish([line for path in acknowledged for line in path.read_text().split()])
    return watch


def strike(location: str, day: float, stop: Path, seed: int, path: Path) -> None:
    """Starts maintenances, and kills most of them; it opens no table itself, so that it may fork."""
    chance, done = random.Random(seed), Counter[str]()
    while not stop.exists():
        one = fork.Process(target=maintain_or_fail, args=(location, day))
        one.start()
        one.join(chance.uniform(0.02, 1.5) if chance.random() < 0.7 else 60)
        if one.is_alive():
            os.kill(one.pid or 0, signal.SIGKILL)
            one.join()
            done["killed"] += 1
        else:
            done["maintained" if not one.exitcode else "failed"] += 1
    path.write_text(json.dumps(done))


def maintain_or_fail(location: str, day: float) -> None:
    """A maintenance that loses reports that in one line."""
    try:
        maintain(location, day)
    except RotaError as error:
        click.echo(f"maintenance: {error}", err=True)
        sys.exit(1)


@click.command()
@click.option("--seconds", default=90.0, show_default=True)
@click.option("--day", default=12.0, show_default=True, help="So many seconds are a day.")
@click.option("--bucket", is_flag=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--packed", default=packs.PACKED, show_default=True, help="Commits of a pack.")
@click.option("--packed-after", type=float, help="Seconds until a commit may be packed. Default: a day.")
def main(seconds: float, day: float, bucket: bool, seed: int, packed: int, packed_after: float | None) -> None:
    """Plays once, and counts."""
    packs.PACKED = packed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="packing-")))
        place = on_disk(folder)
        if bucket:
            server = stack.enter_context(serve_buckets(folder / "s3"))
            os.environ.update(server.environ | {"AWS_ALLOW_HTTP": "true"})
            place = in_bucket(server)
        found = play(place, folder, seconds, day, seed, packed_after)
    click.echo("\n".join(found.wrong[:20]))
    click.echo(f"{'BROKEN' if found.wrong else 'right'}: {dict(found.reads)}, {len(found.wrong)} wrong")
    sys.exit(1 if found.wrong else 0)


if __name__ == "__main__":
    main()
