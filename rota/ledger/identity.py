"""The owner of a table: one pipeline of a group of one ZooKeeper.

Law: a table has at most one owner, which its log names from the first claim on. The transaction `rota/adopted` counts the
changes of owner. The owner is the group and the pipeline whose transactions have that number; no other pipeline uses the
table. A rename first takes the table from the old name, and last gives it to the new name. In between it has no owner.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from rota.deltalog.port import Log, Version
from rota.errors import EnvironmentFailed
from rota.ledger.change import read_back
from rota.pipeline import rename_command, suggest_path

ADOPTED = "rota/adopted"  # the count of changes of owner
RENAMING = "rota/renaming"  # the number of the rename that is under way; 0 if none is


@dataclass(frozen=True, slots=True)
class Identity:
    """A pipeline of a group; `meta` is the random id of the group in its ZooKeeper."""

    group: str
    meta: str
    pipeline: str

    def owns(self, table: Version) -> bool:
        """Return whether this pipeline, in this group, owns the table."""
        number = count_adoptions(table)
        both = (self._group(), _pipeline(self.pipeline))
        return number is not None and all(table.transaction(one) == number for one in both)

    def group_has(self, table: Version) -> bool:
        """Return whether this group owns the table, whichever pipeline owns it."""
        return bool(table.transaction(self._group()) == count_adoptions(table))

    def taken(self, number: int) -> dict[str, int]:
        """Return the transactions that make this pipeline the owner. `number` is the new count of changes of owner."""
        return {**self.left(number), _pipeline(self.pipeline): number}

    def left(self, number: int) -> dict[str, int]:
        """Return the transactions that make this group the owner, but none of its pipelines. See `taken`."""
        return {self._group(): number, ADOPTED: number}

    def refusal(self, table: Version) -> str:
        """Return why this pipeline may not use the table, with the next step."""
        path = table.log.location
        if way := find_rename(table):
            return f"{path} is between two names. Nothing was written. Go on with: {way.command}"
        if count_adoptions(table) is None:
            return (
                f"{path} has rows that rota did not write. Nothing was written. Give {self.pipeline!r} another path; or, to "
                f"take the table over: rota adopt"
            )
        name = find_owner(table) or "?"  # "?": the log was shortened
        if not self.group_has(table) and belongs_to(table, self.pipeline):
            return (
                f"{path} belongs to another group, or to group {self.group!r} of another ZooKeeper. Nothing was "
                f"written. To take it over: rota adopt"
            )
        if not self.group_has(table):
            return (
                f"{path} belongs to pipeline {name!r} of another group, or of group {self.group!r} of another ZooKeeper. "
                f"Nothing was written. Give {self.pipeline!r} another path; or, to take the table over, call the file "
                f"{name}.py, then: rota adopt"
            )
        return (
            f"{path} is the table of pipeline {name!r}, and {self.pipeline!r} would read everything again into it. Nothing "
            f"was written. {suggest_path(name, self.pipeline, self.group)}"
        )

    def _group(self) -> str:
        return f"rota/{self.group}/id/{self.meta}"


@dataclass(frozen=True, slots=True)
class Rename:
    """A rename from `old` to `new`, begun by a group."""

    old: str
    new: str
    group: str

    @property
    def command(self) -> str:
        """The command that continues the rename."""
        return rename_command(self.old, self.new, self.group)


def count_adoptions(table: Version) -> int | None:
    """Return how often the owner of the table changed; None if the table was never claimed."""
    number: int | None = table.transaction(ADOPTED)
    return number


def belongs_to(table: Version, pipeline: str) -> bool:
    """Return whether the log names this pipeline as the owner, in any group."""
    number = count_adoptions(table)
    return number is not None and bool(table.transaction(_pipeline(pipeline)) == number)


def find_owner(table: Version) -> str | None:
    """Return the pipeline that owns the table; None if there is none, or if the log lost the commits that name it."""
    limit, seen = 16, 0
    while count_adoptions(table) is not None:
        entries = read_back(table, limit)
        names = dict.fromkeys(str(one.get("rota.pipeline", "")) for one in entries[seen:])
        if found := [name for name in names if belongs_to(table, name)]:
            return found[0]
        if len(entries) < limit:
            return None
        seen, limit = limit, limit * 8
    return None


def find_owner_among(log: Log, pipelines: Iterable[str]) -> str | None:
    """Return which of these pipelines owns the table; None if none does or there is no table. Raises EnvironmentFailed."""
    table = log.open()
    return next((name for name in pipelines if table and belongs_to(table, name)), None)


def explain_taken(table: Version, name: str, group: str) -> str:
    """Return which other pipeline of any ZooKeeper owns the table, with the next step; empty if none does."""
    if count_adoptions(table) is None or belongs_to(table, name):
        return ""
    if way := find_rename(table):
        return f"{table.log.location} is between two names. Go on with: {way.command}"
    its = find_owner(table) or "?"
    return f"{table.log.location} is the table of pipeline {its!r}. {suggest_path(its, name, group)}"


def find_rename(table: Version) -> Rename | None:
    """Return the unfinished rename; None if there is none. Raises EnvironmentFailed if the log lost its first commit."""
    if not table.transaction(RENAMING):
        return None
    began = next((one for one in read_back(table) if one.get("rota.op") == "renaming"), None)
    if began is None:
        raise EnvironmentFailed(
            f"{table.log.location} is between two names that its log has lost. Bring its log back from a copy"
        )
    ((old, new),) = json.loads(str(began["rota.renamed"])).items()
    return Rename(str(old), str(new), str(began["rota.group"]))


def _pipeline(name: str) -> str:
    return f"rota/pipeline/{name}"
