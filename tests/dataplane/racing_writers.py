"""Ten writers on one table of a store, by the shipped ledger."""

import json
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rota.dataplane import footers, names
from rota.dataplane.delta.tables import open_table
from rota.errors import EnvironmentFailed, Fenced, OffsetGap
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, TableClaim
from rota.stores import make_folder, open_files
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, SCHEMA, expect_rows

WRITERS, COMMITS = 10, 2


@dataclass
class Race:
    """The results that the writers report."""

    location: str
    tokens: Any = field(default_factory=lambda: iter(range(1, 10**6)))
    reported: list[tuple[str, str]] = field(
        default_factory=list
    )  # partition and id of commits that the ledger reported
    refused: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def write(self, writer: int) -> None:
        """In turn try a batch of a contested partition once, and one of the writer's own until it is committed."""
        table = open_table(self.location, "g", META)
        for _ in range(COMMITS):
            self.consume(table, f"of two {writer // 2}", next(self.tokens))
            while not self.consume(table, f"own {writer}", 1):
                assert len(self.errors) < 500, self.errors[-3:]

    def consume(self, table: Ledger, partition: str, token: int) -> bool:
        """Return whether the batch was committed. After an error the next attempt starts from the claim, as a run does."""
        try:
            claimed = table.claim({partition: token}, {partition: 0})
            if not claimed.newer:
                self.reported.append((partition, table.commit(claimed, make_batch(table, claimed)).commit))
                return True
            self.refused["claim"] += 1
        except (Fenced, OffsetGap) as error:
            self.refused[type(error).__name__] += 1
        except (EnvironmentFailed, OSError) as error:  # OSError: from writing a file
            self.errors.append(str(error))
        return False

    def run(self) -> None:
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(self.write, range(WRITERS)))

    def count(self, table: Path) -> dict[str, int]:
        """Count faults in the log of this folder. All 0: it has each reported commit once."""
        there = Counter(one.get("rota.commit") for one in log(table).commits)
        return {
            "reported and not there": sum(not there[one] for _, one in self.reported),
            "there twice": sum(there[one] > 1 for _, one in self.reported),
        }

    def check(self, table: Path) -> None:
        """Assert that the writers raced, and that nothing is lost or doubled."""
        ends: dict[str, int] = {}
        for said in log(table).said("commit"):
            ends |= {p: end for p, (_, end) in json.loads(str(said["rota.ranges"])).items()}
        assert min(ends[f"own {writer}"] for writer in range(WRITERS)) >= 2 * COMMITS
        assert damage(table, expect_rows(**ends)) == NO_DAMAGE
        assert not any(self.count(table).values())
        assert sum(self.refused.values()) > 0


def make_batch(table: Ledger, claimed: TableClaim) -> Batch:
    """Write two offsets of each partition, with one row each."""
    attempt, ranges = uuid.uuid4().hex, {p: (at, at + 2) for p, at in claimed.offsets.items()}
    files = []
    for p, (start, end) in ranges.items():
        path = f"data/{attempt}/{names.split(p)}/f.parquet"
        rows = pa.table({"_partition": [p] * (end - start), "_offset": list(range(start, end))})
        make_folder(table.location, path.rpartition("/")[0])
        pq.write_table(rows.replace_schema_metadata(SCHEMA), path, filesystem=open_files(table.location))
        files.append(footers.read_footer(table.location, path))
    counts = {p: end - start for p, (start, end) in ranges.items()}
    return Batch(uuid.uuid4().hex, "run", "w@0", attempt, 3, ranges, tuple(files), counts)
