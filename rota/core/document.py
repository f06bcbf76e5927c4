"""The black-box contract of the engine: one JSON document in, one out (docs/protocol.md lists both).

Law: a document that is not exactly of this shape is refused with one line that names the field, the value and what is
valid; nothing is guessed. null means the default everywhere.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np

from rota.core.assignors.registry import find
from rota.core.planner import plan
from rota.core.values import STATES, USAGE, Partition, Plan, Snapshot, Worker
from rota.errors import ConfigError, shown
from rota.ids import is_id, is_partition

Check = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What a document asks for."""

    snapshot: Snapshot
    assignor: str
    options: Mapping[str, Any]
    memory: Mapping[str, Any]


def parse(text: str | bytes) -> Request:
    """The request in a JSON text. Raises ConfigError."""
    try:
        return read(json.loads(text, object_pairs_hook=_distinct))
    except ValueError as error:  # also bytes that are not UTF-8, and numbers too long to read
        raise ConfigError(f"Not a JSON document: {error}. Give one object with workers and partitions") from None
    except RecursionError:
        raise ConfigError("Not a plan document: it is nested too deeply. See docs/protocol.md for its shape") from None


def read(document: Any) -> Request:
    """The request in a decoded document. Raises ConfigError."""
    fields = _record("the document", document, _DOCUMENT, ())
    partitions: list[Partition] = fields.get("partitions", [])
    workers: list[Worker] = fields.get("workers", [])
    for kind, values in (("workers", workers), ("partitions", partitions)):
        _once(kind, [value.id for value in values])
    owners: dict[str, str] = fields.get("owners", {})
    known = {p.id for p in partitions}
    for name in owners:
        if name not in known:
            raise ConfigError(f"owners: unknown partition {shown(name)}. Valid: the ids in partitions")
    assignor: str = fields.get("assignor", "sticky")
    find(assignor)
    snapshot = Snapshot.of(workers, partitions, owners)
    return Request(snapshot, assignor, fields.get("options", {}), fields.get("memory", {}))


def answer(request: Request) -> dict[str, Any]:
    """The answer to a request, ready for JSON. Raises ConfigError as `decided` does."""
    return written(decided(request))


def decided(request: Request) -> Plan:
    """The plan for a request. Raises ConfigError on a bad option, and on numbers whose sums and ratios are not finite."""
    snapshot = request.snapshot
    with np.errstate(over="ignore", invalid="ignore"):
        made = plan(snapshot, request.assignor, request.options, request.memory)
    try:
        _finite("answer", asdict(made.measures) | {"memory": made.memory})
    except ConfigError:
        usage = [number for worker in snapshot.workers for number in (worker.usage or {}).values()]
        largest = max([0.0, *usage, *np.nan_to_num((snapshot.load, snapshot.rate, snapshot.throughput)).ravel()])
        raise ConfigError(
            f"load, rate, throughput, usage: {largest:g} is not valid beside a capacity of "
            f"{min(worker.capacity for worker in snapshot.workers):g}, the sums and ratios are not finite. "
            "Valid: numbers up to 1e+100, capacities from 1e-100 to 1e+100"
        ) from None
    return made


def written(made: Plan) -> dict[str, Any]:
    """A plan in the shape of the contract."""
    measures = asdict(made.measures)
    del measures["reason"]
    return {
        "assignment": {worker: list(held) for worker, held in made.assignment.as_dict().items()},
        "moves": [
            {"partition": m.partition, "from": m.giver, "to": m.taker, "load": m.load, "reason": m.reason}
            for m in made.moves
        ],
        "unassigned": [{"partition": u.partition, "from": u.giver, "reason": u.reason} for u in made.unassigned],
        "measures": measures,
        "memory": dict(made.memory),
    }


def _refuse(where: str, value: Any, valid: str) -> NoReturn:
    raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: {valid}")


def _inside(where: str, name: str | int) -> str:
    """The place of a field whose name the document made up: as it is if it is short and plain, else quoted and cut."""
    return (
        f"{where}.{name if (is_id(str(name)) or is_partition(str(name))) and len(str(name)) <= 40 else shown(name, 40)}"
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for i, (name, _) in enumerate(pairs) if name in {n for n, _ in pairs[:i]})
        raise ConfigError(f"The field {shown(twice)} stands twice in one object. Each field stands once")
    return found


def _once(kind: str, ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise ConfigError(f"{kind}: duplicate id {name!r}. Valid: each id once")
        seen.add(name)


def _record(where: str, value: Any, checks: Mapping[str, Check], required: tuple[str, ...]) -> dict[str, Any]:
    """The fields of an object that are not null, each checked."""
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


def _id(where: str, value: Any) -> str:
    if not isinstance(value, str) or not is_id(value):
        _refuse(where, value, "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -")
    return value


def _partition_id(where: str, value: Any) -> str:
    if not isinstance(value, str) or not (is_id(value) or is_partition(value)):
        _refuse(
            where, value, "a letter or digit, then up to 127 of A-Z a-z 0-9 . _ -; or PIPELINE:KEY as rota shows it"
        )
    return value


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        _refuse(where, value, "a string of Unicode text")
    return value


def _number(where: str, value: Any, valid: str = "a finite number >= 0") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(where, value, valid)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        _refuse(where, value, valid)
    return number


def _capacity(where: str, value: Any) -> float:
    valid = "a finite number > 0"
    number = _number(where, value, valid)
    return number if number > 0 else _refuse(where, value, valid)


def _count(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        _refuse(where, value, "a whole number >= 0")
    return min(value, 2**31 - 1)


def _state(where: str, value: Any) -> str:
    return value if value in STATES and isinstance(value, str) else _refuse(where, value, ", ".join(STATES))


def _strings(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object of strings")
    for name in value:
        _text(f"a name in {where}", name)
    return {name: _text(_inside(where, name), text) for name, text in value.items() if text is not None}


def _usage(where: str, value: Any) -> dict[str, float]:
    return _record(where, value, dict.fromkeys(USAGE, _number), ())


def _object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object")
    _finite(where, value)
    return value


def _finite(where: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        _refuse(where, value, "finite numbers")
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, field in inner:
        _finite(_inside(where, name), field)


def _owners(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        _refuse(where, value, "an object: partition id -> worker id")
    return {p: _id(_inside(where, p), worker) for p, worker in value.items() if worker is not None}


def _list_of(make: Callable[[str, Any], Any]) -> Check:
    def check(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            _refuse(where, value, f"a list of {where}")
        return [make(f"{where}[{i}]", item) for i, item in enumerate(value)]

    return check


def _worker(where: str, value: Any) -> Worker:
    return Worker(**_record(where, value, _WORKER, ("id",)))


def _partition(where: str, value: Any) -> Partition:
    return Partition(**_record(where, value, _PARTITION, ("id",)))


_WORKER: dict[str, Check] = {
    "id": _id,
    "capacity": _capacity,
    "zone": _text,
    "labels": _strings,
    "state": _state,
    "max_partitions": _count,
    "usage": _usage,
}
_PARTITION: dict[str, Check] = {
    "id": _partition_id,
    "source": _text,
    "load": _number,
    "rate": _number,
    "throughput": _number,
    "requires": _strings,
    "pin": _id,
}
_DOCUMENT: dict[str, Check] = {
    "workers": _list_of(_worker),
    "partitions": _list_of(_partition),
    "owners": _owners,
    "assignor": _text,
    "options": _object,
    "memory": _object,
}
