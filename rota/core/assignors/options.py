"""Read the options and the memory of an assignor.

Law: an unknown or invalid option raises ConfigError, one line with the option, its value and the valid values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rota.errors import ConfigError, shown

MOST = 1e15  # the largest whole number that an option may be


@dataclass(frozen=True, slots=True)
class Option:
    """The default and the valid values of an option: one of `words`; else true and false if the default is a boolean;
    else numbers from `least` to `most`, only whole ones with `whole`."""

    default: Any
    least: float = 0.0
    most: float | None = None
    whole: bool = False
    words: tuple[str, ...] = ()

    def check(self, where: str, value: Any) -> Any:
        """Return `value` if it is valid. Raises ConfigError otherwise."""
        if self.words:
            if value not in self.words:
                raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: {', '.join(self.words)}")
            return value
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: true, false")
            return value
        most = self._find_bound()
        if not _is_finite(value) or (self.whole and not isinstance(value, int)) or not self.least <= value <= most:
            kind = "a whole number" if self.whole else "a finite number"
            bound = f" and <= {most:g}" if math.isfinite(most) else ""
            raise ConfigError(f"{where}: {shown(value)} is not valid. Valid: {kind} >= {self.least:g}{bound}")
        return value

    def _find_bound(self) -> float:
        return self.most if self.most is not None else MOST if self.whole else math.inf


def read_options(
    assignor: str, given: Mapping[str, Any], known: Mapping[str, Option], where: str = "options"
) -> dict[str, Any]:
    """Return the value of each option in `known`, its default if `given` lacks it or has None. Raises ConfigError."""
    for name in given:
        if name not in known:
            valid = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"{where}: unknown option {shown(name)} of {assignor}. Valid: {valid}")
    return {
        name: option.default if given.get(name) is None else option.check(f"{where}.{name}", given[name])
        for name, option in known.items()
    }


def read_part(memory: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the part of `memory` that belongs to `name`, empty if there is none. Raises ConfigError if it is no object."""
    found = memory.get(name)
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"memory.{name}: {shown(found)} is not valid. Valid: an object, as answered last")
    return found or {}


def read_memory(where: str, memory: Mapping[str, Any], shapes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a memory that `shapes` names. A shape is "number", or an object of "numbers", "names" or
    "lists" of six numbers. A missing field is empty, and others are dropped. Raises ConfigError for a field of another
    shape."""
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


def _is_finite(value: Any) -> bool:
    """Return whether `value` is a finite number. JSON may hold an integer that is too large for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _has_shape(value: Any, shape: str) -> bool:
    if shape == "number":
        return _is_finite(value)
    if not isinstance(value, Mapping):
        return False
    if shape == "numbers":
        return all(_has_shape(item, "number") for item in value.values())
    if shape == "names":
        return all(isinstance(item, str) for item in value.values())
    lists = [item for item in value.values() if isinstance(item, list | tuple)]
    return len(lists) == len(value) and all(len(i) == 6 and all(_has_shape(n, "number") for n in i) for i in lists)
