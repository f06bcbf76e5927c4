"""The options of an assignor. Law: an unknown or wrong one is one line naming it, its value and the valid ones."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.errors import ConfigError, shown

MOST = 1e15  # of a whole number


@dataclass(frozen=True, slots=True)
class Option:
    """A default and what is valid: a number of at least `least` (and at most `most`), `whole` or not; or yes and no."""

    default: Any
    least: float = 0.0
    most: float | None = None
    whole: bool = False
    optional: bool = False  # None is a value of its own: no bound

    def checked(self, where: str, value: Any) -> Any:
        """`value` if it is valid. Raises ConfigError."""
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: true, false")
            return value
        most = self._most()
        if not _finite(value) or (self.whole and not isinstance(value, int)) or not self.least <= value <= most:
            kind = "a whole number" if self.whole else "a finite number"
            bound = f" and <= {most:g}" if math.isfinite(most) else ""
            raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: {kind} >= {self.least:g}{bound}")
        return value

    def _most(self) -> float:
        return self.most if self.most is not None else MOST if self.whole else math.inf


def chosen(
    assignor: str, given: Mapping[str, Any], known: Mapping[str, Option], where: str = "options"
) -> dict[str, Any]:
    """Every option of `known`, as given at `where` or by default; None means the default."""
    for name in given:
        if name not in known:
            valid = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"{where}: unknown option {shown(name)} of {assignor}. Valid: {valid}")
    return {
        name: option.default if given.get(name) is None else option.checked(f"{where}.{name}", given[name])
        for name, option in known.items()
    }


def part(memory: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What `name` remembers, nothing if there is none. Raises ConfigError if it is not an object."""
    found = memory.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"memory.{name}: {shown(found)} is not valid. Valid: an object, as answered last")
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
            raise ConfigError(f"memory.{where}.{name}: {shown(value)} is not valid. Valid: {wanted}, as answered last")
    return found


def _finite(value: Any) -> bool:
    """A number that a float can hold: a whole one may have four thousand digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _has_shape(value: Any, shape: str) -> bool:
    if shape == "number":
        return _finite(value)
    if not isinstance(value, Mapping):
        return False
    if shape == "numbers":
        return all(_has_shape(item, "number") for item in value.values())
    if shape == "names":
        return all(isinstance(item, str) for item in value.values())
    lists = [item for item in value.values() if isinstance(item, list | tuple)]
    return len(lists) == len(value) and all(len(i) == 6 and all(_has_shape(n, "number") for n in i) for i in lists)
