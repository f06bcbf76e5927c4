"""Maps each declaration of `pipelines/` to its implementation. The composition root of the verbs.

Law: no other module names an implementation, except the implementations themselves. A new source or table is a folder
in `rota/dataplane/`, one line here, and its tests.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.files.bucket import POLL_INTERVAL
from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.kafka import reading
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.kafka_source import KafkaSource
from rota.dataplane.ports import Job, Ports, Replays, Source, SourceContext
from rota.dataplane.rabbitmq.declaration import RabbitQueues, RabbitStreams
from rota.dataplane.rabbitmq.queue_source import QueueSource
from rota.dataplane.rabbitmq.stream_source import StreamSource
from rota.dataplane.spark import session
from rota.dataplane.spark.spark_job import SparkJob
from rota.dataplane.spark.spark_source import SparkSource
from rota.errors import ConfigError, RotaError
from rota.held import Held
from rota.ledger.values import Ranges
from rota.pipeline import Delta, Files, Pipeline
from rota.settings import expand
from rota.stores import READ_BY_SPARK, join

if TYPE_CHECKING:
    from rota.dataplane.spark.session import Connect

T = TypeVar("T")
BUCKETS = tuple(f"{scheme}://" for scheme in READ_BY_SPARK)
SOURCES: Mapping[type, Callable[[Pipeline, SourceContext], SparkSource]] = {
    Files: FilesSource.of,
    Kafka: KafkaSource.of,
    RabbitQueues: QueueSource.of,
    RabbitStreams: StreamSource.of,
}
TABLES: Mapping[type, Callable[[Pipeline, str, str, Held], PipelineTables]] = {Delta: PipelineTables.of}
OWNERS: Mapping[type, Callable[[str, Iterable[str]], str | None]] = {Delta: PipelineTables.find_owner}

RENAMES: Mapping[type, Callable[[str, str, str, int], None]] = {
    Files: lambda tables, old, new, number: FileIndex.at(join(tables, "index")).rename(old, new, number)
}

# How a declaration reads a sample from the first offset: one file, or a number of records, per partition. A source that is
# not here removes what it reads from its queue.
NARROWED: Mapping[type, Callable[[Any, int, int], Any]] = {
    Files: lambda of, _, __: replace(of, start="earliest", settle=0.0, max_files=1, after="keep"),
    Kafka: lambda of, records, _: replace(of, start="earliest", max_records=records),
    RabbitStreams: lambda of, records, partitions: replace(of, start=0, max_messages=records * partitions),
}


def open_source(pipeline: Pipeline, held: Held | None = None) -> Source:
    """Return the source that the pipeline declares. `held` keeps what the source and the table have read.

    Raises: ConfigError if the type is unknown or a variable is not set; of several variables it names one of the source.
    """
    for text in pipeline.source.texts:
        expand(text)
    held = held or Held()
    return _open_source(pipeline, open_tables(pipeline, pipeline.group, held=held), held)


def _open_source(pipeline: Pipeline, tables: PipelineTables, held: Held) -> SparkSource:
    """Return the source, with its own files beside these tables."""
    main = tables.main

    def read_offsets(partitions: Iterable[str]) -> dict[str, int | None]:
        return {p: one.offset for p, one in main.read_positions_in(main.open(), partitions).items()}

    return _choose(SOURCES, pipeline.source)(
        pipeline, SourceContext(tables.location, tables.scratch, read_offsets, main.read_schema, held)
    )


def find_interval(pipelines: Iterable[Pipeline]) -> float:
    """Return the seconds from one poll to the next while nothing comes; 0 if polling the sources costs nothing.

    A variable that is not set counts as nothing; the next read of the source reports it.
    """
    intervals = [0.0]
    for text in (text for pipeline in pipelines for text in pipeline.source.texts):
        with suppress(RotaError):
            intervals += [POLL_INTERVAL] if expand(text).startswith(BUCKETS) else []
    return max(intervals)


def rename_offsets(pipeline: Pipeline, old: str, number: int) -> None:
    """Give the offsets of pipeline `old` to this pipeline, if its source keeps them under the pipeline's name.

    Args:
        number: the number of the rename. A second call with the same number does nothing.
    """
    if rename := RENAMES.get(type(pipeline.source)):
        rename(open_tables(pipeline, pipeline.group).location, old, pipeline.name, number)


def open_tables(pipeline: Pipeline, group: str, meta: str = "", held: Held | None = None) -> PipelineTables:
    """Return the tables that the pipeline declares.

    Args:
        meta: the random id of the group that owns them. Without an id they are only read.
        held: keeps what the tables have read, for the next opening.

    Raises: ConfigError if their type is unknown.
    """
    return _choose(TABLES, pipeline.table)(pipeline, group, meta, held or Held())


def find_owner(declared: object, place: str, pipelines: Iterable[str]) -> str | None:
    """Return which of these pipelines owns the table with this declaration at `place`; None if none does or there is no
    table.

    Raises:
        EnvironmentFailed: the table does not answer.
        ConfigError: the declaration's type is unknown.
    """
    return _choose(OWNERS, declared)(place, pipelines)


def open_ports(
    pipeline: Pipeline,
    group: str,
    meta: str = "",
    connect: "Connect" = session.open_session,
) -> Ports:
    """Return what the verbs need for this pipeline; see `open_tables`. Nothing is opened yet.

    Args:
        connect: returns a session for an endpoint; a job calls it when it runs.

    Raises: ConfigError, if the type of a declaration is unknown.
    """
    held = Held()
    tables = open_tables(pipeline, group, meta, held)

    def bind(source: SparkSource) -> Ports:
        job = SparkJob(pipeline, source, tables.location, connect)
        return Ports(source, tables.main, tables.quarantine, job, reread)

    def reread(ranges: Ranges) -> Ports:
        assert isinstance(source, Replays), "a replay checks this first"
        return bind(source.reread(ranges))

    source = _open_source(pipeline, tables, held)
    return bind(source)


def open_tryout(
    pipeline: Pipeline, folder: str, records: int, partitions: int, connect: "Connect" = session.open_session
) -> tuple[Ports, Job]:
    """Open what tries a pipeline: everything it writes is below `folder`.

    Args:
        pipeline: the pipeline to try.
        folder: where tables and index are instead of the pipeline's own.
        records: how many records of a partition a batch takes, where an offset is a record; else a batch takes one file.
        partitions: how many partitions are tried.
        connect: see `open_ports`.

    Returns:
        The ports, and the same job without a limit for the ratio of bad records.

    Raises:
        ConfigError: what such a source gives, it gives once.
    """
    narrow = NARROWED.get(type(pipeline.source))
    if narrow is None:
        raise ConfigError(
            f"{type(pipeline.source).__name__} cannot be tried: a message that is read is taken from its queue. Test the "
            f"transform as docs/api.md shows"
        )
    source = narrow(pipeline.source, records, partitions)
    little = replace(pipeline, source=source, table=replace(pipeline.table, path=folder))
    ports = open_ports(little, pipeline.group, "try", connect)
    return ports, replace(cast(SparkJob, ports.job), pipeline=replace(little, max_bad_ratio=1.0))


def describe_frame(pipeline: Pipeline) -> str | None:
    """The columns that the pipeline's transform gets beside `_partition` and `_offset`, as Spark DDL.

    None if the declaration does not name all of them: with `new_columns="add"` the files do.
    """
    source = pipeline.source
    if isinstance(source, Files) and source.new_columns == "add":
        return None
    return reading.write_ddl(source.schema, source.beside if isinstance(source, Kafka) else {})


def _choose(known: Mapping[type, T], declared: object) -> T:
    """Return the implementation of this declaration."""
    if type(declared) not in known:
        names = ", ".join(one.__name__ for one in known)
        raise ConfigError(f"Nothing reads or writes {declared!r}. Known: {names}. Add its type to rota/registry.py")
    return known[type(declared)]
