"""Parquet files that land with columns of their own, and a search for values that the table lacks.

Law: every value of a file that was consumed is in the rows of its offset, under the column's name in any case. A
column that the file lacks is null there.
"""

import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from rota.local.bucket import BucketServer
from tests.bucket import Place, in_bucket, on_disk
from tests.dataplane.conftest import log
from tests.dataplane.world import World

TEXT = """
pipeline = Pipeline(
    source=source(format='parquet', schema={schema!r}, new_columns={new!r}), table=delta({table!r}){more}
)
"""


@dataclass
class ParquetWorld:
    """A pipeline with its landing folder and its table in `place`; and the files of each key, in the order of offsets."""

    world: World
    place: Place
    landed: dict[str, list[pa.Table]] = field(default_factory=dict)

    @classmethod
    def open(
        cls, folder: Path, endpoint: str, spark: SparkSession, buckets: BucketServer | None = None
    ) -> "ParquetWorld":
        place = in_bucket(buckets) if buckets else on_disk(folder)
        made = cls(World(folder, endpoint, spark=spark, landing=(place / "land").address), place)
        made.declare()
        return made

    def declare(self, schema: str = "n int", new: str = "add", more: str = "") -> None:
        """Rewrite the pipeline's file; `more` are arguments of `Pipeline(...)`."""
        table = (self.place / "tables" / "p").address
        self.world.write(TEXT.format(schema=schema, new=new, table=table, more=more))

    def land(self, key: str, **columns: pa.Array) -> None:
        """Land a file with these columns, and a column `n` of the same length."""
        count = max((len(one) for one in columns.values()), default=2)
        rows = pa.table({"n": pa.array(range(count), pa.int32()), **columns})
        self.put(key, rows)

    def put(self, key: str, rows: pa.Table, data: bytes = b"") -> None:
        """Land a file of these rows; of `data` if another program wrote the file."""
        files = self.landed.setdefault(key, [])
        sink = io.BytesIO()
        pq.write_table(rows, sink, store_decimal_as_integer=True)
        self.world.put(f"{key}/{len(files):02}.parquet", data or sink.getvalue())
        files.append(rows)

    def consume(self) -> dict[str, str]:
        """Run until nothing is new. Return key -> why its partition stopped."""
        self.world.give(*self.landed)
        self.world.until_idle(*self.landed)
        return {p.partition(":")[2]: one.record.reason for p, one in self.world.tree.parked().items()}

    @property
    def main(self) -> Path:
        return (self.place / "tables" / "p" / "main").files

    def read_rows(self, key: str, offset: int) -> list[Mapping[str, object]]:
        """Return the rows of an offset, ordered by `n`."""
        rows = [row for row in log(self.main).rows() if (row["_partition"], row["_offset"]) == (f"p:{key}", offset)]
        return sorted(rows, key=lambda row: str(row["n"]).zfill(9))

    def count_damage(self, ends: Mapping[str, int]) -> Counter[str]:
        """Values of the files before these offsets that are `lost` (null, or in no column) or `wrong`, and those `invented`
        where the file has none."""
        found: Counter[str] = Counter()
        rows: dict[tuple[object, object], list[dict[str, object]]] = {}
        for row in log(self.main).rows():
            rows.setdefault((row["_partition"], row["_offset"]), []).append(row)
        for key, end in ends.items():
            for offset, file in enumerate(self.landed[key][:end]):
                got = {row["n"]: {name.lower(): v for name, v in row.items()} for row in rows[f"p:{key}", offset]}
                for wanted in file.to_pylist():
                    mine = got[wanted["n"]]
                    for name, value in wanted.items():
                        there = mine.pop(name.lower(), None)
                        found["lost"] += value is not None and there is None
                        found["wrong"] += there is not None and _encode(there) != _encode(value)
                    found["invented"] += sum(v is not None for name, v in mine.items() if not name.startswith("_"))
        return +found


def _encode(value: object) -> object:
    """Compare a text by its bytes."""
    return value.encode() if isinstance(value, str) else value
