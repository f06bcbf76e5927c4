"""The demo's figures, which it prints at the end, and the laws that decide its exit code.

Law: no law is broken if and only if no row was lost or doubled, every fault was caused, and every commit came from a run
that a sensor launched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rota.coordination.group_state import GroupState
from rota.demo.faults import JoinFigures, KillFigures, ZombieFigures
from rota.demo.observer import CommitSeen
from rota.demo.verify import Verdict
from rota.local.page import DagsterRun

NEXT = "cp pipelines/flights.py pipelines/mine.py"


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """One epoch: imbalance before and after, its moves, and how many of them were unavoidable."""

    epoch: int
    at: float
    sentence: str
    moves: int
    unavoidable_moves: int
    placements: int
    imbalance_before: float | None
    imbalance_after: float | None


@dataclass(frozen=True, slots=True)
class Launches:
    """The runs of the commits, and how many a sensor launched, by Dagster's run storage."""

    commits: int
    runs: int
    by_sensor: int
    foreign: tuple[str, ...]  # ids of committing runs that no sensor launched, or that Dagster's storage does not have


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that the demo measured; `seconds` is the whole, `stages` its parts."""

    verdict: Verdict
    epochs: tuple[EpochFigures, ...]
    launches: Launches
    refused: int
    killed: KillFigures | None
    joined: JoinFigures | None
    zombie: ZombieFigures | None
    protocol: str
    faults: bool
    seconds: float
    stages: Mapping[str, float]
    picture: str

    def find_broken_laws(self) -> tuple[str, ...]:
        """Return a line for each broken law; empty if the demo succeeded."""
        v = self.verdict
        laws = [
            (
                v.rows_landed == v.rows_written > 0,
                f"rows read {v.rows_landed:,} are not rows written {v.rows_written:,}",
            ),
            (v.missing == 0, f"{v.missing:,} rows are missing"),
            (v.duplicates == 0, f"{v.duplicates:,} rows are duplicates"),
            (v.gaps == v.overlaps == 0, f"{v.gaps} offsets have no commit, {v.overlaps} have two"),
            (v.unreadable == 0, f"{v.unreadable} files of the table cannot be read"),
            (v.quarantined == 0, f"{v.quarantined:,} rows are in quarantine"),
            (v.right, "the verifier found a difference"),
            (not self.launches.foreign, f"commits of runs that no sensor launched: {', '.join(self.launches.foreign)}"),
            (self.launches.commits > 0, "nothing was committed"),
            (not self.faults or self.killed is not None, "no worker was killed"),
            (not self.faults or self.joined is not None, "no worker joined later"),
            (not self.faults or bool(self.zombie and self.zombie.refused), "the zombie's write was not refused"),
        ]
        return tuple(text for holds, text in laws if not holds)

    def as_json(self) -> dict[str, Any]:
        """Return the figures under the names that docs/protocol.md lists."""
        v = self.verdict
        return {
            "protocol": self.protocol,
            "right": not self.find_broken_laws(),
            "broken": list(self.find_broken_laws()),
            "rows_read": v.rows_landed,
            "rows_written": v.rows_written,
            "missing": v.missing,
            "duplicates": v.duplicates,
            "gaps": v.gaps,
            "overlaps": v.overlaps,
            "files": v.files_landed,
            "partitions": v.partitions,
            "batches": v.batches,
            "quarantined": v.quarantined,
            "orphans": v.orphans,
            "orphan_bytes": v.orphan_bytes,
            "details": list(v.details),
            "refused": self.refused,
            "epochs": [asdict(e) for e in self.epochs],
            "moves": sum(e.moves for e in self.epochs),
            "unavoidable_moves": sum(e.unavoidable_moves for e in self.epochs),
            "launches": asdict(self.launches),
            "kill": asdict(self.killed) if self.killed else None,
            "join": asdict(self.joined) if self.joined else None,
            "zombie": asdict(self.zombie) if self.zombie else None,
            "seconds": round(self.seconds, 1),
            "stages": {k: round(s, 1) for k, s in self.stages.items()},
            "picture": self.picture,
            "next": NEXT,
        }


def read_launches(commits: Sequence[CommitSeen], runs: Mapping[str, DagsterRun]) -> Launches:
    """Count the runs of the commits that a sensor launched; the others are `foreign`."""
    ids = {c.run_id for c in commits}
    by_sensor = {i for i in ids if i in runs and runs[i].sensor}
    return Launches(len(commits), len(ids), len(by_sensor), tuple(sorted(ids - by_sensor)))


def read_epochs(tree: GroupState) -> tuple[EpochFigures, ...]:
    """Return the figures of each epoch, from its audit record."""
    return tuple(
        EpochFigures(
            epoch=e.epoch,
            at=e.at,
            sentence=e.sentence,
            moves=_number(e.measures.get("moves")),
            unavoidable_moves=_number(e.measures.get("unavoidable_moves")),
            placements=_number(e.measures.get("placements")),
            imbalance_before=_ratio(e.measures.get("imbalance_before")),
            imbalance_after=_ratio(e.measures.get("imbalance_after")),
        )
        for e in tree.epochs()
    )


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _ratio(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
