"""`rota retry <partition>`: a parked partition is tried again now."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened
from rota.settings import known


@click.command("retry")
@click.argument("partition")
@group_option
def command(partition: str, group: str) -> None:
    """Tries the parked PARTITION again at the next look, from the same offset."""
    from rota.coordination import parking

    with opened(group) as tree:
        waiting = tree.store.children(tree.paths.parked)
        if partition in tree.ids().keys() - set(waiting):
            view.done(f"{partition} is not parked: it goes on by itself. See `rota why {partition}`")
            return
        known("parked partition", partition, waiting)
        parked = tree.parked().get(partition)
        parking.unpark(tree, partition)
    view.done(f"{partition} is tried again; it was parked: {parked.record.reason if parked else 'nobody can read why'}")
