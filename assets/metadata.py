"""The metadata on Dagster's page: numbers that Dagster can plot, and tables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.dagster.assets import page_keys as keys
from rota.dagster.assets.sample import render
from rota.errors import mask, printable
from rota.ids import worker_of

if TYPE_CHECKING:
    from rota.coordination.views import OwnView
    from rota.group.rebalance import Rebalanced
    from rota.run.consume import CommittedBatch, IdlePartition
    from rota.run.maintain import Maintained
    from rota.run.replay import ReplayedRange
    from rota.run.samples import BatchSample

MAX_ROWS = 100  # of a table on the page, and partitions of a worker in it; `rota status` shows all
PLOTS = 10  # workers with a plot of their load, and partitions with a plot of their lag
PLACE = 200  # the last letters of a file's path that are shown


def describe_epoch(
    done: "Rebalanced", picture: Mapping[str, Any], lags: Mapping[str, int], sparks: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return the metadata of an epoch: the sentence, the picture, the workers, the moves with their reasons, the numbers.
    `sparks` is worker -> address."""
    plan, measures = done.plan, done.plan.measures
    columns = plan.assignment.snapshot
    loads = dict(zip(columns.partition_ids, columns.load.tolist(), strict=True))
    targets = plan.assignment.as_dict()
    carried = {worker: round(sum(loads[partition] for partition in held), 3) for worker, held in targets.items()}
    workers = [
        {
            "worker": worker,
            "partitions": len(held),
            "load": carried[worker],
            "spark": mask(sparks.get(worker) or "none"),
            "holds": ", ".join(held[:MAX_ROWS]) + (" ..." if len(held) > MAX_ROWS else ""),
        }
        for worker, held in targets.items()
    ]
    moves = [
        {
            "partition": m.partition,
            "from": m.from_worker or "none",
            "to": m.to_worker,
            "load": round(m.load, 3),
            "reason": m.reason,
        }
        for m in plan.moves[:MAX_ROWS]
    ]
    waiting = [{"partition": u.partition, "reason": u.reason} for u in plan.unassigned[:MAX_ROWS]]
    return {
        keys.HAPPENED: done.sentence,
        **picture,
        "workers": make_table(workers),
        keys.MOVES: make_table(moves),
        "partitions that wait": make_table(waiting),
        **({"why no more moved": measures.reason} if measures.reason else {}),
        **({"look again at": dg.MetadataValue.timestamp(plan.due)} if plan.due else {}),
        **({"unreadable": dg.MetadataValue.json(dict(done.unreadable))} if done.unreadable else {}),
        keys.EPOCH: done.epoch,
        keys.MOVED: measures.moves,
        "moves that were unavoidable": measures.unavoidable_moves,
        keys.PLACED: measures.placements,
        **{f"imbalance by {what}": value for what, value in done.imbalance.items() if value is not None},
        **_list_plots("load", carried),
        **_list_plots("lag", lags),
    }


def _list_plots(what: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return the sum, and the greatest `PLOTS` values with their names."""
    if not values:
        return {}
    greatest = sorted(values, key=lambda name: (-values[name], name))[:PLOTS]
    total = sum(values.values())
    rounded = round(total, 3) if isinstance(total, float) else total
    return {f"{what}, total": rounded, **{f"{what} of {name}": values[name] for name in sorted(greatest)}}


def make_table(rows: Sequence[Mapping[str, Any]]) -> dg.MetadataValue[Any]:
    """Return at most `MAX_ROWS` rows as Dagster's table; the text "none" if there are none."""
    if not rows:
        return dg.MetadataValue.text("none")
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows[:MAX_ROWS]])


def describe_batch(
    done: "CommittedBatch", incarnation: str, seen: "BatchSample", columns: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """Return the metadata of a batch for the three assets.

    Args:
        done: the batch; an earlier run committed a healed one.
        incarnation: the owner.
        seen: the sample of the batch.
        columns: the columns of the table, name -> type; empty if they were reported before.
    """
    healed = {keys.HEALED: True} if done.healed else {}
    return (
        describe_owner(incarnation, done.token, done.epoch),
        {
            keys.ROWS: done.rows,
            keys.BAD_ROWS: done.bad_rows,
            keys.OFFSETS: f"[{done.start}, {done.end})",
            **_describe_sample(seen),
            **({keys.ROW_COUNT: seen.count} if seen.count is not None else {}),
            keys.SECONDS: round(float(done.seconds), 3),
            keys.TABLE_VERSION: done.table_version,
            keys.TOKEN: done.token,
            keys.WORKER: worker_of(incarnation),
            **(
                {keys.HEALED: True, keys.COMMITTED_BY: dg.MetadataValue.dagster_run(done.run_id)} if done.healed else {}
            ),
            **({keys.SCHEMA: make_schema(columns)} if columns else {}),
        },
        {
            keys.OFFSET: done.end,
            **({keys.LAST_READ: _show_place(seen.sources[-1])} if seen.sources else {}),
            keys.LAG: done.lag,
            keys.ROWS: done.rows,
            keys.TOKEN: done.token,
            keys.EPOCH: done.epoch,
            **healed,
        },
    )


def make_schema(columns: Mapping[str, str]) -> dg.TableSchema:
    """Return columns (name -> type) as Dagster's page lists them."""
    return dg.TableSchema([dg.TableColumn(printable(name), kind) for name, kind in columns.items()])


def describe_idle(
    at: "IdlePartition", incarnation: str, last: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the metadata of a partition without new records, for the three assets, with the numbers of the `last` batch."""
    owner = describe_owner(incarnation, at.token, at.epoch)
    _, records, checkpoint = last
    return (
        owner,
        {keys.ROWS: 0, keys.TOKEN: at.token, keys.WORKER: worker_of(incarnation), **records, keys.NOTHING_NEW: True},
        {keys.ROWS: 0, **checkpoint, keys.OFFSET: at.offset, keys.LAG: 0, keys.TOKEN: at.token, keys.EPOCH: at.epoch},
    )


def describe_replay(
    done: "ReplayedRange", own: "OwnView | None", offset: str, seen: "BatchSample"
) -> Sequence[Mapping[str, Any]]:
    """Return the metadata of a replay for the three assets. The owner and the offset did not change."""
    what = {keys.REPLAYED: f"[{done.start}, {done.end})"}
    return (
        {keys.INCARNATION: (own and own.incarnation) or "none", keys.TOKEN: own.token if own else 0, **what},
        {
            **what,
            keys.ROWS: done.rows,
            keys.BAD_ROWS: done.bad_rows,
            **_describe_sample(seen),
            keys.SECONDS: round(float(done.seconds), 3),
            keys.TABLE_VERSION: done.table_version,
        },
        {keys.OFFSET: int(offset), **what},
    )


def describe_maintenance(done: "Maintained") -> dict[str, int]:
    """Return the metadata of a maintenance of both tables."""
    both = (done.main, done.quarantine)
    return {
        keys.MERGED: sum(one.before for one in both),
        keys.MERGED_INTO: sum(one.after for one in both),
        keys.BYTES_WRITTEN: sum(one.bytes for one in both),
        keys.FILES_LEFT: sum(one.left for one in both),
        keys.BYTES_LEFT: sum(one.left_bytes for one in both),
        keys.COMMITS_PACKED: done.packed,
        keys.VACUUMED: done.vacuumed,
        keys.TIDIED: done.tidied,
    }


def _describe_sample(seen: "BatchSample") -> Mapping[str, Any]:
    """Return where the records came from, and the first rows, as far as they are known."""
    rows = render(seen.rows)
    return {
        **({keys.READ_FROM: " to ".join(map(_show_place, seen.sources))} if seen.sources else {}),
        **({keys.FIRST_ROWS: dg.MetadataValue.md(rows)} if rows else {}),
    }


def _show_place(place: str) -> str:
    return printable(mask(place))[-PLACE:]


def describe_owner(incarnation: str, token: int, epoch: int) -> Mapping[str, Any]:
    return {keys.WORKER: worker_of(incarnation), keys.INCARNATION: incarnation, keys.TOKEN: token, keys.EPOCH: epoch}
