"""`rota status`: the workers of a group and its partitions."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group, read_lags
from rota.ids import worker_of

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


@click.command("status")
@group_option
@json_option
@click.option("--watch", is_flag=True, help="Print again after each change, until Ctrl-C.")
def command(group: str, as_json: bool, watch: bool) -> None:
    """Show the workers and partitions of a group.

    Of a partition: its owner, token, offset, lag, and why it is parked.
    """
    with open_group(group) as tree:
        last: Mapping[str, Any] = {}
        while True:
            now = read_status(tree)
            if now != last:
                view.print_document(now) if as_json else _print_status(now)
                last = now
            if not watch:
                return
            time.sleep(1)


def read_status(tree: "GroupState") -> dict[str, Any]:
    """The group as JSON values; see docs/protocol.md. `lag` is null if the source cannot be read here."""
    owned = tree.owned()  # own records before live nodes: see GroupState
    live = tree.newest(tree.live())
    head, targets = tree.targets()
    epochs = tree.epochs(last=1)
    checkpoints, parked, overrides = tree.checkpoints(), tree.parked(), tree.worker_overrides()
    holders = {p: own.incarnation for p, own in owned.items()}
    wanted = {p: worker for worker, target in targets.items() for p in target.partitions}
    behind = read_lags(tree)
    runs = tuple(tree.working().values())
    owned_now = {p for p, holder in holders.items() if holder}  # also what was forgotten, until it is let go
    ids = sorted(tree.ids().keys() | owned_now)
    return {
        "group": tree.group,
        "epoch": head.record.epoch,
        "sentence": epochs[-1].sentence if epochs else "",
        "paused": tree.overrides().paused,
        "workers": [
            {
                "id": worker,
                "incarnation": one.incarnation,
                "state": _describe_state(worker, one, overrides),
                "endpoint": one.record.endpoint if one.record else None,
                "capacity": one.record.capacity if one.record else None,
                "target": len(targets[worker].partitions) if worker in targets else 0,
                "owned": sum(1 for holder in holders.values() if holder == one.incarnation),
                "runs": runs.count(one.incarnation),
                "usage": dict(one.record.usage or {}) if one.record else {},
            }
            for worker, one in sorted(live.items())
        ],
        "partitions": [
            {
                "id": p,
                "owner": worker_of(holder) if (holder := holders.get(p)) else None,
                "incarnation": holders.get(p),
                "target": wanted.get(p),
                "token": owned[p].token if p in owned else None,
                "offset": checkpoints[p].record.offset if p in checkpoints else None,
                "lag": behind.get(p),
                "rows": checkpoints[p].record.rows if p in checkpoints else None,
                "parked": view.describe_park(parked[p].record) if p in parked else None,
            }
            for p in ids
        ],
        "unreadable": dict(tree.unreadable),
    }


def _describe_state(worker: str, one: Any, overrides: Mapping[str, Any]) -> str:
    if one.record and one.record.leaving:
        return "leaving"
    override = overrides[worker].record if worker in overrides else None
    if override and (override.draining or override.cordoned):
        return "draining" if override.draining else "cordoned"
    return "active"


def _print_status(now: Mapping[str, Any]) -> None:
    total = max((w["owned"] for w in now["workers"]), default=0) or 1
    view.print_parts(
        "",
        f"Group {now['group']}, epoch {now['epoch']}{', paused' if now['paused'] else ''}. "
        f"{now['sentence'] or 'Nothing was assigned yet.'}",
        "",
        view.make_table(
            "",
            ["worker", "state", "owns", "of", "runs", "", "endpoint"],
            [
                (
                    w["id"],
                    w["state"],
                    w["owned"],
                    w["target"],
                    w["runs"],
                    view.draw_bar(w["owned"] / total),
                    w["endpoint"],
                )
                for w in now["workers"]
            ],
            right=["owns", "of", "runs"],
        ),
        "",
        view.make_table(
            "",
            ["partition", "owner", "target", "token", "offset", "lag", "note"],
            [
                (
                    p["id"],
                    p["owner"],
                    p["target"],
                    p["token"],
                    p["offset"],
                    p["lag"],
                    p["parked"],
                )
                for p in now["partitions"]
            ],
            right=["token", "offset", "lag"],
        ),
    )
    for path, why in now["unreadable"].items():
        click.secho(f"{path}: {why}", fg="red")
