"""`rota skip`: a partition continues after offsets that cannot be consumed."""

import getpass

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog, open_group
from rota.settings import check_known


@click.command("skip")
@click.argument("partition")
@click.option(
    "--to",
    type=click.IntRange(min=1),
    help="The next offset to consume. Default: after the offset, or the hole, for which it is parked.",
)
@group_option
def command(partition: str, to: int | None, group: str) -> None:
    """Skip offsets of PARTITION that cannot be consumed.

    Their records are lost; the table's log names the user of the command.
    """
    from rota.people.skip import skip
    from rota.registry import open_ports

    with open_group(group) as tree:
        ids = tree.ids()
        pipeline = ids[check_known("partition", partition, ids)]
        pipelines = {p.name: p for p in load_catalog().of_group(group)}
        ports = open_ports(pipelines[check_known("pipeline", pipeline, pipelines)], tree.group, tree.meta().id)
        with view.show_wait("reading the source, and writing to the table"):
            start, end = skip(tree, ports, partition, to, getpass.getuser())
    view.print_line(f"{partition}: offsets {start} to {end - 1} are skipped; it continues at {end}")
