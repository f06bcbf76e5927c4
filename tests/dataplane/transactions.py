"""Commits that set transactions and nothing else."""

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

IDS = [f"rota/g/p:k{i}/{kind}" for i in range(3) for kind in ("offset", "token")] + [
    "rota/adopted",
    "tab\u2028le\n\"x'",
]
SCHEMA = Schema.from_arrow(pa.schema([("n", pa.int64())])).to_json()


def commit_moves(table: Path, moves: list[tuple[int, int]], updated: int | None = None) -> None:
    handle = DeltaTable(table)
    said = [Transaction(IDS[i], version, updated) for i, version in moves]
    properties = CommitProperties(
        app_transactions=said, custom_metadata={"by": '\u2028{"txn":{"appId":"no","version":1}}'}
    )
    handle.create_write_transaction([], "append", handle.schema(), partition_by=[], commit_properties=properties)
