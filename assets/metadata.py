"""The metadata on Dagster's page: numbers that Dagster can plot, and tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.ids import worker_of

if TYPE_CHECKING:
    from rota.consume import CommittedBatch, IdlePartition
    from rota.coordination.views import OwnView
    from rota.rebalance import Rebalanced
    from rota.replay import ReplayedRange

MOST = 500  # rows of a table on the page; `rota status` shows all


def describe_epoch(done: "Rebalanced", picture: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of an epoch: the sentence, the workers, the moves with their reasons, the picture, the numbers."""
    plan, measures = done.plan, done.plan.measures
    columns = plan.assignment.snapshot
    loads = dict(zip(columns.partition_ids, columns.load.tolist(), strict=True))
    workers = [
        {
            "worker": worker,
            "partitions": len(held),
            "load": round(sum(loads[partition] for partition in held), 3),
            "holds": ", ".join(held[:50]) + (" ..." if len(held) > 50 else ""),
        }
        for worker, held in plan.assignment.as_dict().items()
    ]
    moves = [
        {
            "partition": m.partition,
            "from": m.from_worker or "nobody",
            "to": m.to_worker,
            "load": round(m.load, 3),
            "reason": m.reason,
        }
        for m in plan.moves[:MOST]
    ]
    waiting = [{"partition": u.partition, "reason": u.reason} for u in plan.unassigned[:MOST]]
    return {
        "what happened": done.sentence,
        "workers": make_table(workers),
        "moves": make_table(moves),
        "waiting": make_table(waiting),
        **picture,
        "epoch": done.epoch,
        "moved": measures.moves,
        "had to move": measures.unavoidable_moves,
        "placed": measures.placements,
        **{f"imbalance by {what}": value for what, value in done.imbalance.items() if value is not None},
        **({"why not more": measures.reason} if measures.reason else {}),
        **({"look again at": dg.MetadataValue.timestamp(plan.due)} if plan.due else {}),
        **({"unreadable": dg.MetadataValue.json(dict(done.unreadable))} if done.unreadable else {}),
    }


def make_table(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue[Any]:
    """At most `MOST` rows as Dagster's table; the text "none" if there are none."""
    if not rows:
        return dg.MetadataValue.text("none")
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows[:MOST]])


def describe_batch(done: "CommittedBatch", incarnation: str) -> Sequence[Mapping[str, Any]]:
    """The metadata of a batch for the three assets. A healed batch was committed by an earlier run."""
    healed = {"healed": True, "committed by run": done.run_id} if done.healed else {}
    return (
        _describe_owner(incarnation, done.token, done.epoch),
        {
            "rows": done.rows,
            "quarantined rows": done.bad_rows,
            "offsets": f"[{done.start}, {done.end})",
            "seconds": round(float(done.seconds), 3),
            "table version": done.table_version,
            "token": done.token,
            "worker": worker_of(incarnation),
            **healed,
        },
        {"offset": done.end, "lag": done.lag, "rows": done.rows, "token": done.token, "epoch": done.epoch, **healed},
    )


def describe_idle(
    at: "IdlePartition", incarnation: str, last: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """The metadata of a partition with nothing new, for the three assets: the numbers of the `last` batch stay."""
    owner = _describe_owner(incarnation, at.token, at.epoch)
    _, records, checkpoint = last
    return (
        owner,
        {"rows": 0, "token": at.token, "worker": worker_of(incarnation), **records, "nothing new": True},
        {"rows": 0, **checkpoint, "offset": at.offset, "lag": 0, "token": at.token, "epoch": at.epoch},
    )


def describe_replay(done: "ReplayedRange", own: "OwnView | None", offset: str) -> Sequence[Mapping[str, Any]]:
    """The metadata of a replay, for the three assets. The owner and the offset did not change."""
    what = {"replayed": f"[{done.start}, {done.end})"}
    return (
        {"incarnation": (own and own.incarnation) or "nobody", "token": own.token if own else 0, **what},
        {
            **what,
            "rows": done.rows,
            "quarantined rows": done.bad_rows,
            "seconds": round(float(done.seconds), 3),
            "table version": done.table_version,
        },
        {"offset": int(offset), **what},
    )


def _describe_owner(incarnation: str, token: int, epoch: int) -> Mapping[str, Any]:
    return {"worker": worker_of(incarnation), "incarnation": incarnation, "token": token, "epoch": epoch}
