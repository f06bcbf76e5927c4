"""What a run looks at again after its commits. Law: read from the table's log, never from what the run believes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from assets import names
from rota.ids import pipeline_of
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.records import Checkpoint, Parked
    from rota.coordination.tree import Read
    from rota.dataplane.ports import LogEntry, Position
    from rota.rebalance import Rebalanced


SERVED = "every_file_served"  # of a group's membership


def specs(pipeline: Pipeline) -> list[dg.AssetCheckSpec]:
    """The checks of the three assets."""
    ownership, records, checkpoints = names.consumed(pipeline.name)
    return [
        dg.AssetCheckSpec(
            "no_stale_epoch", asset=ownership, description="In the table's log no older token or epoch follows a newer."
        ),
        dg.AssetCheckSpec(
            "no_gap", asset=records, description="In the table's log each batch starts where the last one ended."
        ),
        dg.AssetCheckSpec(
            "offsets_advance",
            asset=checkpoints,
            description="No checkpoint is ahead of its table, which only goes forward.",
        ),
        dg.AssetCheckSpec(
            "none_parked", asset=records, description="No partition waits for a person, or to be tried again."
        ),
        dg.AssetCheckSpec(
            "none_rewritten", asset=records, description="No file changed after it was consumed, of the newest ones."
        ),
        dg.AssetCheckSpec(
            "none_left_out",
            asset=records,
            description="Everything that lies in the source is read, but what is hidden.",
        ),
    ]


def of_group(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of an assignment."""
    return [
        dg.AssetCheckSpec("one_owner_each", asset=key, description="Each partition is in one worker's target at most."),
        dg.AssetCheckSpec(
            "balance_within_bound", asset=key, description="The imbalance is the least that is possible."
        ),
    ]


def served(key: dg.AssetKey, refused: Mapping[str, str]) -> dg.AssetCheckEvaluation:
    """Whether every file of the folder of pipelines gives what it declares; `refused` is file -> why it does not."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=SERVED,
        passed=not refused,
        description="; ".join(refused.values()) or None,
        metadata={"refused": dg.MetadataValue.json(dict(refused))},
    )


def stale(past: Iterable["LogEntry"]) -> dict[str, str]:
    """Partition -> the commit whose token is older than one before it; empty when none is."""
    newest: dict[str, tuple[int, int]] = {}
    found: dict[str, str] = {}
    for commit in sorted(past, key=lambda commit: commit.version):
        for partition in commit.ranges if commit.op == "commit" else ():
            token = commit.tokens.get(partition, 0)
            last, version = newest.get(partition, (0, 0))
            if token < last:
                found[partition] = f"version {commit.version} has token {token}, version {version} had {last}"
            newest[partition] = max((last, version), (token, commit.version))
    return found


def gaps(past: Iterable["LogEntry"]) -> dict[str, str]:
    """Partition -> the commit that does not start where the one before it ended; empty when offsets follow. What a person
    skipped is in the log, so it is no gap."""
    ends: dict[str, int] = {}
    found: dict[str, str] = {}
    for commit in sorted(past, key=lambda commit: commit.version):
        for partition, (start, end) in commit.ranges.items() if commit.op in ("commit", "skip") else ():
            if ends.setdefault(partition, start) != start:
                found[partition] = (
                    f"version {commit.version} starts at {start}, the one before ended at {ends[partition]}"
                )
            ends[partition] = end
    return found


def ahead(checkpoints: Mapping[str, "Read[Checkpoint]"], table: Mapping[str, "Position"]) -> dict[str, str]:
    """Partition -> what its checkpoint and its table say, where the checkpoint is further on."""
    said = {p: (one.record.offset, table[p].offset or 0) for p, one in checkpoints.items()}
    return {p: f"its checkpoint is at {at}, its table at {true}" for p, (at, true) in said.items() if at > true}


def parked(records: Mapping[str, "Read[Parked]"], pipeline: Pipeline) -> dict[str, str]:
    """Partition -> why nobody consumes it now, of the whole pipeline: its own run is over, and no other looks at it."""
    return {p: f"{one.record.reason} (`rota why {p}`)" for p, one in records.items() if pipeline_of(p) == pipeline.name}


def balance(done: "Rebalanced") -> dict[str, str]:
    """What is wrong with the balance: empty where it is what the assignor's law and the policy's words allow."""
    measures = done.plan.measures
    after, bound = measures.imbalance_after, measures.lower_bound
    if after is None or bound is None or after <= bound + 1e-9:
        return {}
    return {"imbalance": f"{after:.4f} where {bound:.4f} is possible. {measures.reason}".strip()}


def of_epoch(group_key: dg.AssetKey, done: "Rebalanced") -> list[dg.AssetCheckResult]:
    """The checks of an assignment: one owner each is a law, balance a wish (a policy may hold moves back)."""
    one, even = of_group(group_key)
    doubled = {partition: " and ".join(workers) for partition, workers in done.doubles.items()}
    held = done.plan.assignment.snapshot.partition_ids
    return [result(one, doubled, held), result(even, balance(done), held, dg.AssetCheckSeverity.WARN)]


def result(
    spec: dg.AssetCheckSpec,
    wrong: Mapping[str, str],
    looked_at: Sequence[str],
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """The outcome: passed when nothing is wrong, and what is wrong by partition otherwise."""
    return dg.AssetCheckResult(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=not wrong,
        severity=severity,
        metadata={"looked at": len(looked_at), "wrong": dg.MetadataValue.json(dict(wrong))},
    )
