"""`rota status`: the workers of a group, its partitions, and what of it needs a person."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.cli.recent import Recent, RecentReader
from rota.errors import Unavailable
from rota.ids import pipeline_of, quote, worker_of
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

PAUSE = 1.0  # seconds between two looks of `--watch`


@click.command("status")
@group_option
@json_option
@click.option("--pipeline", help="Show the partitions of this pipeline only.")
@click.option("--worker", help="Show this worker and the partitions that it has or is to get.")
@click.option("--trouble", is_flag=True, help="Show the partitions with trouble only.")
@click.option("--watch", is_flag=True, help="Draw again each second, until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit with 1 if something that is shown needs a person.")
def command(
    group: str, as_json: bool, pipeline: str | None, worker: str | None, trouble: bool, watch: bool, check: bool
) -> None:
    """Show the workers and partitions of a group.

    Of a partition: its owner, token, offset and lag, how many of its rows are in the quarantine (of the table's newest 500
    commits), its pin, why it is parked, and what a person has to do.
    """
    from rota.coordination import overrides

    with open_group(group) as tree:
        reader = RecentReader()

        def read() -> dict[str, Any]:
            return _choose(read_status(tree, reader.read(tree)), pipeline, worker, trouble)

        with view.show_wait("reading the group, its sources and its tables"):
            if pipeline is not None:
                check_known("pipeline", pipeline, tree.pipelines())
            if worker is not None:
                check_known("worker", worker, overrides.workers(tree))
            now = read()
        if watch:
            _watch(now, read, as_json)
            return
    view.print_document(now) if as_json else view.console.print(_draw(now), soft_wrap=False)
    if check and (now["needs"] or any(p["needs"] for p in now["partitions"])):
        sys.exit(1)


def _watch(now: dict[str, Any], read: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Shows a look, and each that follows: in place on a terminal, else whenever something changed."""
    last: object = None
    in_place = view.console.is_terminal and not as_json
    with Live(console=view.console, auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            if live is not None:
                live.update(draw_watched(now, view.console.height), refresh=True)
            elif now != last:
                view.print_document(now) if as_json else view.console.print(_draw(now))
            last = now
            time.sleep(PAUSE)
            try:
                now = read()
            except Unavailable as error:
                now = {"error": str(error)}


def read_status(tree: "GroupState", recent: Recent) -> dict[str, Any]:
    """The group as JSON values; see docs/protocol.md. What a source or a table says is null if it cannot be read here."""
    from rota.coordination.parking import explain_unreadable

    owned = tree.owned()  # own records before live nodes: see GroupState
    live = tree.newest(tree.live())
    head, targets = tree.targets()
    epochs = tree.epochs(last=1)
    checkpoints, parked, overrides = tree.checkpoints(), tree.parked(), tree.worker_overrides()
    group = tree.overrides()
    holders = {p: own.incarnation for p, own in owned.items()}
    wanted = {p: worker for worker, target in targets.items() for p in target.partitions}
    runs = tuple(tree.working().values())
    owned_now = {p for p, holder in holders.items() if holder}  # also what was forgotten, until it is let go
    ids = sorted(tree.ids().keys() | owned_now)
    partitions: list[dict[str, Any]] = [
        {
            "id": p,
            "owner": worker_of(holder) if (holder := holders.get(p)) else None,
            "incarnation": holders.get(p),
            "target": wanted.get(p),
            "pinned": group.pins.get(p),
            "token": owned[p].token if p in owned else None,
            "offset": checkpoints[p].record.offset if p in checkpoints else None,
            "lag": recent.lags.get(p),
            "rows": checkpoints[p].record.rows if p in checkpoints else None,
            "quarantined": recent.quarantined.get(p),
            "parked": view.describe_park(parked[p].record) if p in parked else None,
            "retried_at": parked[p].record.retry_at if p in parked else None,
            "rewritten": recent.rewritten.get(p),
        }
        for p in ids
    ]
    return {
        "group": tree.group,
        "epoch": head.record.epoch,
        "sentence": epochs[-1].sentence if epochs else "",
        "paused": group.paused,
        "needs": ["no worker is live: start one with `rota worker`"] if ids and not live else [],
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
            {**one, "needs": "; ".join(list_needs(one, live, explain_unreadable(tree, one["id"])))}
            for one in partitions
        ],
        "unreadable": dict(tree.unreadable),
    }


def list_needs(one: Mapping[str, Any], live: Mapping[str, object], unreadable: str) -> Iterator[str]:
    """What a person has to do about a partition. What heals by itself is not in it: lag, a park with a time at which it is
    tried again, an owner that is gone while its target is live."""
    name = quote(one["id"])
    if one["parked"] and one["retried_at"] is None:
        yield f"it is parked: mend what it says, then `rota retry {name}`"
    if one["rewritten"]:
        yield f"a file changed after it was consumed: `rota replay {name} --changed`"
    if one["pinned"] and one["pinned"] not in live:
        yield f"it is pinned to {one['pinned']}, which is not live: start that, or `rota pin {name} --clear`"
    elif live and not one["owner"] and not one["target"]:
        yield "no live worker may hold it: look at labels and caps"
    if unreadable:
        yield unreadable


def _choose(now: dict[str, Any], pipeline: str | None, worker: str | None, trouble: bool) -> dict[str, Any]:
    """The part of a group that was asked for."""
    partitions = [
        p
        for p in now["partitions"]
        if (pipeline is None or pipeline_of(p["id"]) == pipeline)
        and (worker is None or worker in (p["owner"], p["target"]))
        and (not trouble or p["needs"] or p["parked"] or p["quarantined"] or not p["owner"])
    ]
    workers = [w for w in now["workers"] if worker in (None, w["id"])]
    return {**now, "workers": workers, "partitions": partitions}


def _describe_state(worker: str, one: Any, overrides: Mapping[str, Any]) -> str:
    if one.record and one.record.leaving:
        return "leaving"
    override = overrides[worker].record if worker in overrides else None
    if override and (override.draining or override.cordoned):
        return "draining" if override.draining else "cordoned"
    return "active"


def draw_watched(now: Mapping[str, Any], height: int) -> RenderableType:
    """As much as there is room for: what needs a person comes first."""
    if "error" in now:
        return _draw(now)
    room = max(1, height - len(now["workers"]) - len(now["needs"]) - len(now["unreadable"]) - 8)
    first = sorted(now["partitions"], key=lambda p: not p["needs"])
    left = len(first) - room
    if left <= 0:
        return _draw({**now, "partitions": first})
    more = Text(f"{left} more. --trouble, --pipeline and --worker show fewer", "dim")
    return Group(_draw({**now, "partitions": first[:room]}), more)


def _draw(now: Mapping[str, Any]) -> RenderableType:
    if "error" in now:
        return Text(now["error"], "red")
    total = max((w["owned"] for w in now["workers"]), default=0) or 1
    workers = view.make_table(
        "",
        ["worker", "state", "owns", "of", "runs", "", "endpoint"],
        [
            (w["id"], w["state"], w["owned"], w["target"], w["runs"], view.draw_bar(w["owned"] / total), w["endpoint"])
            for w in now["workers"]
        ],
        right=["owns", "of", "runs"],
    )
    partitions = view.make_table(
        "",
        ["partition", "owner", "target", "token", "offset", "lag", "bad rows", "note"],
        [
            (p["id"], p["owner"], p["target"], p["token"], p["offset"], p["lag"], p["quarantined"] or None, _note(p))
            for p in now["partitions"]
        ],
        right=["token", "offset", "lag", "bad rows"],
    )
    first = f"Group {now['group']}, epoch {now['epoch']}{', paused' if now['paused'] else ''}. "
    red = [
        Text(line, "red") for line in (*now["needs"], *(f"{path}: {why}" for path, why in now["unreadable"].items()))
    ]
    return Group("", Text(first + (now["sentence"] or "Nothing was assigned yet.")), "", workers, "", partitions, *red)


def _note(one: Mapping[str, Any]) -> str:
    pinned = f"pinned to {one['pinned']}" if one["pinned"] else ""
    return "; ".join(part for part in (one["parked"], "" if pinned in one["needs"] else pinned, one["needs"]) if part)
