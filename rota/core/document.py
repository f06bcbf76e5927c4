"""`rota plan` as a function of JSON: one document in, one out (docs/protocol.md lists the fields of both).

Law: a document of any other shape raises ConfigError with one line that names the field, the value and the valid values.
A field that is null has its default.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np

from rota.core.assignors.registry import find_assignor
from rota.core.planner import plan
from rota.core.values import STATES, USAGE, Partition, Plan, Snapshot, Worker
from rota.errors import ConfigError, shown
from rota.ids import is_id, is_partition

FieldReader = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Request:
    """The content of a document: what to plan, and with which assignor."""

    snapshot: Snapshot
    assignor: str
    options: Mapping[str, Any]
    memory: Mapping[str, Any]


def parse_request(text: str | bytes) -> Request:
    """Reads a request from JSON text. Raises ConfigError."""
    try:
        return read_request(json.loads(text, object_pairs_hook=_refuse_twin_fields))
    except ValueError as error:  # also for bytes that are not UTF-8 and numbers that are too long
        raise ConfigError(f"Not a JSON document: {error}. Give one object with workers and partitions") from None
    except RecursionError:
        raise ConfigError("Not a plan document: it is nested too deeply. See docs/protocol.md for its shape") from None


def read_request(document: Any) -> Request:
    """Reads a request from decoded JSON. Raises ConfigError."""
    fields = _read_fields("the document", document, DOCUMENT_FIELDS, ())
    partitions: list[Partition] = fields.get("partitions", [])
    workers: list[Worker] = fields.get("workers", [])
    for kind, values in (("workers", workers), ("partitions", partitions)):
        _refuse_twin_ids(kind, [value.id for value in values])
    owners: dict[str, str] = fields.get("owners", {})
    known = {p.id for p in partitions}
    for name in owners:
        if name not in known:
            raise ConfigError(f"owners: unknown partition {shown(name)}. Valid: the ids in partitions")
    assignor: str = fields.get("assignor", "sticky")
    find_assignor(assignor)
    snapshot = Snapshot.of(workers, partitions, owners)
    return Request(snapshot, assignor, fields.get("options", {}), fields.get("memory", {}))


def answer_request(request: Request) -> dict[str, Any]:
    """Plans a request and formats the plan for JSON. Raises ConfigError as `plan_request` does."""
    return format_plan(plan_request(request))


def plan_request(request: Request) -> Plan:
    """Plans a request. Raises ConfigError for a wrong option and for numbers whose sums or ratios are infinite."""
    snapshot = request.snapshot
    with np.errstate(over="ignore", invalid="ignore"):
        made = plan(snapshot, request.assignor, request.options, request.memory)
    try:
        _refuse_infinite("answer", asdict(made.measures) | {"memory": made.memory})
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
    """The plan as docs/protocol.md lists it, ready for JSON."""
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


def _refuse(where: str, value: Any, valid: str) -> NoReturn:
    raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: {valid}")


def _join_path(where: str, name: str | int) -> str:
    """The path of a field that the document names. A name that is long or has odd characters is quoted and cut."""
    plain = (is_id(str(name)) or is_partition(str(name))) and len(str(name)) <= 40
    return f"{where}.{name if plain else shown(name, 40)}"


def _refuse_twin_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in {n for n, _ in pairs[:i]})
        raise ConfigError(f"The field {shown(twice)} stands twice in one object. Give each field once")
    return found


def _refuse_twin_ids(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise ConfigError(f"{kind}: duplicate id {name!r}. Valid: each id once")
        seen.add(name)


def _read_fields(
    where: str, value: Any, checks: Mapping[str, FieldReader], required: tuple[str, ...]
) -> dict[str, Any]:
    """Reads the fields of an object, without those that are null. Raises ConfigError."""
    if not isinstance(value, dict):
        _refuse(where, value, f"an object with {', '.join(checks)}")
    prefix = "" if where == "the document" else f"{where}."
    for name in value:
        if name not in checks:
            raise ConfigError(f"{where}: unknown field {shown(name)}. Valid: {', '.join(checks)}")
    for name in required:
        if value.get(name) is None:
            raise ConfigError(f"{where}: the field {name!r} is missing. Valid: an id")
    return {name: checks[name](prefix + name, field) for name, field in value.items() if field is not None}


def _read_id(where: str, value: Any) -> str:
    if not isinstance(value, str) or not is_id(value):
        _refuse(where, value, "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -")
    return value


def _read_partition_id(where: str, value: Any) -> str:
    if not isinstance(value, str) or not (is_id(value) or is_partition(value)):
        valid = "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -; or PIPELINE:KEY as rota shows it"
        _refuse(where, value, valid)
    return value


def _read_text(where: str, value: Any) -> str:
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        _refuse(where, value, "a string of Unicode text")
    return value


def _read_number(where: str, value: Any, valid: str = "a finite number >= 0") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, value, valid)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        _refuse(where, value, valid)
    return number


def _read_capacity(where: str, value: Any) -> float:
    valid = "a finite number > 0"
    number = _read_number(where, value, valid)
    return number if number > 0 else _refuse(where, value, valid)


def _read_count(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(where, value, "a whole number >= 0")
    return min(value, 2**31 - 1)


def _read_state(where: str, value: Any) -> str:
    return value if value in STATES and isinstance(value, str) else _refuse(where, value, ", ".join(STATES))


def _read_strings(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object of strings")
    for name in value:
        _read_text(f"a name in {where}", name)
    return {name: _read_text(_join_path(where, name), text) for name, text in value.items() if text is not None}


def _read_usage(where: str, value: Any) -> dict[str, float]:
    return _read_fields(where, value, dict.fromkeys(USAGE, _read_number), ())


def _read_object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object")
    _refuse_infinite(where, value)
    return value


def _refuse_infinite(where: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(where, value, "finite numbers")
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, field in inner:
        _refuse_infinite(_join_path(where, name), field)


def _read_owners(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object: partition id -> worker id")
    return {p: _read_id(_join_path(where, p), worker) for p, worker in value.items() if worker is not None}


def _make_list_reader(make: Callable[[str, Any], Any]) -> FieldReader:
    def check(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            _refuse(where, value, f"a list of {where}")
        return [make(f"{where}[{i}]", item) for i, item in enumerate(value)]

    return check


def _read_worker(where: str, value: Any) -> Worker:
    return Worker(**_read_fields(where, value, WORKER_FIELDS, ("id",)))


def _read_partition(where: str, value: Any) -> Partition:
    return Partition(**_read_fields(where, value, PARTITION_FIELDS, ("id",)))


WORKER_FIELDS: dict[str, FieldReader] = {
    "id": _read_id,
    "capacity": _read_capacity,
    "zone": _read_text,
    "labels": _read_strings,
    "state": _read_state,
    "max_partitions": _read_count,
    "usage": _read_usage,
}
PARTITION_FIELDS: dict[str, FieldReader] = {
    "id": _read_partition_id,
    "source": _read_text,
    "load": _read_number,
    "rate": _read_number,
    "throughput": _read_number,
    "requires": _read_strings,
    "pin": _read_id,
}
DOCUMENT_FIELDS: dict[str, FieldReader] = {
    "workers": _make_list_reader(_read_worker),
    "partitions": _make_list_reader(_read_partition),
    "owners": _read_owners,
    "assignor": _read_text,
    "options": _read_object,
    "memory": _read_object,
}
