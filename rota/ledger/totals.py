"""The totals of a table: what the commits in its log consumed.

Law: the totals are a function of the log. Each reader of a log finds the same totals, and a killed run changes none of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.deltalog.port import Version


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums over all commits of batches in a log, up to one version.

    A replay replaces rows that a batch committed, so it counts nothing. Nor does a skip, which writes no rows.

    Args:
        commits: the commits of batches.
        rows: the rows that they wrote.
        quarantined: the bad records that they put into the quarantine.
        table: the table's id.
        last: the info of the newest commit that was read. Another info under its number is the log of a copy.
    """

    commits: int = 0
    rows: int = 0
    quarantined: int = 0
    table: str = ""
    last: Mapping[str, Any] = field(default_factory=dict)


def count_commits(version: Version | None, before: Totals | None = None) -> Totals:
    """Return the totals of a table at this version; zeros if there is no table.

    Only the commits after `before` are read, unless that is of another log. Commits that another program removed from the
    log are not counted. Raises EnvironmentFailed.
    """
    if version is None:
        return Totals()
    totals = before if before and before.table == version.table and _has(version, before.last) else Totals()
    commits, rows, quarantined, last = totals.commits, totals.rows, totals.quarantined, totals.last
    for info in version.read_infos(range(last.get("version", -1) + 1, version.number + 1)):
        last = info or last
        if info.get("rota.op") == "commit":
            commits += 1
            rows += _sum(info, "rota.rows")
            quarantined += _sum(info, "rota.bad")
    return Totals(commits, rows, quarantined, version.table, last)


def _has(version: Version, info: Mapping[str, Any]) -> bool:
    """Return whether the log has the commit with this info."""
    number = info.get("version", -1)
    return 0 <= number <= version.number and list(version.read_infos([number])) == [info]


def _sum(info: Mapping[str, Any], key: str) -> int:
    return sum(json.loads(info.get(key) or "{}").values())
