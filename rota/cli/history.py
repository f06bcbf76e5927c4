"""`rota history`: what happened in a group, in order of time; `--png` writes the picture."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import check_place, group_option, json_option, load_catalog, open_group
from rota.errors import ConfigError, counted
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.face.history import Story, Tick
    from rota.pipeline import Pipeline

SHOWN = 4  # partitions that one line names


@click.command("history")
@click.argument("partition", required=False)
@group_option
@json_option
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture to this file.")
@click.option("--since", "time", help="Show what happened since this time, such as 2026-01-31T12:00 (local time).")
@click.option("--last", type=click.IntRange(1, 10_000), help="The newest events to show: 20, or 200 with --since.")
def command(
    partition: str | None, group: str, as_json: bool, png: Path | None, time: str | None, last: int | None
) -> None:
    """Show what happened: epochs with their moves, commits, refused writes.

    An epoch lists which partitions moved and why. A commit names its run and its rows. With PARTITION, only its events.
    """
    from rota.cli.past import parse_moment, read_epochs
    from rota.face.history import find_spans, keep_partition, keep_since, read_story_with_commits
    from rota.face.picture import draw_story

    check_place(png)
    with open_group(group) as tree, view.show_wait("reading the epochs and the tables' logs"):
        pipelines: tuple[Pipeline, ...] = ()
        with suppress(ConfigError):  # without the pipelines, only epochs are shown
            pipelines = load_catalog().of_group(group)
        since = None if time is None else parse_moment(tree, time)
        epochs, note = read_epochs(tree, lambda known: since is None or known[0].at <= since)
        story = read_story_with_commits(tree, pipelines, epochs)
        if partition is not None:
            check_known("partition", partition, {*tree.ids(), *find_spans(story)})  # one that left the group, too
            story = keep_partition(story, partition)
        if since is not None:
            story = keep_since(story, since)
        picture = draw_story(story) if png else b""
    if png:
        png.write_bytes(picture)
    most = last or (20 if since is None else 200)
    if as_json:
        view.print_document({**_format_story(story, most), "note": note})
        return
    events = sorted(_list_events(story, partition), key=lambda row: row[0])
    rows = events[-most:]
    view.print_parts(
        "", view.make_table("", ["at", "", "what"], [(view.format_time(at), *rest) for at, *rest in rows]), ""
    )
    if since is not None and len(events) > most:
        view.print_parts(f"{counted(len(events) - most, 'earlier event')} since then: --last {len(events)}")
    if note:
        view.print_parts(note)
    if png:
        view.print_parts(f"Picture: {png}")


def _list_events(story: "Story", partition: str | None) -> Iterator[tuple[float, str, str]]:
    """Yield the time, the kind and a line of each event; only those of `partition`, if it is given."""
    for epoch in story.epochs:
        if partition is None:
            yield epoch.at, "epoch", epoch.sentence
        for move in epoch.moves if partition is not None else ():
            yield (
                epoch.find_time(move),
                "epoch",
                f"Epoch {epoch.epoch}: {move.from_worker or '-'} -> {move.to_worker} ({move.reason})",
            )
        if partition in epoch.dropped:
            yield epoch.at, "epoch", f"Epoch {epoch.epoch}: it has no owner any more"
    batches: dict[tuple[float, str], list[Tick]] = {}
    for tick in story.commits:
        batches.setdefault((tick.at, tick.run_id), []).append(tick)
    for (at, run), ticks in batches.items():
        names = [tick.partition for tick in ticks]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        rows = counted(sum(t.rows for t in ticks), "row")
        yield at, "commit", f"{rows} of {', '.join(names[:SHOWN])}{more} by run {run}"
    for tick in story.refused:
        yield tick.at, "refused", f"a write of {tick.partition} by run {tick.run_id}"


def _format_story(story: "Story", last: int) -> dict[str, object]:
    """The story as JSON values; see docs/protocol.md."""
    epochs = [
        {
            **{name: value for name, value in e.dump_known().items() if name not in ("v", "term")},
            "moves": [{**m.dump_known(by_alias=True), "at": e.find_time(m)} for m in e.moves],
        }
        for e in story.epochs[-last:]
    ]
    commits, refused = ([asdict(tick) for tick in ticks[-last:]] for ticks in (story.commits, story.refused))
    for one in refused:
        del one["rows"]
    return {"group": story.group, "epochs": epochs, "commits": commits, "refused": refused}
