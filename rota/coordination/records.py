"""The contents of the znodes: frozen models with a format version and bounds, and the only code that encodes and
decodes.

Law: `decode(path, Model, encode(record)) == record`. Any other bytes raise Undecodable with the path, in bounded time.
An undecodable record is never taken for an empty one. A record of a newer format is undecodable, so an older rota stops
instead of overwriting it.
"""

import json
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from rota.coordination.fields import (
    Amount,
    Capacity,
    Fields,
    Id,
    Incarnation,
    Key,
    Label,
    Labels,
    Options,
    PartitionId,
    ProcessFields,
    Text,
    Version,
    Whole,
)  # fmt: skip
from rota.coordination.id_set import inflate, pack, unpack
from rota.coordination.store import MAX_DATA
from rota.errors import ConfigError, Undecodable
from rota.settings import ENDPOINT

MAX_MOVES = 500  # in the audit of one epoch
MAX_REFUSALS = 200
MAX_JSON = 16 << 20  # of a deflated record
SMALL = 1_024  # bytes of a record that is not deflated, up to which it is kept decoded


class Record(Fields):
    """One znode's content. `v` is the version of the format."""

    deflated: ClassVar[bool] = False  # large JSON travels compressed
    packed: ClassVar[bool] = False  # it holds as many ids as there are: decoded again only where it changed

    v: Literal[1] = 1

    def to_bytes(self) -> bytes:
        """JSON, deflated if the model is deflated."""
        text = self.model_dump_json(by_alias=True).encode()
        return zlib.compress(text, 6) if self.deflated else text

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The record; ValueError if `data` holds none."""
        return cls.model_validate_json(inflate(data, MAX_JSON) if cls.deflated else data)


class Meta(Record):
    """The settings of a group. `id` is random and distinguishes this ZooKeeper from a rebuilt one. A token is
    `token_base` + mzxid.

    `level` is the level of the group's records, which the build `raised_by` raised; below the level `floor` no process
    joins. See `levels.py`.
    """

    format: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    token_base: Whole = 0
    protocol: Id = "assigned"
    assignor: Id = "sticky"
    options: Options = Field(default={})
    budget: Whole | None = None
    cooldown: Amount = 0.0
    grace: Amount = 0.0
    level: Whole = 1
    floor: Whole = 1
    raised_by: Version = ""


class WorkerOverrides(Record):
    """The overrides of one worker. None: the value that the worker announces applies."""

    cordoned: bool = False
    draining: bool = False
    capacity: Capacity | None = None
    labels: Labels = Field(default={})
    max_partitions: Whole | None = None


class GroupOverrides(Record):
    """The overrides of the group: `paused` stops voluntary moves, `pins` binds a partition to a worker."""

    paused: bool = False
    pins: Annotated[Mapping[PartitionId, Id], Field(max_length=10_000)] = {}


class Live(ProcessFields, Record):
    """One incarnation as it announces itself.

    `endpoint` None: its runs use a local Spark session. `protocol` is the group's protocol when it joined; it keeps
    that one. `unable`: why it cannot work now, so that it owns nothing; empty if it can. `awaits_run`: its first run is
    not ready, so it counts as not there yet. `machine`: the machine of its `pid`.
    """

    endpoint: Annotated[str, Field(pattern=rf"^{ENDPOINT.pattern}$", max_length=1_000)] | None = None
    capacity: Capacity = 1.0
    zone: Label | None = None
    labels: Labels = Field(default={})
    max_partitions: Whole | None = None
    usage: Annotated[Mapping[Id, Amount], Field(max_length=16)] | None = None
    protocol: Id = "assigned"
    leaving: bool = False
    unable: Text = ""
    awaits_run: bool = False
    host: Annotated[str, Field(max_length=256)] = ""
    machine: Annotated[str, Field(max_length=256)] = ""
    pid: Whole = 0

    @property
    def has_room(self) -> bool:
        """Whether the worker can own partitions now."""
        return not self.unable and not self.awaits_run


class Partitions(Record):
    """The source keys of one pipeline, which only ever grow, and the labels that their worker must carry."""

    packed: ClassVar[bool] = True

    keys: tuple[Key, ...] = ()
    requires: Labels = Field(default={})

    def to_bytes(self) -> bytes:
        """A line of JSON, then the keys, packed."""
        return self.model_dump_json(exclude={"keys"}).encode() + b"\n" + pack(self.keys)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The record; ValueError if `data` holds none."""
        line, packed = _line(data)
        return cls.model_construct(keys=unpack(packed), **_checked(cls, line))


class Controller(ProcessFields, Record):
    """The right to publish, the process that took it last, and the controller's memory.

    It contains since when workers are missing (server seconds), the assignor's memory, and the incarnations in the last
    observation.
    """

    deflated: ClassVar[bool] = True

    term: Whole = 0
    absences: Annotated[Mapping[Id, Amount], Field(max_length=100_000)] = {}
    memory: Annotated[Mapping[str, JsonValue], Field(max_length=100_000)] = {}
    members: tuple[Incarnation, ...] = ()


class Head(Record):
    """The current epoch, a digest of its basis, and when to observe again (server seconds)."""

    epoch: Whole = 0
    basis: Annotated[str, Field(max_length=128)] = ""
    due: Amount | None = None


class Slot(Fields):
    """The target of one worker from `epoch` on."""

    epoch: Whole
    partitions: frozenset[str]


class Slots(Record):
    """At most two slots of one worker, the older first."""

    packed: ClassVar[bool] = True

    slots: Annotated[tuple[Slot, ...], Field(max_length=2)] = ()

    def effective(self, head: int) -> Slot | None:
        """The slot with the greatest epoch <= `head`. None: unknown, read again."""
        return max((s for s in self.slots if s.epoch <= head), key=lambda s: s.epoch, default=None)

    @property
    def newest(self) -> int:
        """The greatest epoch in it, effective or not; 0 if empty."""
        return max((s.epoch for s in self.slots), default=0)

    def to_bytes(self) -> bytes:
        """A line of JSON with the epochs and sizes, then each set, packed."""
        sets = [pack(s.partitions) for s in self.slots]
        sizes = zip(self.slots, sets, strict=True)
        slots = [{**s.__pydantic_extra__, "epoch": s.epoch, "bytes": len(b)} for s, b in sizes]
        line = {**self.__pydantic_extra__, "v": self.v, "slots": slots}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n" + b"".join(sets)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The record; ValueError if `data` holds none."""
        line, rest = _line(data)
        head = _SlotsLine.model_validate_json(line)
        slots: list[Slot] = []
        for size in head.slots:
            partitions = frozenset(unpack(rest[: size.bytes]))
            fields: dict[str, Any] = {**size.__pydantic_extra__, "epoch": size.epoch, "partitions": partitions}
            slots.append(Slot.model_construct(**fields))
            rest = rest[size.bytes :]
        if rest or [s.epoch for s in slots] != sorted({s.epoch for s in slots}):
            raise ValueError("slots out of order, or followed by something")
        whole: dict[str, Any] = {**head.__pydantic_extra__, "v": 1, "slots": tuple(slots)}
        return cls.model_construct(**whole)


class _SlotSize(Fields):
    epoch: Whole
    bytes: Whole


class _SlotsLine(Fields):
    v: Literal[1]
    slots: Annotated[tuple[_SlotSize, ...], Field(max_length=2)]


class Own(Record):
    """The owner of a partition; None: free. Commits check its dataVersion, and the mzxid of its claim is the token."""

    incarnation: Incarnation | None = None


class Grab(Record):
    """The incarnation that asks for a partition, or has an ordinal."""

    incarnation: Incarnation


class Checkpoint(Record):
    """The progress of a partition, as its table had it when this was written.

    `table` is the table's id; `rows` and `seconds` are of the last batch. `load`: rows a second of the batches before,
    at `load_at`, measured since `since` (both in server seconds), see `checkpoint.carry_load`; None: not measured.
    """

    offset: Whole
    token: Whole
    run_id: Annotated[str, Field(max_length=128)]
    rows: Whole = 0
    seconds: Amount = 0.0
    epoch: Whole = 0
    table: Annotated[str, Field(max_length=128)] = ""
    load: Amount | None = None
    load_at: Amount | None = None
    since: Amount | None = None


class RunNode(ProcessFields, Record):
    """The partitions of a consuming run. The node's name contains the incarnation that it works for."""

    partitions: Annotated[tuple[PartitionId, ...], Field(max_length=100_000)]


class Parked(Record):
    """Why no run consumes a partition for now. `since` and `retry_at` are in server seconds.

    `retry_at` None: no automatic retry; an operator must run `rota retry`. `person`: it needs an operator, although it
    is retried. `step`: the next step, where known. `error`: the class of the error, if the class states the cause.
    """

    reason: Text
    step: Text = ""
    failures: Whole = 1
    since: Amount = 0.0
    retry_at: Amount | None = None
    offset: Whole | None = None
    person: bool = False
    error: Text = ""


class Moved(Fields):
    """One move of an epoch, from one worker (None: it had no owner) to another; written as `from` and `to`.

    `at` is when the other worker claimed it (server seconds), if no controller had assigned it before.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    partition: PartitionId
    from_worker: Annotated[Id | None, Field(alias="from")]
    to_worker: Annotated[Id, Field(alias="to")]
    reason: Annotated[str, Field(max_length=300)]
    at: Amount | None = None


class Epoch(Record):
    """The audit of one publication. `moves` holds the first 500; `moved` counts all.

    `dropped`: the first 500 partitions that targets named before and do not name since: they left the group, or no
    worker may hold them.
    """

    deflated: ClassVar[bool] = True

    epoch: Whole
    at: Amount
    sentence: Text
    joined: tuple[Id, ...] = ()
    left: tuple[Id, ...] = ()
    moves: Annotated[tuple[Moved, ...], Field(max_length=MAX_MOVES)] = ()
    moved: Whole = 0
    before: Mapping[Id, Whole] = {}
    after: Mapping[Id, Whole] = {}
    measures: Mapping[str, JsonValue] = {}
    dropped: Annotated[tuple[PartitionId, ...], Field(max_length=MAX_MOVES)] = ()
    run_id: Annotated[str, Field(max_length=128)] = ""
    term: Whole = 0

    def find_time(self, move: Moved) -> float:
        """The time of the move, in server seconds: that of the claim, if workers decide alone; else that of the epoch."""
        return self.at if move.at is None else move.at


class Refusal(Fields):
    """One write that was refused because the table had seen a newer token."""

    partition: PartitionId
    token: Whole
    newer: Whole
    run_id: Annotated[str, Field(max_length=128)] = ""
    at: Amount = 0.0


class Refusals(Record):
    """The last refused writes, oldest first."""

    deflated: ClassVar[bool] = True

    ring: Annotated[tuple[Refusal, ...], Field(max_length=MAX_REFUSALS)] = ()


R = TypeVar("R", bound=Record)


def encode(record: Record) -> bytes:
    """The bytes of a record. Raises ConfigError, with the numbers, if they exceed the limit of a znode."""
    try:
        data = record.to_bytes()
    except ValueError as error:
        raise ConfigError(f"{type(record).__name__} cannot be written: {error}. Use fewer or shorter ids") from None
    if len(data) > MAX_DATA:
        raise ConfigError(
            f"{type(record).__name__} takes {len(data)} bytes, above {MAX_DATA}. Use fewer partitions or shorter keys"
        )
    return data


def repair_command(path: str) -> str:
    """The command that lists the unreadable records of the group to which the record at `path` belongs."""
    _, _, group, *_ = [*path.split("/"), "default", "default"]
    return "rota repair" if group == "default" else f"rota repair --group {group}"


def decode(path: str, model: type[R], data: bytes) -> R:
    """The record at `path`. Raises Undecodable: it is never taken for an empty one."""
    try:
        if model.deflated or len(data) > SMALL:
            return model.from_bytes(data)
        record = _parse(model, data)
        assert isinstance(record, model)
        return record
    except (ValidationError, ValueError, RecursionError) as error:
        why = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        where = ".".join(str(p) for p in why["loc"])[:200]
        raise Undecodable(
            f"{path} holds no readable {model.__name__} ({where + ': ' if where else ''}{why['msg'][:200]})",
            path=path,
            step=f"It is left alone. To see what removing it does: {repair_command(path)}",
        ) from None


@lru_cache(maxsize=1 << 11)
def _parse(model: type[Record], data: bytes) -> Record:
    """The record in these bytes. Small ones are cached: they are read again and again, and a record never changes."""
    return model.from_bytes(data)


def _line(data: bytes) -> tuple[bytes, bytes]:
    line, newline, rest = data.partition(b"\n")
    if not newline or len(line) > 100_000:
        raise ValueError("no line of JSON at its start")
    return line, rest


def _checked(model: type[Record], line: bytes) -> dict[str, Any]:
    return {k: v for k, v in model.model_validate_json(line) if k != "keys"}
