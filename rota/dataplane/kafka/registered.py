"""Values of a topic whose schemas a registry holds: which schema reads them, and how Spark decodes them.

Law: one job reads with one reader's schema. It is the declared one, or else the newest version of the subject that has each
declared column: a version that lacks a field does not empty its column.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from rota.dataplane.columns import quote_name
from rota.dataplane.formats import avro, avro_schemas, json_schemas, protobuf, registered_columns, values
from rota.dataplane.formats.options import check_library
from rota.dataplane.formats.registered_columns import HEADER, Batches, ColumnDecoder, Mismatch, make_decoder, read_id
from rota.dataplane.kafka import reading, schema_registry
from rota.dataplane.kafka.declaration import Kafka
from rota.dataplane.kafka.schema_registry import REFUSES, SchemaRegistry, UnknownSchema
from rota.dataplane.spark.spark_source import Explain
from rota.errors import ConfigError, EnvironmentFailed
from rota.pipeline import name_columns
from rota.record import CORRUPT, OFFSET, PARTITION, FieldPath
from rota.settings import expand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Read = Callable[[Batches], Batches]
# Modules that Spark's tasks get as code.
TRAVEL = (avro, avro_schemas, json_schemas, protobuf, registered_columns, schema_registry)
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class RegisteredValues:
    """The values of the topic `declared`, whose schemas are versions of `subject`."""

    declared: Kafka
    registry: SchemaRegistry
    subject: str
    library: ClassVar[tuple[str, str]]  # the module that decodes, and its package

    @classmethod
    def of(cls, declared: Kafka) -> Self:
        """Return how to read the values of a topic. Raises: ConfigError."""
        check_library(declared.format, *cls.library)
        registry = SchemaRegistry(expand(declared.registry), declared.read_registry_client())
        return cls(declared, registry, expand(declared.options.get("subject", f"{declared.topic}-value")))

    def check(self) -> None:
        """Raise what a run would raise before it reads: ConfigError, EnvironmentFailed."""
        raise NotImplementedError

    def decode(self, source: "DataFrame", read: Read) -> "tuple[DataFrame, Explain]":
        """Decode what `read`, a function for `mapInArrow` of `source`, returns.

        Returns: the frame, as of `values.parse`, and why a record of it is bad.
        Raises: ConfigError, EnvironmentFailed.
        """
        raise NotImplementedError

    @property
    def place(self) -> str:
        """The topic, for messages."""
        return f"kafka(topic={self.declared.topic!r})"

    @contextmanager
    def judge(self) -> Iterator[None]:
        """Raise the errors of the registry and of its schemas as rota's own."""
        try:
            yield
        except ConnectionError as error:
            raise self.refuse(str(error).removeprefix("Schema registry ")) from None
        except UnknownSchema as error:
            step = "Register the schema, or give the subject as options={'subject': ...}"
            raise ConfigError(f"Subject {self.subject} of {self.place}: {error}", step=step) from None
        except Mismatch as error:
            raise ConfigError(f"schema= of {self.place} does not fit the reader's schema: {error}") from None
        except (ValueError, TypeError, LookupError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"The reader's schema of {self.place} cannot be used ({why}). Give another one") from None

    def refuse(self, why: str) -> EnvironmentFailed:
        """Return the error of a registry that does not answer, or refuses. Its fact `refused` ends a run."""
        login = REFUSES in why and self.declared.explain_registry_login()
        return EnvironmentFailed(
            f"The schema registry {why}", step=f"{login or 'See whether it is up'}. It is tried again", refused=True
        )


class DecodedValues(RegisteredValues):
    """Values that Spark's tasks decode into the columns, by a reader's schema."""

    __slots__ = ()

    def check(self) -> None:
        """See `RegisteredValues.check`."""
        self.choose_reader()

    def read_version(self, version: str) -> Any:
        """Return a version of the subject, parsed. Raises: UnknownSchema, ConnectionError, ValueError."""
        raise NotImplementedError

    def describe(self, schema: Any) -> dict[str, str]:
        """Return the name of each field of a schema's record, with its column's type as Spark DDL."""
        raise NotImplementedError

    def make_decoder(self, kinds: pa.Schema, reader: Any) -> Callable[[], ColumnDecoder]:
        """Return a function that makes the decoder in a task. Raises: ConnectionError, ValueError."""
        raise NotImplementedError

    def choose_reader(self) -> Any:
        """Return the reader's schema. Raises: ConfigError, EnvironmentFailed."""
        version = self.declared.options.get("version", LATEST)
        with self.judge():
            newest = self.read_version(version)
            if version == LATEST and self._find_lacking(newest):
                older = map(self.read_version, map(str, self.registry.list_versions(self.subject)))
                newest = next((one for one in older if not self._find_lacking(one)), newest)
            return self._require(newest, f"version {version} of subject {self.subject}")

    def _find_lacking(self, schema: Any) -> list[str]:
        """Return the declared columns that a schema does not have."""
        names = self.describe(schema)
        return [name for name in name_columns(self.declared.schema) if name not in names]

    def _require(self, schema: Any, what: str) -> Any:
        if lacking := self._find_lacking(schema):
            held = ", ".join(f"{quote_name(name)} {of}" for name, of in self.describe(schema).items())
            step = f"Declare some of its fields: {held}" if held else "It is no record. Take format='bytes'"
            raise ConfigError(f"{what} of {self.place} has no field {', '.join(lacking)}. {step}")
        return schema

    def decode(self, source: "DataFrame", read: Read) -> "tuple[DataFrame, Explain]":
        """See `RegisteredValues.decode`."""
        from pyspark.sql import functions as F  # noqa: N812

        decode, kind, decoder = self.plan_tasks(source, read)

        def explain(raw: str, nulls: object) -> str:  # noqa: ARG001
            with self.judge():
                return decoder.explain(raw.encode("utf-8", "surrogateescape"))

        frame = source.mapInArrow(decode, kind)
        return frame.withColumn(CORRUPT, F.col(CORRUPT).cast("string")), explain

    def plan_tasks(self, source: "DataFrame", read: Read) -> "tuple[Read, StructType, ColumnDecoder]":
        """Plan how tasks decode what `read` returns.

        Returns: the function for `mapInArrow` of `source`, its columns, of which `_corrupt` is binary, and a decoder.
        Raises: ConfigError, EnvironmentFailed.
        """
        from pyspark.sql.pandas.types import to_arrow_schema

        _send_code()
        declared, reader = self.declared, self.choose_reader()
        ddl = f"{reading.write_ddl(declared.schema, declared.beside)}, {CORRUPT} binary, {PARTITION} string, {OFFSET} bigint"
        kind = values.read_ddl(source, ddl)
        held = len(kind.fields) - len(declared.beside) - 3
        make = self.make_decoder(to_arrow_schema(type(kind)(kind.fields[:held]), timezone="UTC"), reader)
        with self.judge():
            decoder = make()
        return make_decoder(read, make, declared.tombstones == "keep"), kind, decoder


class AvroValues(DecodedValues):
    """Values of Avro."""

    __slots__ = ()
    library = "fastavro", "fastavro"

    def choose_reader(self) -> Any:
        """See `DecodedValues.choose_reader`: the schema may be declared."""
        if text := self.declared.options.get("avroSchema"):
            with self.judge():
                return self._require(avro_schemas.parse(json.loads(text)), "avroSchema")
        return DecodedValues.choose_reader(self)

    def read_version(self, version: str) -> Any:
        """See `DecodedValues.read_version`."""
        return self.registry.parse_avro(self.registry.read_version(self.subject, version))

    def describe(self, schema: Any) -> dict[str, str]:
        """See `DecodedValues.describe`."""
        fields = schema["fields"] if avro_schemas.name_type(schema) == "record" else ()
        return {one["name"]: avro_schemas.write_ddl(one["type"]) for one in fields}

    def make_decoder(self, kinds: pa.Schema, reader: Any) -> Callable[[], ColumnDecoder]:
        """See `DecodedValues.make_decoder`."""
        return partial(avro.Decoder, kinds, reader, self.registry.read_avro)


class ProtobufValues(DecodedValues):
    """Values of Protobuf. `message` of the options names the reader's message; by default it is the first of the file."""

    __slots__ = ()
    library = "grpc_tools", "grpcio-tools"

    @property
    def message(self) -> str:
        """The full name of the reader's message; empty: the first of the file."""
        return self.declared.options.get("message", "")

    def read_version(self, version: str) -> Any:
        """See `DecodedValues.read_version`."""
        return self.registry.compile_protobuf(self.registry.read_version(self.subject, version))

    def describe(self, schema: Any) -> dict[str, str]:
        """See `DecodedValues.describe`."""
        return {one.name: protobuf.write_ddl(one) for one in protobuf.choose_message(schema, self.message).fields}

    def make_decoder(self, kinds: pa.Schema, reader: Any) -> Callable[[], ColumnDecoder]:
        """See `DecodedValues.make_decoder`."""
        return partial(protobuf.Decoder, kinds, reader, self.message, self.registry.read_protobuf)


class JsonValues(RegisteredValues):
    """JSON that is valid under the schema that a value names. Spark parses it, by the declared columns."""

    __slots__ = ()
    library = "jsonschema_rs", "jsonschema-rs"

    def check(self) -> None:
        """See `RegisteredValues.check`. Values name their schemas, so that no version of the subject is needed."""
        with self.judge(), suppress(UnknownSchema):
            self.registry.list_versions(self.subject)

    def decode(self, source: "DataFrame", read: Read) -> "tuple[DataFrame, Explain]":
        """See `RegisteredValues.decode`."""
        from pyspark.sql import functions as F  # noqa: N812

        _send_code()
        declared, make = self.declared, partial(json_schemas.Checker, self.registry.read_json)
        whole, keep = json_schemas.WHOLE, declared.tombstones == "keep"
        ddl = f"{reading.write_ddl(f'value binary, {whole} binary', declared.beside)}, {PARTITION} string, {OFFSET} bigint"
        frame = source.mapInArrow(json_schemas.make_checker(read, make), ddl)
        beside = (whole, *declared.beside.values())
        parsed = values.parse(frame, declared.schema, "json", declared.options, beside, keep)
        bad = F.when(F.col(CORRUPT).isNotNull(), F.coalesce(F.col(whole).cast("string"), F.lit("")))
        checker = make()

        def explain(raw: str, nulls: Sequence[FieldPath]) -> str:
            value = raw.encode("utf-8", "surrogateescape")
            with self.judge():
                if why := checker.explain(value):
                    return why
            known = [path for path in nulls if path[0] not in beside]
            text = values.decode(value[HEADER:])
            return f"schema id {read_id(value)}: {values.explain_bad('json', text, known, declared.options)}"

        return parsed.withColumn(CORRUPT, bad).drop(whole), explain


VALUES: dict[str, type[RegisteredValues]] = {"avro": AvroValues, "json-schema": JsonValues, "protobuf": ProtobufValues}


def open_values(declared: Kafka) -> RegisteredValues | None:
    """Return how to read the values of a topic; None if no registry holds their schemas. Raises: ConfigError."""
    return VALUES[declared.format].of(declared) if declared.registry else None


def _send_code() -> None:
    """Let Spark's tasks get the modules of `TRAVEL`."""
    from pyspark import cloudpickle

    for module in TRAVEL:
        cloudpickle.register_pickle_by_value(module)
