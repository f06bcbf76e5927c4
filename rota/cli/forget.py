"""`rota forget <worker>`: nothing is kept about a worker that is gone for good."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened


@click.command("forget")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """Removes what is kept about WORKER, which is gone for good."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.forget(tree, worker)
    view.done(f"Nothing is kept about {worker} any more")
