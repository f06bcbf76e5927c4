"""The options of an assignor. Law: an unknown or wrong one is one line naming it, its value and the valid ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Option:
    """A default and what is valid: a number of at least `least` (and at most `most`), `whole` or not; or yes and no."""

    default: Any
    least: float = 0.0
    most: float = math.inf
    whole: bool = False
    optional: bool = False  # None is a value of its own: no bound

    def checked(self, where: str, value: Any) -> Any:
        """`value` if it is valid. Raises ConfigError."""
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: {value!r} is not valid. Valid: true, false")
            return value
        numeric = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if not numeric or not (self.least <= value <= self.most) or not math.isfinite(value):
            shown = repr(value)[:80]
            raise ConfigError(f"{where}: {shown} is not valid. Valid: {self._valid()}")
        return value

    def _valid(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        least = f" >= {self.least:g}" if math.isfinite(self.least) else ""
        return f"{kind}{least}" + (f" and <= {self.most:g}" if math.isfinite(self.most) else "")


def chosen(assignor: str, given: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Any]:
    """Every option of `known`, as given or by default; None means the default."""
    for name in given:
        if name not in known:
            valid = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"options: unknown option {str(name)[:80]!r} of {assignor}. Valid: {valid}")
    return {
        name: option.default if given.get(name) is None else option.checked(f"options.{name}", given[name])
        for name, option in known.items()
    }


def part(memory: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What `name` remembers, nothing if there is none. Raises ConfigError if it is not an object."""
    found = memory.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"memory.{name}: {repr(found)[:80]} is not valid. Valid: an object, as answered last")
    return found or {}


def remembered(where: str, memory: Mapping[str, Any], shapes: Mapping[str, str]) -> dict[str, Any]:
    """The parts of a memory by `shapes`: "number", or an object of "numbers", of "names", or of "lists" of numbers.
    Law: what is missing is empty, what is of another shape is refused, what is unknown is forgotten."""
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        value = memory.get(name)
        if value is None:
            found[name] = None if shape == "number" else {}
        elif _has_shape(value, shape):
            found[name] = value if shape == "number" else dict(value)
        else:
            wanted = "a number" if shape == "number" else f"an object of {shape}"
            raise ConfigError(
                f"memory.{where}.{name}: {repr(value)[:80]} is not valid. Valid: {wanted}, as answered last"
            )
    return found


def _has_shape(value: Any, shape: str) -> bool:
    if shape == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not isinstance(value, Mapping):
        return False
    if shape == "numbers":
        return all(_has_shape(item, "number") for item in value.values())
    if shape == "names":
        return all(isinstance(item, str) for item in value.values())
    lists = [item for item in value.values() if isinstance(item, list | tuple)]
    return len(lists) == len(value) and all(len(i) == 6 and all(_has_shape(n, "number") for n in i) for i in lists)
