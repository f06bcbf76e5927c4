"""`rota drain <worker>`: a worker hands over everything."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened
from rota.ids import worker_of


@click.command("drain")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """WORKER hands over everything and gets nothing new, until `rota uncordon`."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.drain(tree, worker)
        left = sum(1 for own in tree.owned().values() if worker_of(own.incarnation or "") == worker)
    view.done(f"{worker} drains {left} partitions. See `rota status --watch`; `rota uncordon {worker}` takes it back")
