"""The asset checks of groups and pipelines, and what each of them says.

Laws:
1. A check says what is true of the whole asset. It reads the table's log, the source and ZooKeeper, never what a run
   remembers, and never the keys of one run only.
2. What needs a person fails as an error. What mends itself fails as a warning.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets.names import Names
from rota.ids import pipeline_of, quote
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.records import Checkpoint, Parked
    from rota.coordination.views import Read
    from rota.dataplane.ports import LogEntry, Position
    from rota.rebalance import Rebalanced


ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
SERVED = "every_file_served"  # of a group's membership
MOST = 100  # partitions that a result names; `rota status` shows all


def list_checks(pipeline: Pipeline, names: Names) -> list[dg.AssetCheckSpec]:
    """The checks of a pipeline's three assets."""
    ownership, records, checkpoints = names.consumed(pipeline.name)
    said = {
        "no_stale_epoch": (ownership, "In the table's log no older token follows a newer one."),
        "all_owned": (ownership, "No partition is without a live owner for long."),
        "no_gap": (records, "In the table's log each batch starts where the last one ended."),
        "none_parked": (records, "No partition of the pipeline is parked."),
        "none_rewritten": (records, "None of the newest files changed after it was consumed."),
        "none_left_out": (records, "Everything in the source that is not hidden is read."),
        "offsets_advance": (checkpoints, "No checkpoint is ahead of its table."),
        "keeps_up": (checkpoints, "No partition with lag stands still, and of none the lag grows for long."),
    }
    return [dg.AssetCheckSpec(name, asset=asset, description=text) for name, (asset, text) in said.items()]


def list_group_checks(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """The checks of a group's assignment."""
    return [
        dg.AssetCheckSpec("one_owner_each", asset=key, description="Each partition is in one worker's target at most."),
        dg.AssetCheckSpec("balance_within_bound", asset=key, description="The imbalance is the least possible."),
    ]


def check_files(key: dg.AssetKey, refused: Mapping[str, str]) -> dg.AssetCheckEvaluation:
    """The check that every file in the folder of pipelines is served; `refused` is file -> why it is not."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=SERVED,
        passed=not refused,
        description="; ".join(refused.values()) or None,
        metadata={"refused": dg.MetadataValue.json(dict(refused))},
    )


def read_said(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> tuple[dg.AssetCheckEvaluation, float] | None:
    """The newest evaluation of the check, and when it was stored. None where a run has planned one and has not evaluated it,
    or never will because it was cancelled: the data of the newest record is then the plan."""
    record = instance.get_latest_asset_check_evaluation_record(key)
    said = record.evaluation if record else None
    return (said, record.create_timestamp) if record and isinstance(said, dg.AssetCheckEvaluation) else None


def find_stale(past: Iterable["LogEntry"]) -> dict[str, str]:
    """Partition -> which commit has an older token than a commit before it. Empty if none has."""
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


def find_gaps(past: Iterable["LogEntry"]) -> dict[str, str]:
    """Partition -> which commit does not start where the one before it ended. Empty if all do. Skipped offsets are in the
    log and count as no gap."""
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


def find_ahead(checkpoints: Mapping[str, "Read[Checkpoint]"], table: Mapping[str, "Position"]) -> dict[str, str]:
    """Partition -> what its checkpoint and its table say, if the checkpoint is ahead of the table."""
    said = {p: (one.record.offset, table[p].offset or 0) for p, one in checkpoints.items()}
    return {p: f"its checkpoint is at {at}, its table at {true}" for p, (at, true) in said.items() if at > true}


def find_parked(records: Mapping[str, "Read[Parked]"], pipeline: Pipeline) -> tuple[dict[str, str], bool]:
    """Partition -> why it is parked, of the whole pipeline; and whether one of them waits for a person."""
    mine = {p: one.record for p, one in records.items() if pipeline_of(p) == pipeline.name}
    found = {p: f"{one.reason} (`rota why {quote(p)}`)" for p, one in mine.items()}
    return found, any(one.retry_at is None for one in mine.values())


def find_imbalance(done: "Rebalanced") -> dict[str, str]:
    """Why the imbalance is above the lower bound. Empty if it is not."""
    measures = done.plan.measures
    after, bound = measures.imbalance_after, measures.lower_bound
    if after is None or bound is None or after <= bound + 1e-9:
        return {}
    return {"imbalance": f"{after:.4f} where {bound:.4f} is possible. {measures.reason}".strip()}


def check_epoch(group_key: dg.AssetKey, done: "Rebalanced") -> list[dg.AssetCheckResult]:
    """The results of an assignment's checks. Imbalance is a warning only, because a policy may hold moves back."""
    one, even = list_group_checks(group_key)
    doubled = {partition: " and ".join(workers) for partition, workers in done.doubles.items()}
    held = done.plan.assignment.snapshot.partition_ids
    said = (evaluate(one, doubled, held), evaluate(even, find_imbalance(done), held, WARN))
    return [make_result(evaluation) for evaluation in said]


def evaluate(
    spec: dg.AssetCheckSpec,
    wrong: Mapping[str, str],
    looked_at: Sequence[str],
    severity: dg.AssetCheckSeverity = ERROR,
) -> dg.AssetCheckEvaluation:
    """An evaluation that passes if nothing is wrong, and names what is wrong: `MOST` of it, by partition."""
    named = dict(sorted(wrong.items())[:MOST])
    first = next((f"{name}: {why}" for name, why in named.items()), None)
    return dg.AssetCheckEvaluation(
        asset_key=spec.asset_key,
        check_name=spec.name,
        passed=not wrong,
        severity=severity,
        description=f"{first}. And {len(wrong) - 1} more" if len(wrong) > 1 else first,
        metadata={"looked at": len(looked_at), "wrong": dg.MetadataValue.json(named)},
    )


def make_result(said: dg.AssetCheckEvaluation) -> dg.AssetCheckResult:
    """The evaluation as the result of a step."""
    return dg.AssetCheckResult(
        asset_key=said.asset_key,
        check_name=said.check_name,
        passed=said.passed,
        severity=said.severity,
        description=said.description,
        metadata=said.metadata,
    )
