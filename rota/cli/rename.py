"""`rota rename`: a pipeline's file got another name, and its table goes along."""

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened
from rota.errors import ConfigError
from rota.settings import known


@click.command("rename")
@click.argument("old")
@click.argument("new")
@group_option
def command(old: str, new: str, group: str) -> None:
    """Gives the table of pipeline OLD to NEW, after OLD.py was renamed to NEW.py.

    Rows, offsets and what the group knows of OLD go on under the new name; nothing is read again. The data files are written
    anew. Stopped halfway, type it again. Then reload the code location on Dagster's page.
    """
    from rota.rename import rename

    found = catalog()
    pipelines = {p.name: p for p in found.of_group(group)}
    if f"{old}.py" in found.refused or old in found.pipelines:
        raise ConfigError(
            f"{old}.py is still in the folder of pipelines. Take it away, or call it {new}.py, then type it again"
        )
    if why := found.refused.get(f"{new}.py"):
        raise ConfigError(why)
    pipeline = pipelines[known("pipeline", new, pipelines)]
    with opened(group) as tree:
        moved = rename(tree, old, pipeline)
    if moved is None:
        view.done(f"The table of {old} is the one of {new} already: nothing is left to do")
    else:
        view.done(
            f"{old} is {new} now: {moved} partitions go on where they were. Reload the code location on Dagster's page"
        )
