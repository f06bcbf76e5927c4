"""Without a transform, Spark's tasks read, decode and write a topic in Python: the table is the one that Spark's parser
makes."""

import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from rota.dataplane.kafka import direct
from rota.dataplane.spark import on_executors, parsing, spark_job
from rota.errors import EnvironmentFailed
from rota.pipeline import name_columns
from tests.dataplane.avro_cases import encode
from tests.dataplane.conftest import log
from tests.dataplane.kafka.registry_server import RegistryServer
from tests.dataplane.kafka.topics import Worlds, commit, number, read
from tests.dataplane.world import World
from tests.waiting import LONG

COLUMNS = ', columns=("key", "timestamp", "headers")'
DDL = "n bigint, at timestamp, day date, name string, list array<double>, of struct<a: int, b: string>, ok boolean"
VALUE = {
    "n": 1, "at": "2026-01-02T03:04:05.006+01:00", "day": "2026-01-02", "name": "é", "list": [1.5, None],
    "of": {"a": 2, "b": "c"},
}  # fmt: skip


class Calls:
    """Counts the jobs that decode in Python, and with `refuse` lets Spark parse all values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs, self.asked, self.refuse, self._decode = 0, 0, False, direct.decode
        monkeypatch.setattr(direct, "decode", self.decode)

    def decode(self, *given: Any) -> Any:
        found = None if self.refuse else self._decode(*given)
        self.jobs, self.asked = self.jobs + (found is not None), self.asked + 1
        return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def describe_files(world: World) -> list[tuple[Any, ...]]:
    """What a reader sees of the files' schemas."""
    footers = [pq.read_metadata(file) for file in log(world.table / "main").files]
    return sorted(
        {(str(one.schema).partition("\n")[2], tuple(sorted((one.metadata or {}).items()))) for one in footers}, key=repr
    )


def consume(world: World, calls: Calls, columns: list[str]) -> list[Any]:
    """The first batch, and what its table holds."""
    before = calls.jobs
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (calls.jobs > before) is not calls.refuse
    return [done.end, done.rows, done.bad_rows, read(world, *columns), describe_files(world)]


@pytest.mark.parametrize("format", ["json", "bytes", "avro"])
def test_the_table_is_the_one_that_spark_makes(
    worlds: Worlds, calls: Calls, registry: RegistryServer, format: str
) -> None:
    schema, more, values = DDL, COLUMNS, [json.dumps(VALUE).encode(), b"{}", b'{"n": 5, "x": [1]}']
    if format == "bytes":
        schema, more, values = "body binary", f'{COLUMNS}, format="bytes"', [b"", None, b"\xff"]  # type: ignore[list-item]
    if format == "avro":
        fields = [{"name": "n", "type": "int"}, {"name": "name", "type": ["null", "string"]}]
        avro = {"type": "record", "name": "R", "fields": fields}
        id = registry.register(f"{worlds.topic}-value", avro)
        schema, more = "n bigint, name string", f'{COLUMNS}, format="avro", registry={registry.address!r}'
        values = [encode(avro, {"n": n, "name": None if n % 2 else "é"}, id) for n in range(3)]
    world = worlds.make(schema=schema, more=more)
    worlds.broker.produce(worlds.topic, 0, values, key=lambda n: b"k%d" % n)
    columns = [*name_columns(schema), "_key", "_timestamp", "_headers", "_offset"]
    by_tasks = consume(world, calls, columns)
    calls.refuse = True
    others = Worlds(worlds.folder / "other", worlds.endpoint, worlds.spark, worlds.broker, worlds.topic)
    assert by_tasks == consume(others.open(schema=schema, more=more), calls, columns)
    assert by_tasks[:3] == [3, 3, 0]


@pytest.mark.parametrize(
    "value", [b"no JSON", b'{"n": "x"}', b'{"n": 1.5}', None, b"\xff", b'{"n": 1}{"n": 2}', b""], ids=repr
)
def test_after_a_record_that_is_not_plain_spark_parses_all(worlds: Worlds, calls: Calls, value: bytes | None) -> None:
    world = worlds.make()
    worlds.broker.produce(worlds.topic, 0, [*number(5), value, *number(3, 5)])
    world.give("0")
    done = commit(world, "0")["p:0"]
    assert (calls.jobs, done.end, done.rows, done.bad_rows) == (1, 9, 8, 1)
    worlds.broker.produce(worlds.topic, 0, number(2, 8))
    assert commit(world, "0")["p:0"].rows == 2
    assert calls.jobs == 1, "the run's process has met one, and does not try again"
    assert read(world, "n") == [(n,) for n in range(10)]
    assert len(list((world.table / "main" / "data").iterdir())) == 2, "nothing is left of the first attempt"


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ("n int", ', options={"allowComments": "true"}'),
        ("n float", ""),
        ("m map<string, int>", ""),
        ("n int", ', format="csv"'),
    ],
)
def test_what_needs_spark_is_not_tried_in_python(worlds: Worlds, calls: Calls, schema: str, more: str) -> None:
    world = worlds.make(schema=schema, more=more)
    worlds.broker.produce(worlds.topic, 0, [b"1" if "csv" in more else b"{}"])
    world.give("0")
    assert (commit(world, "0")["p:0"].rows, calls.jobs) == (1, 0)
    worlds.broker.produce(worlds.topic, 0, [b"1" if "csv" in more else b"{}"])
    assert commit(world, "0")["p:0"].rows == 1
    assert calls.asked == 1, "once for all jobs"


@pytest.mark.parametrize("counts", [True, False], ids=["", "ablation"])
def test_rows_that_are_lost_in_a_task_are_not_committed(
    worlds: Worlds, calls: Calls, monkeypatch: pytest.MonkeyPatch, counts: bool
) -> None:
    """Ablation: without the comparison of both counts, a row is lost."""
    make = on_executors.make_writer

    def lose(*given: Any) -> Any:
        write = make(*given)
        return lambda batches: write(batch.slice(1) for batch in batches)

    world = worlds.make()
    worlds.broker.produce(worlds.topic, 0, number(5))
    world.give("0")
    monkeypatch.setattr(on_executors, "make_writer", lose)
    if counts:
        with pytest.raises(EnvironmentFailed, match="counts of a job differ: 1 records that tasks decoded, 0 that"):
            world.run("0")
        assert not log(world.table / "main").said("commit")
    else:
        monkeypatch.setattr(parsing, "require_same", lambda *_: None)
        assert commit(world, "0")["p:0"].rows == 4
    assert calls.jobs


def test_a_rehearsal_reads_the_newest_records_in_the_same_way(
    worlds: Worlds, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_job, "REHEARSAL", LONG)
    world = worlds.make()
    worlds.broker.produce(worlds.topic, 0, number(5))
    world.give("0")
    assert commit(world, "0")["p:0"].rows == 5
    world.ports.job.rehearse(endpoint=world.endpoint, run_id="run-1")
    assert calls.jobs == 2
    assert len(list((world.table / "main" / "data").iterdir())) == 1
