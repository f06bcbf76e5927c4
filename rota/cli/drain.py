"""`rota drain`: a worker hands over all its partitions."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group
from rota.errors import counted
from rota.ids import worker_of


@click.command("drain")
@click.argument("worker")
@group_option
def command(worker: str, group: str) -> None:
    """Move all partitions of WORKER to other workers.

    It gets no new ones until `rota uncordon`.
    """
    from rota.coordination import overrides

    with open_group(group) as tree:
        overrides.drain(tree, worker)
        left = sum(1 for own in tree.owned().values() if worker_of(own.incarnation or "") == worker)
    drained = f"{worker} drains {counted(left, 'partition')}"
    view.print_line(f"{drained}. See `rota status --watch`; `rota uncordon {worker}` takes it back")
