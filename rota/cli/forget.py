"""`rota forget`: nothing is kept about a worker that is gone for good, or a pipeline that was taken away."""

import time
from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.coordination.tree import Tree

LOOK = 25.0  # seconds: longer than any look of a sensor that was loaded while the file was still there
TIMES = 3


@click.command("forget")
@click.argument("worker", required=False)
@click.option("--pipeline", metavar="NAME", help="Forget this pipeline's partitions instead of a worker.")
@group_option
def command(worker: str | None, pipeline: str | None, group: str) -> None:
    """Removes what is kept about WORKER, which is gone for good.

    With --pipeline the group stops balancing the partitions of a pipeline whose file is gone or names another group. Its
    tables, offsets and tokens stay: should it come back, it goes on where it was.
    """
    from rota.coordination.forget import forget_worker

    if (worker is None) == (pipeline is None):
        raise ConfigError("Give a worker, or --pipeline and a pipeline's name")
    if pipeline is not None:
        _undeclared(pipeline, group)
    with opened(group) as tree:
        if pipeline is not None:
            gone = _for_good(tree, pipeline)
            view.done(f"{len(gone)} partitions of {pipeline} are no longer in group {group}; the next epoch drops them")
        elif worker is not None:
            forget_worker(tree, worker)
            view.done(f"Nothing is kept about {worker} any more")


def _for_good(tree: "Tree", pipeline: str) -> tuple[str, ...]:
    """The partitions that are forgotten. A look of a sensor that began before the reload would bring them back: waits until
    any such look is over, and forgets again what it brought. Raises ConfigError where that does not end."""
    from rota.coordination.forget import forget_pipeline

    gone = forget_pipeline(tree, pipeline)
    progress = view.Progress()
    with progress.running():
        for _ in range(TIMES):
            until = time.monotonic() + LOOK
            while pipeline not in tree.pipelines():
                if (left := until - time.monotonic()) <= 0:
                    return gone
                progress.doing(f"waiting {left:.0f} s for looks that began while {pipeline}.py was there")
                time.sleep(min(0.5, left))
            forget_pipeline(tree, pipeline)
    raise ConfigError(
        f"Somebody still declares {pipeline!r} and brings its partitions back: reload the code location on Dagster's page, "
        f"then type it again"
    )


def _undeclared(pipeline: str, group: str) -> None:
    """Raises ConfigError while a file of the pipelines' folder declares it for this group, or might."""
    found = catalog()
    if any(one.name == pipeline for one in found.of_group(group)) or f"{pipeline}.py" in found.refused:
        raise ConfigError(f"{pipeline}.py is still in the folder of pipelines. Take it away or change its group first")
