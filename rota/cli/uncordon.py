"""`rota uncordon`: a worker gets partitions again."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group


@click.command("uncordon")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """Give WORKER partitions again: end its cordon or drain."""
    from rota.coordination import overrides

    with open_group(group) as tree:
        overrides.uncordon(tree, worker)
    view.print_line(f"{worker} gets partitions again")
