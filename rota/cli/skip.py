"""`rota skip <partition>`: moves on past an offset that cannot be consumed; the table's log says who did."""

import getpass

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened
from rota.settings import known


@click.command("skip")
@click.argument("partition")
@click.option(
    "--to", type=click.IntRange(min=1), help="The offset to go on from; else the one behind what it is parked for."
)
@group_option
def command(partition: str, to: int | None, group: str) -> None:
    """Moves PARTITION on past what cannot be consumed; what was skipped is recorded in the table's log and is lost."""
    from rota.registry import open_ports
    from rota.skip import skip

    with opened(group) as tree:
        ids = tree.ids()
        pipeline = ids[known("partition", partition, ids)]
        pipelines = {p.name: p for p in catalog().of_group(group)}
        ports = open_ports(pipelines[known("pipeline", pipeline, pipelines)], tree.group, tree.meta().id)
        start, end = skip(tree, ports, partition, to, getpass.getuser())
    view.done(f"{partition}: offsets {start} to {end - 1} are skipped; it goes on from {end}")
