"""How Spark writes the rows of a job below a table, so that nobody sees them: a folder for each partition.

Law: what comes back is all that was written and will be read. On a disk it is what lies in the attempt's folder once Spark's
own writer is done; in a bucket, where nothing can be renamed, what the tasks say of the files that they wrote themselves.
The types are the same.
"""

import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from rota import stores
from rota.dataplane import columns, footers, names
from rota.dataplane.spark import on_executors
from rota.errors import BadTransform
from rota.ledger.schema import SPLIT
from rota.ledger.values import DataFile
from rota.record import PARTITION
from rota.stores import describe_to_executors, hide_credentials, is_url, join, open_executors_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ONCE = 1 << 28  # bytes: so many of texts, each once, that rows share
SHARED = {"parquet.dictionary.page.size": str(ONCE)}


def write(frame: "DataFrame", table: str, folder: str, *, shared: bool = False) -> tuple[DataFile, ...]:
    """Writes a frame with the column of `columns.split` into `folder` of the table at this location, and says what is there.
    `shared`: rows share long texts, each of which is stored once. Raises BadTransform for a row without a partition,
    EnvironmentFailed."""
    if is_url(table):
        return _write_to_bucket(frame, table, folder, shared)
    options: Mapping[str, str] = columns.WRITTEN | SHARED if shared else columns.WRITTEN
    frame.write.partitionBy(SPLIT).options(**options).parquet(str(Path(table, folder)))
    return footers.read_split(Path(table), folder)


def _write_to_bucket(frame: "DataFrame", table: str, folder: str, shared: bool) -> tuple[DataFile, ...]:
    from pyspark import cloudpickle

    hide_credentials()
    for module in (on_executors, names, stores):
        cloudpickle.register_pickle_by_value(module)
    said = frame.drop(SPLIT).schema.json()  # as Spark's own writer says it
    place = join(table, folder).partition("://")[2]
    once = ONCE if shared else None
    make = on_executors.make_writer(
        place,
        partial(open_executors_files, describe_to_executors(table)),
        {footers.SPARK.decode(): said},
        frame.columns,
        SPLIT,
        PARTITION,
        names.split,
        once,
    )
    plain = frame.sortWithinPartitions(SPLIT).toDF(*(f"c{n}" for n in range(len(frame.columns))))
    written = plain.mapInArrow(
        make, on_executors.SAID
    ).collect()  # it asks for columns by name, and takes `a.b` for a path
    if not all(one["partition"] for one in written):
        raise BadTransform(footers.NO_PARTITION)
    return tuple(_describe(one, table) for one in sorted(written, key=lambda one: str(one["path"])))


def _describe(said: Any, table: str) -> DataFile:
    path = said["path"].removeprefix(join(table, "").partition("://")[2])
    return footers.describe_file(path, pq.read_metadata(io.BytesIO(said["footer"])), said["size"], said["modified"])
