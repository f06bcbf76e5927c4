"""`rota history`: the epochs of a group with their moves and reasons; `--png` writes the picture."""

from pathlib import Path

import click

from rota.cli import view
from rota.cli.group import group_option, json_option


@click.command("history")
@group_option
@json_option
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture to this file.")
@click.option("--last", default=20, show_default=True, type=click.IntRange(1, 200), help="Epochs to show.")
def command(group: str, as_json: bool, png: Path | None, last: int) -> None:
    """Show which partitions moved when and why.

    The last epochs, and the writes that were refused.
    """
    from dataclasses import asdict, replace

    from rota.cli.group import open_group
    from rota.history import draw_story, read_story_with_commits

    with open_group(group) as tree:
        story = read_story_with_commits(tree)
    if png:
        png.write_bytes(draw_story(story))
    if as_json:
        epochs = [
            {**asdict(replace(e, moves=())), "moves": [m.to_dict() for m in e.moves]} for e in story.epochs[-last:]
        ]
        writes = [{"at": t.at, "partition": t.partition, "run_id": t.run_id} for t in story.refused]
        view.print_document({"group": group, "epochs": epochs, "commits": len(story.commits), "refused": writes})
        return
    rows = [
        (e.epoch, view.format_time(e.at), e.measures.get("moves"), e.measures.get("unavoidable_moves"),
         e.measures.get("placements"), e.measures.get("imbalance_after"),
         e.sentence)
        for e in story.epochs[-last:]
    ]  # fmt: skip
    view.print_parts("", view.make_table("", ["epoch", "at", "moves", "had to", "placed", "imbalance", "what"], rows,
                             right=["epoch", "moves", "had to", "placed", "imbalance"]), "")  # fmt: skip
    for refused in story.refused[-last:]:
        view.print_parts(
            f"{view.format_time(refused.at)}  refused: a write of {refused.partition} by run {refused.run_id}"
        )
    if png:
        view.print_parts(f"Picture: {png}")
