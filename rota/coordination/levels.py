"""The levels of a group's records: which of them this build reads and writes.

Laws:
1. A group has one level, in its settings. A build reads and writes the records of the levels from `LOWEST` to `LEVEL`. At
   any other level it raises ConfigError with the first read of the settings, before it writes anything.
2. A field that other builds can ignore needs no new level (`fields.py`). A change that they may not ignore (a field that is
   removed or means something else, another order of writes) gets the next level, and is written only once the group has it.
3. The level never falls. `upgrade.py` raises it. A new group gets the lowest level, so that older builds may join. Settings
   that were lost begin at the highest: the records may be of any level.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TypeVar

from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.coordination.fields import ProcessFields
    from rota.coordination.records import Meta

LOWEST = 1
LEVEL = 1

P = TypeVar("P", bound="ProcessFields")


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that a build reads and writes, and its version."""

    lowest: int
    level: int
    build: str

    def __str__(self) -> str:
        many = f"levels {self.lowest} to {self.level}" if self.lowest != self.level else f"level {self.level}"
        return f"rota {self.build} reads and writes {many}" if self.build else f"an older rota reads and writes {many}"

    def include(self, level: int) -> bool:
        """Return whether the build reads and writes this level."""
        return self.lowest <= level <= self.level


@lru_cache(maxsize=1)
def find_levels() -> Levels:
    """Return those of this process."""
    try:
        build = version("rota")
    except PackageNotFoundError:  # a checkout that is not installed
        build = "unknown"
    return Levels(LOWEST, LEVEL, build)


def with_build(record: P, ours: Levels) -> P:
    """Return the record with the build and levels of the process that writes it."""
    return record.model_copy(update={"build": ours.build, "lowest": ours.lowest, "level": ours.level})


def check_level(group: str, meta: "Meta", ours: Levels) -> None:
    """Raises ConfigError if this build does not read and write the level of the group."""
    if meta.level > ours.level:
        raise ConfigError(
            f"Group {group!r} is at level {meta.level}, and {ours}. Nothing was written. {_install(meta.raised_by)}"
        )
    if meta.level < ours.lowest:
        raise ConfigError(
            f"Group {group!r} is at level {meta.level}, and {ours}. Nothing was written. Install the release before it, "
            f"then: {upgrade_command(group)}"
        )


def check_floor(group: str, meta: "Meta", ours: Levels) -> None:
    """Raises ConfigError if a process of this build may not join, because the level of the group is being raised."""
    if meta.floor > ours.level:
        raise ConfigError(
            f"Group {group!r} is being raised to level {meta.floor}, and {ours}. Nothing was written. Install the rota that "
            f"raises it. To end that, type with either: {upgrade_command(group)}"
        )


def upgrade_command(group: str) -> str:
    """Return the command that raises the level of a group."""
    return f"rota upgrade --finalize{'' if group == 'default' else f' --group {group}'}"


def _install(build: str) -> str:
    return f"Install rota {build} or newer" if build else "Install a newer rota"
