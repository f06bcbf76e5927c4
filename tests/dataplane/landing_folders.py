"""Landing folders, and a source of files that reads them."""

import io
import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import rota
from rota.dataplane.files.files_source import FilesSource
from rota.ledger.values import LogEntry
from rota.pipeline import Pipeline
from rota.registry import open_source
from tests.dataplane import avro_cases


def source(folder: Path, **more: object) -> FilesSource:
    declared = rota.files(str(folder / "land"), **{"format": "json", "schema": "a int", "settle": 0.0, **more})
    return open_files(Pipeline(source=declared, table=rota.delta(str(folder / "table")), name="p"))


def open_files(pipeline: Pipeline) -> FilesSource:
    source = open_source(pipeline)
    assert isinstance(source, FilesSource)
    return source


def land(folder: Path, *names: str, text: str = '{"a": 1}\n') -> None:
    for name in names:
        path = folder / "land" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def encode(format: str, numbers: Iterable[int]) -> bytes:
    """Write a file of records with one number each."""
    if format == "parquet":
        sink = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int32())}), sink)
        return sink.getvalue()
    if format == "avro":
        return avro_cases.write_file({"n": "int"}, [{"n": n} for n in numbers])
    return "".join(f"{json.dumps({'n': n}) if format == 'json' else n}\n" for n in numbers).encode()


def make_unreadable(file: Path) -> None:
    """Let `stat` of the file fail, even for root, while its folder can be listed. The content is moved beside the folder."""
    file.rename(file.with_name(f"_{file.name}"))
    file.symlink_to(file.name)


def make_entry(version: int, op: str = "commit", **ranges: tuple[int, int]) -> LogEntry:
    spans = {f"p:{key}": span for key, span in ranges.items()}
    return LogEntry(version, 0.0, op, "g", "", "", "", 0, {}, spans, {}, {}, 0.0)
