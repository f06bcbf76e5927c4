"""`rota retry`: partitions that wait for a person are tried again now."""

import getpass
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened
from rota.errors import ConfigError, RotaError
from rota.settings import known

if TYPE_CHECKING:
    from rota.coordination.tree import Tree
    from rota.dataplane.ports import Ports
    from rota.pipeline import Pipeline

GIVE = "Give partitions, or --pipeline and a pipeline's name. For example: rota retry flights:UA"


@click.command("retry")
@click.argument("partitions", nargs=-1)
@click.option("--pipeline", metavar="NAME", help="All of this pipeline's that wait.")
@group_option
def command(partitions: tuple[str, ...], pipeline: str | None, group: str) -> None:
    """Tries the parked PARTITIONS again at the next look, from the same offset.

    A file that changed before it was consumed is taken as it is now. An own record or a checkpoint of theirs that cannot be
    read is let go of: the next owner gets a new token, and the table says how far it is. Without PARTITIONS, the group's own
    records that cannot be read begin anew.
    """
    from rota.coordination import mending
    from rota.retry import retry

    if partitions and pipeline is not None:
        raise ConfigError(GIVE)
    with opened(group) as tree:
        if not partitions and pipeline is None:
            if not (made := mending.begin_anew(tree)):
                raise ConfigError(f"Every record of group {group!r} that begins anew can be read. {GIVE}")
            view.done(f"Begun anew: {', '.join(made)}. See `rota check`")
            return
        ids = tree.ids()
        if pipeline is not None:
            known("pipeline", pipeline, set(ids.values()))
            partitions = tuple(p for p, name in ids.items() if name == pipeline)
        for partition in set(partitions) - ids.keys():
            known("parked partition", partition, tree.store.children(tree.paths.parked))
        waiting = mending.stuck(tree, partitions)
        pipelines, left = _declared(tree.group) if waiting else {}, []
        for partition in partitions:
            if partition in waiting:
                try:
                    ports = _open(tree, pipelines.get(ids.get(partition, "")))
                    taken = retry(tree, partition, ports, getpass.getuser())
                except ConfigError as error:
                    left.append(str(error))
                    continue
                anew = f" {', '.join(taken)} is taken as it is now." if taken else ""
                view.done(f"{partition} is tried again;{anew} {waiting[partition]}")
            elif pipeline is None:
                view.done(f"{partition} is not parked: it goes on by itself. See `rota why {partition}`")
    if left:
        raise ConfigError(" ".join(left))
    if pipeline is not None:
        view.done(f"{len(waiting)} of {len(partitions)} partitions of {pipeline} are tried again")


def _open(tree: "Tree", pipeline: "Pipeline | None") -> "Ports | None":
    """The ports of the pipeline; None where its file is not to be had here, or the group's record cannot be read. Raises
    ConfigError."""
    from rota.registry import open_ports

    try:
        return open_ports(pipeline, tree.group, tree.meta().id) if pipeline else None
    except ConfigError:
        raise
    except RotaError:
        return None  # the run that goes on says what is wrong


def _declared(group: str) -> "Mapping[str, Pipeline]":
    """The group's pipelines by name; none where their files are not to be had here."""
    try:
        return {p.name: p for p in catalog().of_group(group)}
    except ConfigError:
        return {}
