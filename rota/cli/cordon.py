"""`rota cordon`: a worker gets no new partitions."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group


@click.command("cordon")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """Give WORKER no new partitions.

    It keeps those that it has, and gets new ones after `rota uncordon`.
    """
    from rota.coordination import overrides

    with open_group(group) as tree:
        overrides.cordon(tree, worker)
    view.print_line(
        f"{worker} is cordoned: it keeps its partitions and gets no new ones until `rota uncordon {worker}`"
    )
