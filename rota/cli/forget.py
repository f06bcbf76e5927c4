"""`rota forget`: nothing is kept about a worker that is gone for good, or a pipeline that was taken away."""

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened
from rota.errors import ConfigError


@click.command("forget")
@click.argument("worker", required=False)
@click.option("--pipeline", metavar="NAME", help="Forget this pipeline's partitions instead of a worker.")
@group_option
def command(worker: str | None, pipeline: str | None, group: str) -> None:
    """Removes what is kept about WORKER, which is gone for good.

    With --pipeline the group stops balancing the partitions of a pipeline whose file is gone or names another group. Its
    tables, offsets and tokens stay: should it come back, it goes on where it was.
    """
    from rota.coordination.forget import forget_pipeline, forget_worker

    if (worker is None) == (pipeline is None):
        raise ConfigError("Give a worker, or --pipeline and a pipeline's name")
    if pipeline is not None:
        _undeclared(pipeline, group)
    with opened(group) as tree:
        if pipeline is not None:
            gone = forget_pipeline(tree, pipeline)
            view.done(f"{len(gone)} partitions of {pipeline} are no longer in group {group}; the next epoch drops them")
        elif worker is not None:
            forget_worker(tree, worker)
            view.done(f"Nothing is kept about {worker} any more")


def _undeclared(pipeline: str, group: str) -> None:
    """Raises ConfigError while a file of the pipelines' folder declares it for this group, or might."""
    found = catalog()
    if any(one.name == pipeline for one in found.of_group(group)) or f"{pipeline}.py" in found.refused:
        raise ConfigError(f"{pipeline}.py is still in the folder of pipelines. Take it away or change its group first")
