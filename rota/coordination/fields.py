"""What a record in ZooKeeper is made of: the types of its fields, and what becomes of fields of another build.

Laws:
1. A field that this build does not know is ignored when a record is read. A process that rewrites the record writes the
   field again (`carry`). So a build may add a field that other builds can ignore. What they may not ignore needs another
   level: `levels.py`.
2. A record that is written whole by its owner (`own`, `grab`, `live`, `runs`), or once (`epochs`), carries nothing: its
   fields are facts about that owner, or that epoch.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from rota.errors import shown
from rota.ids import MAX_PARTITION, NAME, is_partition


def _partition(text: str) -> str:
    if is_partition(text):
        return text
    raise ValueError(f"not the id of a partition: {shown(text)}")


def _finite(value: JsonValue) -> JsonValue:
    json.dumps(value, allow_nan=False)
    return value


Id = Annotated[str, Field(pattern=rf"^{NAME.pattern}$", max_length=128)]
PartitionId = Annotated[str, AfterValidator(_partition)]
Key = Annotated[str, Field(min_length=1, max_length=MAX_PARTITION)]  # `pack` and `grow` check its grammar
Incarnation = Annotated[str, Field(pattern=rf"^{NAME.pattern}@[0-9a-f]{{16}}$", max_length=145)]
Text = Annotated[str, Field(max_length=2_000)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
Labels = Annotated[Mapping[Label, Label], Field(max_length=64)]
Whole = Annotated[int, Field(ge=0, lt=1 << 63)]
Amount = Annotated[float, Field(ge=0)]
Capacity = Annotated[float, Field(gt=0)]
Options = Annotated[Mapping[Id, JsonValue], Field(max_length=64)]
Version = Annotated[str, Field(max_length=100)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]  # of a field


class Fields(BaseModel):
    """The fields of a record, or of an object in a record; see the laws of the module."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)
    __pydantic_extra__: dict[Name, Annotated[JsonValue, AfterValidator(_finite)]] = Field(default={})

    def carry(self, before: Self | None) -> Self:
        """Return this record with the unknown fields of the record that it replaces."""
        unknown = before.__pydantic_extra__ if before is not None else {}
        return self.model_copy(update={**unknown, **self.__pydantic_extra__}) if unknown else self

    def dump_known(self, **how: Any) -> dict[str, Any]:
        """Return the fields that this build knows, as `model_dump` does."""
        known: dict[str, Any] = self.model_dump(exclude=set(self.__pydantic_extra__), **how)
        return known


class ProcessFields(Fields):
    """What a process states of itself in a record that it writes: its build, and the levels that it reads and writes.

    The defaults are those of a build that did not state them.
    """

    build: Version = ""
    lowest: Whole = 1
    level: Whole = 1
