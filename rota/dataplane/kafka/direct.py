"""How Spark's tasks decode the values of a topic in Python, without an expression of Spark's.

Law: the rows are those of `values.parse`, or of the registry's decoder, and none is bad. Otherwise the task raises NotPlain.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from rota.dataplane.formats import plain_json, values
from rota.dataplane.kafka import reading
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.registered import DecodedValues, RegisteredValues
from rota.record import CORRUPT, OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Read = Callable[[plain_json.Batches], plain_json.Batches]


def decode(
    declared: Kafka, registered: RegisteredValues | None, tasks: "DataFrame", read: Read
) -> "tuple[Read, StructType] | None":
    """Return the function for `mapInArrow` of `tasks` that decodes what `read` returns, and its columns.

    None: the format, an option of it, or the type of a column needs Spark's parser.

    Raises: ConfigError, EnvironmentFailed.
    """
    from pyspark import cloudpickle
    from pyspark.sql.pandas.types import to_arrow_schema

    cloudpickle.register_pickle_by_value(plain_json)
    if isinstance(registered, DecodedValues):
        decoded, kind, _ = registered.plan_tasks(tasks, read)
        return plain_json.require_good(decoded), type(kind)([one for one in kind.fields if one.name != CORRUPT])
    if registered or declared.options or declared.format not in ("json", "bytes"):
        return None
    ddl = f"{reading.write_ddl(declared.schema, declared.beside)}, {PARTITION} string, {OFFSET} bigint"
    kind = values.read_ddl(tasks, ddl)
    names = kind.names
    if declared.format == "bytes":
        return plain_json.rename(read, names), kind
    held = to_arrow_schema(kind, timezone="UTC")
    kinds = pa.schema([held.field(n) for n in range(len(names) - len(declared.beside) - 2)])
    return (plain_json.make_reader(read, kinds), kind) if all(plain_json.can_read(one.type) for one in kinds) else None
