"""`rota plan` as a function of JSON: one document in, one out (docs/protocol.md lists the fields of both).

Law: a document of any other shape raises ConfigError with one line that names the field, the value and the valid values.
A field that is null has its default.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rota.core.assignors.known_assignors import find_assignor
from rota.core.planner import plan
from rota.core.values import STATES, UNLIMITED, USAGE, Partition, Plan, Snapshot, Worker
from rota.errors import ConfigError, shown
from rota.ids import is_id, is_partition

ID = "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -"


def _only(valid: str, accepts: Callable[[Any], bool]) -> BeforeValidator:
    """Refuse values that are not accepted, and list the valid ones."""

    def check(value: Any) -> Any:
        try:
            if accepts(value):
                return value
        except OverflowError:  # JSON may hold an integer that is too large for a float
            pass
        raise PydanticCustomError("valid", "{valid}", {"valid": valid})

    return BeforeValidator(check)


def _drop_nulls(value: Any) -> Any:
    return {name: field for name, field in value.items() if field is not None} if isinstance(value, dict) else value


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


Id = Annotated[str, _only(ID, lambda value: isinstance(value, str) and is_id(value))]
PartitionId = Annotated[
    str,
    _only(
        f"{ID}; or PIPELINE:KEY as rota shows it",
        lambda value: isinstance(value, str) and (is_id(value) or is_partition(value)),
    ),
]
Text = Annotated[str, _only("a string of Unicode text", _is_text)]
Amount = Annotated[float, _only("a finite number >= 0", _is_amount)]
Capacity = Annotated[float, _only("a finite number > 0", lambda value: _is_amount(value) and value > 0)]
Count = Annotated[
    int,
    _only("a whole number >= 0", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 0),
    AfterValidator(lambda value: min(value, UNLIMITED)),
]
State = Annotated[str, _only(", ".join(STATES), lambda value: isinstance(value, str) and value in STATES)]
Texts = Annotated[dict[Text, Text], BeforeValidator(_drop_nulls)]
Object = Annotated[dict[str, Any], _only("an object", lambda value: isinstance(value, dict))]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="forbid")

    _without_nulls = model_validator(mode="before")(_drop_nulls)

    def given(self) -> dict[str, Any]:
        """The fields that the document has."""
        return self.model_dump(exclude_unset=True)


Usage: Any = create_model("Usage", __base__=_Fields, **dict.fromkeys(USAGE, (Amount, 0.0)))  # type: ignore[call-overload]


class WorkerFields(_Fields):
    """A worker of a document; missing fields have the defaults of `Worker`."""

    id: Id
    capacity: Capacity = 1.0
    zone: Text = ""
    labels: Texts = {}
    state: State = "active"
    max_partitions: Count = 0
    usage: Usage = Usage()


class PartitionFields(_Fields):
    """A partition of a document; missing fields have the defaults of `Partition`."""

    id: PartitionId
    source: Text = ""
    load: Amount = 1.0
    rate: Amount = 0.0
    throughput: Amount = 0.0
    requires: Texts = {}
    pin: Id = ""


class Request(_Fields):
    """The content of a document: what to plan, and with which assignor."""

    workers: list[WorkerFields] = []
    partitions: list[PartitionFields] = []
    owners: Annotated[dict[str, Id], BeforeValidator(_drop_nulls)] = {}
    assignor: Text = "sticky"
    options: Object = {}
    memory: Object = {}


def parse_request(text: str | bytes) -> Request:
    """Read a request from JSON text. Raises ConfigError."""
    try:
        document = json.loads(text, object_pairs_hook=_refuse_twin_fields)
        request = Request.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None
    except ValueError as error:  # also for bytes that are not UTF-8 and numbers that are too long
        raise ConfigError(f"Not a JSON document: {error}. Give one object with workers and partitions") from None
    except RecursionError:
        raise ConfigError("Not a plan document: it is nested too deeply. See docs/protocol.md for its shape") from None
    for kind, values in (("workers", request.workers), ("partitions", request.partitions)):
        twice = [name for name, times in Counter(value.id for value in values).items() if times > 1]
        if twice:
            raise ConfigError(f"{kind}: duplicate id {twice[0]!r}. Valid: each id once")
    known = {partition.id for partition in request.partitions}
    for name in request.owners:
        if name not in known:
            raise ConfigError(f"owners: unknown partition {shown(name)}. Valid: the ids in partitions")
    find_assignor(request.assignor)
    _refuse_infinite({"options": request.options, "memory": request.memory})
    return request


def answer_request(request: Request) -> dict[str, Any]:
    """Plan a request and format the plan for JSON. Raises ConfigError as `plan_request` does."""
    return format_plan(plan_request(request))


def plan_request(request: Request) -> Plan:
    """Plan a request. Raises ConfigError for a wrong option, and for numbers whose sums or ratios are infinite."""
    workers = [Worker(**one.given()) for one in request.workers]
    snapshot = Snapshot.of(workers, [Partition(**one.given()) for one in request.partitions], request.owners)
    with np.errstate(over="ignore", invalid="ignore"):
        made = plan(snapshot, request.assignor, request.options, request.memory)
    try:
        _refuse_infinite(asdict(made.measures) | {"memory": made.memory})
    except ConfigError:
        usage = [number for worker in snapshot.workers for number in (worker.usage or {}).values()]
        largest = max([0.0, *usage, *np.nan_to_num((snapshot.load, snapshot.rate, snapshot.throughput)).ravel()])
        raise ConfigError(
            f"load, rate, throughput, usage: {largest:g} is not valid beside a capacity of "
            f"{min(worker.capacity for worker in snapshot.workers):g}, the sums and ratios are not finite. "
            "Valid: numbers up to 1e+100, capacities from 1e-100 to 1e+100"
        ) from None
    return made


def format_plan(made: Plan) -> dict[str, Any]:
    """Return the plan as docs/protocol.md lists it, ready for JSON."""
    measures = asdict(made.measures)
    del measures["reason"]
    return {
        "assignment": {worker: list(held) for worker, held in made.assignment.as_dict().items()},
        "moves": [
            {"partition": m.partition, "from": m.from_worker, "to": m.to_worker, "load": m.load, "reason": m.reason}
            for m in made.moves
        ],
        "unassigned": [{"partition": u.partition, "from": u.from_worker, "reason": u.reason} for u in made.unassigned],
        "measures": measures,
        "memory": dict(made.memory),
    }


def _explain(error: ValidationError) -> str:
    """Return the first fault, in one line."""
    first = error.errors()[0]
    *above, last = [part for part in first["loc"] if part != "[key]"] or [""]
    if first["type"] == "missing":
        return f"{_join_path(*above)}: the field {last!r} is missing. Valid: an id"
    if first["type"] == "extra_forbidden":
        models: dict[str, Any] = {"usage": Usage, "workers": WorkerFields, "partitions": PartitionFields}
        model = next((models[str(name)] for name in reversed(above) if name in models), Request)
        return f"{_join_path(*above)}: unknown field {shown(last)}. Valid: {', '.join(model.model_fields)}"
    valid = {"valid": first["msg"], "list_type": "a list"}.get(first["type"], "an object")
    return f"{_join_path(*above, last)}: {shown(first['input'])} is not valid. Valid: {valid}"


def _join_path(*names: str | int) -> str:
    """Return the path of a field in the document. A long or odd name is quoted and cut."""
    where = ""
    for name in names:
        plain = (is_id(str(name)) or is_partition(str(name))) and len(str(name)) <= 40
        where += f"[{name}]" if isinstance(name, int) else f".{name if plain else shown(name, 40)}" if name else ""
    return where.removeprefix(".") or "the document"


def _refuse_twin_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in {n for n, _ in pairs[:i]})
        raise ConfigError(f"The field {shown(twice)} appears twice in one object. Give each field once")
    return found


def _refuse_infinite(value: Any, *where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{_join_path(*where)}: {shown(value)} is not valid. Valid: finite numbers")
    inner: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, field in inner:
        _refuse_infinite(field, *where, str(name))
