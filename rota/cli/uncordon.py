"""`rota uncordon <worker>`: a worker takes part again."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened


@click.command("uncordon")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """WORKER takes part again: neither cordoned nor draining."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.uncordon(tree, worker)
    view.done(f"{worker} takes part again")
