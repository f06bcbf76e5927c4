"""Operations of other programs on a Delta table. delta-rs itself does its own. For those of Spark, which does not run here,
the module writes log entries as in Delta's source code."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake

from tests.dataplane.conftest import log

Program = Callable[[Path], object]
ONE = pa.table({"_partition": ["p:a"], "_offset": pa.array([0], pa.int64()), "n": pa.array([5], pa.int32())})
SPARK = {"isolationLevel": "Serializable", "isBlindAppend": False, "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.0"}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"  # of Z85


def find_first(main: Path) -> int:
    """Return the version of the first batch."""
    return next(int(v.stem) for v in sorted((main / "_delta_log").glob("*.json")) if '"commit"' in v.read_text())


def write_entry(main: Path, operation: str, *actions: dict[str, Any], **parameters: object) -> None:
    """Write a commit as Spark does."""
    version = DeltaTable(main).version() + 1
    said = {"timestamp": 1, "operation": operation, "operationParameters": parameters, "readVersion": version - 1}
    entry = "\n".join(json.dumps(one) for one in ({"commitInfo": said | SPARK}, *actions))
    (main / f"_delta_log/{version:020}.json").write_text(entry)


def remove(main: Path, file: Path) -> dict[str, Any]:
    path, size = str(file.relative_to(main)), file.stat().st_size
    said = {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True, "partitionValues": {}}
    return {"remove": {"path": path, "size": size, **said}}


def restore_by_spark(main: Path) -> None:
    version = find_first(main)
    old = {str(one["path"]) for one in pa.table(DeltaTable(main, version=version).get_add_actions()).to_pylist()}
    gone = [remove(main, file) for file in log(main).files if str(file.relative_to(main)) not in old]
    write_entry(main, "RESTORE", *gone, version=str(version), timestamp=None)


def truncate_by_spark(main: Path) -> None:
    write_entry(main, "DELETE", *(remove(main, file) for file in log(main).files), predicate='["true"]')


def vacuum_by_spark(main: Path) -> None:
    """Vacuum without retention: delete every file that the log does not name."""
    write_entry(main, "VACUUM START", retentionCheckEnabled="false", specifiedRetentionMillis="0")
    for file in {*main.rglob("*.parquet")} - {*log(main).files} - {*(main / "_delta_log").glob("*")}:
        file.unlink()
    write_entry(main, "VACUUM END", status="COMPLETED")


def optimize_by_spark(main: Path) -> None:
    """Merge files of one size; no row changes. The merge of delta-rs is rewritten as Spark's log would state it."""
    before = DeltaTable(main).version()
    DeltaTable(main).optimize.compact()
    entry = main / f"_delta_log/{before + 1:020}.json"
    if entry.exists():
        actions = [json.loads(line) for line in entry.read_text().splitlines() if "commitInfo" not in line]
        entry.unlink()
        write_entry(main, "OPTIMIZE", *actions, predicate="[]", zOrderBy="[]", auto=False)


def add_column_by_spark(main: Path) -> None:
    known = read_metadata(main)
    schema = json.loads(known["schemaString"])
    schema["fields"].append({"name": "later", "type": "long", "nullable": True, "metadata": {}})
    write_entry(main, "ADD COLUMNS", {"metaData": known | {"schemaString": json.dumps(schema)}}, columns="[]")


def map_columns_by_spark(main: Path) -> None:
    known = read_metadata(main)
    schema = json.loads(known["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    settings = {**known["configuration"], "delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    mapped = {"metaData": known | {"schemaString": json.dumps(schema), "configuration": settings}}
    write_entry(main, "SET TBLPROPERTIES", {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, mapped)


def unmap_columns_by_spark(main: Path) -> None:
    known = read_metadata(main)
    settings = {**known["configuration"], "delta.columnMapping.mode": "none"}
    write_entry(main, "SET TBLPROPERTIES", {"metaData": known | {"configuration": settings}})


def read_metadata(main: Path) -> dict[str, Any]:
    entries = sorted((main / "_delta_log").glob("*.json"))
    actions = (json.loads(line) for entry in entries for line in entry.read_text().splitlines() if "metaData" in line)
    return [one["metaData"] for one in actions if "metaData" in one][-1]  # type: ignore[no-any-return]


def add_feature_by_spark(main: Path, *features: str, reader: bool = False) -> None:
    both = {"minReaderVersion": 3, "readerFeatures": list(features)} if reader else {"minReaderVersion": 1}
    known = ["appendOnly", "invariants", *features]
    write_entry(main, "UPGRADE PROTOCOL", {"protocol": both | {"minWriterVersion": 7, "writerFeatures": known}})


def delete_in_place_by_spark(main: Path) -> None:
    """Delete the first row of the first file, by a deletion vector."""
    add_feature_by_spark(main, "deletionVectors", reader=True)
    entries = sorted((main / "_delta_log").glob("*.json"))
    found = (json.loads(line) for entry in entries for line in entry.read_text().splitlines())
    first = next(one["add"] for one in found if "add" in one and (main / one["add"]["path"]).exists())
    gone = remove(main, main / first["path"])
    write_entry(main, "DELETE", gone, {"add": first | {"deletionVector": make_vector(0)}}, predicate='["n = 0"]')


def make_vector(*rows: int) -> dict[str, Any]:
    """Return a deletion vector for the log, as Delta's protocol defines it: a map of bitmaps in Z85."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + b"".join(struct.pack("<H", row) for row in rows)
    raw = struct.pack("<iqI", 1681511377, 1, 0) + bitmap
    words = struct.unpack(f">{(len(raw) + 3) // 4}I", raw + b"\0" * (-len(raw) % 4))
    text = "".join(DIGITS[word // 85**place % 85] for word in words for place in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(raw), "cardinality": len(rows)}


def vacuum(main: Path, *, full: bool) -> object:
    return DeltaTable(main).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


def replace_table(main: Path) -> object:
    return DeltaTable.create(main, pa.schema([("x", pa.int64())]), mode="overwrite")


TAKES: dict[str, Program] = {  # rows are deleted or changed
    "RESTORE": lambda main: DeltaTable(main).restore(find_first(main)),
    "RESTORE to nothing": lambda main: DeltaTable(main).restore(0),
    "RESTORE by Spark": restore_by_spark,
    "DELETE of some": lambda main: DeltaTable(main).delete("_offset = 0"),
    "DELETE of all": lambda main: DeltaTable(main).delete(),
    "TRUNCATE by Spark": truncate_by_spark,
    "UPDATE": lambda main: DeltaTable(main).update({"n": "n + 1000"}),
    "overwrite": lambda main: write_deltalake(main, ONE, mode="overwrite"),
    "overwrite where": lambda main: write_deltalake(main, ONE, mode="overwrite", predicate="_offset = 0"),
    "overwrite of the columns": lambda main: write_deltalake(
        main, pa.table({"x": [1]}), mode="overwrite", schema_mode="overwrite"
    ),
    "CREATE OR REPLACE": replace_table,
    "append": lambda main: write_deltalake(main, ONE, mode="append"),
}
KEEPS: dict[str, Program] = {  # no row changes
    "VACUUM": lambda main: vacuum(main, full=False),
    "VACUUM FULL": lambda main: vacuum(main, full=True),
    "VACUUM by Spark": vacuum_by_spark,
    "OPTIMIZE": lambda main: DeltaTable(main).optimize.compact(),
    "OPTIMIZE by Spark": optimize_by_spark,
    "ZORDER": lambda main: DeltaTable(main).optimize.z_order(["n"]),
    "ADD COLUMNS": lambda main: DeltaTable(main).alter.add_columns(Field("later", "long")),
    "ADD COLUMNS by Spark": add_column_by_spark,
    "SET TBLPROPERTIES": lambda main: DeltaTable(main).alter.set_table_properties({"delta.appendOnly": "true"}),
    "a feature that all write": lambda main: add_feature_by_spark(main, "deletionVectors", reader=True),
    "a checkpoint": lambda main: (DeltaTable(main).create_checkpoint(), DeltaTable(main).cleanup_metadata()),
}
