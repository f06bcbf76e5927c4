"""`rota retry`: retries parked partitions."""

import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog, open_group
from rota.errors import ConfigError, RotaError, counted
from rota.ids import quote
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.dataplane.ports import Ports
    from rota.pipeline import Pipeline

USAGE = "Give partitions, or --pipeline and a pipeline's name. For example: rota retry flights:UA"


@click.command("retry")
@click.argument("partitions", nargs=-1)
@click.option("--pipeline", metavar="NAME", help="All parked partitions of this pipeline.")
@group_option
def command(partitions: tuple[str, ...], pipeline: str | None, group: str) -> None:
    """Try parked PARTITIONS again, from the offset where they stopped.

    A file that changed before it was consumed is read as it is now.
    """
    from rota.coordination.parking import explain_unreadable
    from rota.people.retry import retry

    if bool(partitions) == (pipeline is not None):
        raise ConfigError(USAGE)
    with open_group(group) as tree:
        ids = tree.ids()
        if pipeline is not None:
            check_known("pipeline", pipeline, set(ids.values()))
            partitions = tuple(p for p, name in ids.items() if name == pipeline)
        for partition in set(partitions) - ids.keys():
            check_known("partition", partition, {*ids, *tree.store.children(tree.paths.parked)})
        parked = tree.parked()
        tree.owned(partitions)
        tree.checkpoints(partitions)
        waiting = [p for p in partitions if p in parked]
        pipelines, left = _load_pipelines(tree.group) if waiting else {}, []
        for partition in partitions:
            if partition in parked:
                try:
                    ports = _open(tree, pipelines.get(ids.get(partition, "")))
                    taken = retry(tree, partition, ports, getpass.getuser())
                except ConfigError as error:
                    left.append(str(error))
                    continue
                changed = f"{', '.join(taken)} is read as it is now. " if taken else ""
                view.print_line(
                    f"{partition} is tried again. {changed}It was parked: {parked[partition].record.reason}"
                )
            elif pipeline is None and not explain_unreadable(tree, partition):
                view.print_line(f"{partition} is not parked: it needs no retry. See `rota why {quote(partition)}`")
            if why := explain_unreadable(tree, partition):
                left.append(f"{partition} waits: {why}")
    if left:
        raise ConfigError(" ".join(left))
    if pipeline is not None:
        view.print_line(f"{len(waiting)} of {counted(len(partitions), 'partition')} of {pipeline} to be tried again")


def _open(tree: "GroupState", pipeline: "Pipeline | None") -> "Ports | None":
    """Return the ports of the pipeline; None if its file is not here, or the group's record cannot be read. Raises
    ConfigError.
    """
    from rota.registry import open_ports

    try:
        return open_ports(pipeline, tree.group, tree.meta().id) if pipeline else None
    except ConfigError:
        raise
    except RotaError:
        return None  # the next run reports what is wrong


def _load_pipelines(group: str) -> "Mapping[str, Pipeline]":
    """Return the group's pipelines by name; empty if their files cannot be loaded here."""
    try:
        return {p.name: p for p in load_catalog().of_group(group)}
    except ConfigError:
        return {}
