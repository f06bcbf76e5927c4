"""`rota status`: the workers of a group, its partitions, and its needs."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.errors import RotaError, Unavailable, counted
from rota.ids import pipeline_of, worker_of
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.cli.observer import Findings
    from rota.coordination.group_state import GroupState

REFRESH_INTERVAL = 1.0  # seconds between two observations of `--watch`
MAX_ROWS, MAX_WORKERS = 200, 50  # partitions and workers that are printed; --json has all
MAX_NEEDS = 20  # causes that are printed; --json has all
COUNTED = ("lag", "quarantined")  # columns that are summed over the partitions of a pipeline


@click.command("status")
@group_option
@json_option
@click.option("--pipeline", help="Show the partitions of this pipeline only.")
@click.option("--worker", help="Show this worker, and the partitions that it owns or has in its target.")
@click.option("--trouble", is_flag=True, help="Show the partitions with trouble only.")
@click.option("--watch", is_flag=True, help="Refresh each second, until Ctrl-C.")
@click.option("--check", is_flag=True, help="Exit with 1 if a shown need needs an operator.")
def command(
    group: str, as_json: bool, pipeline: str | None, worker: str | None, trouble: bool, watch: bool, check: bool
) -> None:
    """Show the workers and partitions of a group, and what needs an operator.

    Of a partition: its owner, token, offset and lag, how many of its rows are in the quarantine (of the table's newest 500
    commits), its pin, and why it is parked. --check waits up to 100 s for needs that may heal.
    """
    try:
        with open_group(group) as tree:
            _show(tree, as_json, pipeline, worker, trouble, watch, check)
    except RotaError as error:
        if not check or "unknown" in error.facts:
            raise
        view.print_error(str(error))  # a group that cannot be read is itself a need
        sys.exit(1)


def _show(
    tree: "GroupState",
    as_json: bool,
    pipeline: str | None,
    worker: str | None,
    trouble: bool,
    watch: bool,
    check: bool,
) -> None:
    from rota.cli.observer import GroupObserver, concerns
    from rota.coordination import overrides

    observer = GroupObserver(tree)

    def read() -> dict[str, Any]:
        found = observer.observe_until_sure(lambda need: concerns(need, pipeline)) if check else observer.observe()
        return _choose(read_status(tree, found), pipeline, worker, trouble)

    with view.show_wait("reading the group, its sources and its tables"):
        if pipeline is not None:
            check_known("pipeline", pipeline, tree.pipelines())
        if worker is not None:
            check_known("worker", worker, overrides.workers(tree))
        now = read()
    if watch:
        _watch(now, read, as_json)
        return
    view.print_document(now) if as_json else view.console.print(draw_fitting(now), soft_wrap=False)
    if check and any(need["person"] for need in now["needs"]):
        sys.exit(1)


def _watch(now: dict[str, Any], read: Callable[[], dict[str, Any]], as_json: bool) -> None:
    """Print an observation, and the next ones: in place on a terminal, else each that differs from the last."""
    last: object = None
    in_place = view.console.is_terminal and not as_json
    with Live(console=view.console, auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            if live is not None:
                live.update(draw_fitting(now, view.console.height), refresh=True)
            elif now != last:
                view.print_document(now) if as_json else view.console.print(draw_fitting(now))
            last = now
            time.sleep(REFRESH_INTERVAL)
            try:
                now = read()
            except Unavailable as error:
                now = {"error": str(error)}


def read_status(tree: "GroupState", found: "Findings") -> dict[str, Any]:
    """Return the group as JSON values; see docs/protocol.md. Values of a source or table that cannot be read are null."""
    from rota.face.states import describe_worker

    seen, facts = found.seen, found.seen.facts
    here = {worker.id for worker in seen.workers}
    epochs = tree.epochs(last=1)
    wanted = {p: w for w in sorted(facts.targets, key=lambda w: w in here) for p in facts.targets[w]}
    holders = {
        p: own.incarnation for p, own in tree.owned().items()
    }  # also of a forgotten partition, until its owner releases it
    runs = [run.incarnation for run in facts.runs]
    ends, rewritten = found.ends, found.rewritten
    sentences: dict[str, list[str]] = {}
    for need in found.needs:
        if need.kind == "partition" and need.person:
            sentences.setdefault(need.name, []).append(need.sentence)
    partitions = [
        {
            "id": p,
            "owner": worker_of(holder) if (holder := holders.get(p)) else None,
            "incarnation": holders.get(p),
            "target": wanted.get(p),
            "pinned": seen.pins.get(p),
            "token": facts.owns[p].token if p in facts.owns else None,
            "offset": facts.checkpoints[p].record.offset if p in facts.checkpoints else None,
            "lag": ends[p][1] - ends[p][0] if p in ends else None,
            "rows": facts.checkpoints[p].record.rows if p in facts.checkpoints else None,
            "quarantined": found.bad.get(p),
            "parked": view.describe_park(facts.parked[p]) if p in facts.parked else None,
            "retried_at": facts.parked[p].retry_at if p in facts.parked else None,
            "rewritten": rewritten.get(p),
            "needs": "; ".join(sentences.get(p, [])),
        }
        for p in sorted({*facts.partitions, *(p for p, holder in holders.items() if holder)})
    ]
    return {
        "group": tree.group,
        "epoch": facts.epoch,
        "sentence": epochs[-1].sentence if epochs else "",
        "paused": tree.overrides().paused,
        "needs": [need.describe() for need in found.needs],
        "workers": [
            {
                "id": worker.id,
                "incarnation": worker.incarnation,
                "state": describe_worker(worker, facts.lives.get(worker.incarnation or "")),
                "endpoint": record.endpoint if (record := facts.lives.get(worker.incarnation or "")) else None,
                "capacity": worker.capacity,
                "target": len(facts.targets.get(worker.id, ())),
                "owned": sum(1 for holder in holders.values() if holder == worker.incarnation),
                "runs": runs.count(str(worker.incarnation)),
                "usage": dict(worker.usage or {}),
            }
            for worker in (*seen.workers, *seen.starting)
        ],
        "partitions": partitions,
        "unreadable": dict(tree.unreadable),
    }


def _choose(now: dict[str, Any], pipeline: str | None, worker: str | None, trouble: bool) -> dict[str, Any]:
    """Return the part of a group that the options choose."""
    partitions = [
        p
        for p in now["partitions"]
        if (pipeline is None or pipeline_of(p["id"]) == pipeline)
        and (worker is None or worker in (p["owner"], p["target"]))
        and (not trouble or p["needs"] or p["parked"] or not p["owner"])
    ]
    workers = [w for w in now["workers"] if worker in (None, w["id"])]
    needs = [n for n in now["needs"] if _is_of(n, pipeline, worker, {p["id"] for p in partitions})]
    return {**now, "workers": workers, "partitions": partitions, "needs": needs}


def _is_of(need: Mapping[str, Any], pipeline: str | None, worker: str | None, shown: set[str]) -> bool:
    """Return whether the need is shown with only this pipeline or worker: its own needs, and those of the group."""
    if need["kind"] == "partition":
        return need["name"] in shown
    if need["kind"] == "pipeline":
        return pipeline in (None, need["name"])
    return need["kind"] != "worker" or worker in (None, need["name"])


def draw_fitting(now: Mapping[str, Any], height: int | None = None) -> RenderableType:
    """Draw as many partitions and workers as fit into `height` lines, those that need an operator first.

    If `height` is None and there are few, draw all in order of id.
    """
    if "error" in now:
        return _draw(now)
    busy = sorted(now["workers"], key=lambda w: -w["owned"])[:MAX_WORKERS]
    shown = now if len(busy) == len(now["workers"]) else {**now, "workers": busy}
    room = MAX_ROWS if height is None else max(1, height - len(busy) - len(now["needs"]) - 12)
    first = sorted(now["partitions"], key=lambda p: not p["needs"]) if height or len(now["partitions"]) > room else None
    shown = {**shown, "partitions": first[:room]} if first else shown
    left = {what: len(now[what]) - len(shown[what]) for what in ("partitions", "workers")}
    more = [f"{counted(left[what], what[:-1])} more" for what in left if left[what]]
    if not more:
        return _draw(shown)
    return Group(_draw(shown, now), Text(f"{' and '.join(more)}. --trouble, --pipeline and --worker show fewer", "dim"))


def _draw(now: Mapping[str, Any], whole: Mapping[str, Any] | None = None) -> RenderableType:
    """Draw the document. The totals count the partitions of `whole`, by default those of `now`."""
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
    notes: dict[str, list[str]] = {}
    for need in now["needs"]:
        if need["kind"] == "partition":
            notes.setdefault(need["name"], []).append(need["cause"])
    partitions = view.make_table(
        "",
        ["partition", "owner", "target", "token", "offset", "lag", "bad rows", "note"],
        [
            (
                p["id"], p["owner"], p["target"], p["token"], p["offset"], p["lag"], p["quarantined"] or None,
                ", ".join([*notes.get(p["id"], []), *([f"pinned to {p['pinned']}"] if p["pinned"] else [])]),
            )
            for p in now["partitions"]
        ],
        right=["token", "offset", "lag", "bad rows"],
    )  # fmt: skip
    first = f"Group {now['group']}, epoch {now['epoch']}{', paused' if now['paused'] else ''}. "
    headline = Text(first + (now["sentence"] or "Nothing was assigned yet."))
    totals = _draw_totals((whole or now)["partitions"])
    return Group("", headline, "", totals, "", workers, "", partitions, *_draw_needs(now["needs"]))


def _draw_totals(partitions: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Draw a line per pipeline."""
    of: dict[str, list[Mapping[str, Any]]] = {}
    for one in partitions:
        of.setdefault(pipeline_of(one["id"]), []).append(one)
    rows = [
        (name, len(all_), sum(1 for p in all_ if p["owner"]), *(sum(max(p[k] or 0, 0) for p in all_) for k in COUNTED))
        for name, all_ in of.items()
    ]
    columns = ["pipeline", "partitions", "owned", "lag", "bad rows"]
    return view.make_table("", columns, rows, right=columns[1:])


def _draw_needs(needs: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """Draw the needs of an operator, then those that may heal, then those that are retried automatically."""
    from rota.face.need import NEEDS_OPERATOR, Need, join_needs

    read = [Need.read(need) for need in needs]
    sections = (
        (f"{NEEDS_OPERATOR.capitalize()}:", "red", [need for need in read if need.person]),
        (f"{NEEDS_OPERATOR.capitalize()} if it lasts:", "dim", [n for n in read if not n.person and n.due < inf]),
        ("Is retried automatically:", "dim", [need for need in read if not need.person and need.due == inf]),
    )
    parts: list[RenderableType] = []
    for title, colour, mine in sections:
        if joined := join_needs(mine):
            parts += ["", Text(title, colour), *(Text(one.line, colour) for one in joined[:MAX_NEEDS])]
            parts += [Text(f"and {len(joined) - MAX_NEEDS} more; --json has all", colour)] if joined[MAX_NEEDS:] else []
        elif colour == "red":
            parts += ["", Text(f"Nothing {NEEDS_OPERATOR}.", "dim")]
    return parts
