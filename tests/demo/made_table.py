"""A landing folder and a table that consumed all of it, made by hand: what a verifier is tried on."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.transaction import AddAction, create_table_with_add_actions

from rota.demo import deltalog
from rota.demo.verify import Verdict, verify
from rota.local.flights import MONTHS, FlightsFolder
from rota.local.storage import open_folder

CARRIERS = ("AS", "HA", "OO")


class Made:
    """A landing folder with three carriers' year in it, and a table that consumed all of it, three files a commit."""

    def __init__(self, root: Path) -> None:
        self.landing, self.table = root / "landing", root / "table"
        self.landed = FlightsFolder(open_folder(self.landing)).prepare().land(MONTHS, CARRIERS)
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
        files = deltalog.read(open_folder(self.table / "index")).files
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
        if deltalog.exists(open_folder(self.table / "main")):
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
        return verify(open_folder(self.landing), open_folder(self.table), "flights")


def batch(partition: str, ordinal: int, path: Path) -> pa.Table:
    rows = pcsv.read_csv(path, convert_options=pcsv.ConvertOptions(null_values=["NA"], strings_can_be_null=True))
    rows = rows.set_column(
        rows.column_names.index("time_hour"), "time_hour", rows["time_hour"].cast(pa.timestamp("us", "UTC"))
    )
    rows = rows.append_column("_partition", pa.array([partition] * rows.num_rows))
    return rows.append_column("_offset", pa.array([ordinal] * rows.num_rows, pa.int64()))
