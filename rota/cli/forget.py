"""`rota forget`: removes a worker, a pipeline or partitions that do not come back from a group."""

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog, open_group
from rota.errors import ConfigError, counted

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

OBSERVED_FOR = 25.0  # seconds: longer than any tick of a sensor that still has the file
TIMES = 3


@click.command("forget")
@click.argument("names", nargs=-1, metavar="[WORKER | PARTITION...]")
@click.option("--pipeline", metavar="NAME", help="Forget all partitions of this pipeline.")
@group_option
def command(names: tuple[str, ...], pipeline: str | None, group: str) -> None:
    """Forget a worker, a pipeline or partitions.

    A WORKER that does not come back, PARTITIONs whose folders were removed, or with --pipeline all partitions of a pipeline
    whose file was removed or names another group. Tables, offsets and tokens stay: a partition that comes back continues at
    its offset.
    """
    from rota.coordination.forget import forget_partitions, forget_worker

    if bool(names) == (pipeline is not None):
        raise ConfigError("Give a worker, partitions, or --pipeline and a pipeline's name")
    if pipeline is not None:
        _check_undeclared(pipeline, group)
    with open_group(group) as tree:
        if pipeline is not None:
            gone = _forget_for_good(tree, pipeline)
            view.print_line(
                f"{counted(len(gone), 'partition')} of {pipeline} left group {group}; its workers release them. The assets "
                "stay in Dagster's catalog until they are wiped there"
            )
        elif any(name in (ids := tree.ids()) for name in names):
            _check_vanished(names, ids, group)
            forget_partitions(tree, names)
            view.print_line(f"{counted(len(set(names)), 'partition')} left group {group}; its workers release them")
        else:
            for worker in names:
                forget_worker(tree, worker)
                view.print_line(f"{worker} is forgotten")


def _check_vanished(partitions: Collection[str], ids: Mapping[str, str], group: str) -> None:
    """Raise ConfigError if one of the partitions is, or may be, in its pipeline's source."""
    from rota.registry import open_source

    found = load_catalog()
    for name in sorted({ids[p] for p in partitions if p in ids}):
        if f"{name}.py" in found.refused:
            raise ConfigError(
                f"{name}.py cannot be loaded, so its source cannot be listed. Correct or remove the file first"
            )
        declared = [one for one in found.of_group(group) if one.name == name]
        here = {one.partition(key) for one in declared for key in open_source(one).list_keys()}
        if still := here.intersection(partitions):
            raise ConfigError(f"{min(still)} is still in the source of {name}. Remove its folder first, then forget it")


def _forget_for_good(tree: "GroupState", pipeline: str) -> tuple[str, ...]:
    """Forget the pipeline and return its partitions.

    A sensor tick that began while the pipeline's file existed adds them again. So the call waits until such a tick must
    have ended, and forgets them again. Raises ConfigError if a sensor keeps adding them.
    """
    from rota.coordination.forget import forget_pipeline

    gone = forget_pipeline(tree, pipeline)
    progress = view.Progress()
    with progress.show_spinner():
        for _ in range(TIMES):
            until = time.monotonic() + OBSERVED_FOR
            while pipeline not in tree.pipelines():
                if (left := until - time.monotonic()) <= 0:
                    return gone
                progress.show_step(f"waiting {left:.0f} s for sensor ticks that began while {pipeline}.py existed")
                time.sleep(min(0.5, left))
            forget_pipeline(tree, pipeline)
    raise ConfigError(
        f"A code location still declares {pipeline!r} and adds its partitions again: reload the code location on "
        f"Dagster's page, then run the command again"
    )


def _check_undeclared(pipeline: str, group: str) -> None:
    """Raise ConfigError if a pipeline file declares, or may declare, the pipeline for this group."""
    found = load_catalog()
    if any(one.name == pipeline for one in found.of_group(group)) or f"{pipeline}.py" in found.refused:
        raise ConfigError(f"{pipeline}.py is still in the folder of pipelines. Remove it or change its group first")
