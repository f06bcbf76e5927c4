"""`rota cordon <worker>`: a worker gets nothing new."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened


@click.command("cordon")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """WORKER keeps what it holds and gets nothing new, until `rota uncordon`."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.cordon(tree, worker)
    view.done(f"{worker} is cordoned: it keeps what it holds. `rota uncordon {worker}` lets it take part again")
