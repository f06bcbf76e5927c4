"""`rota rename`: gives the table of a renamed pipeline to its new name."""

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog, open_group
from rota.errors import ConfigError, counted
from rota.settings import check_known


@click.command("rename")
@click.argument("old")
@click.argument("new")
@group_option
def command(old: str, new: str, group: str) -> None:
    """Give the table of pipeline OLD to pipeline NEW.

    Run it after you renamed OLD.py to NEW.py. NEW continues with OLD's rows and offsets and reads no file again. The
    command rewrites the data files. If it is interrupted, run it again. Then reload the code location on Dagster's page.
    """
    from rota.people.rename import rename

    found = load_catalog()
    pipelines = {p.name: p for p in found.of_group(group)}
    if f"{old}.py" in found.refused or old in found.pipelines:
        raise ConfigError(
            f"{old}.py is still in the folder of pipelines. Remove it, or rename it to {new}.py, then run the command again"
        )
    if why := found.refused.get(f"{new}.py"):
        raise ConfigError(why)
    pipeline = pipelines[check_known("pipeline", new, pipelines)]
    with open_group(group) as tree:
        with view.show_wait(f"rewriting the table of {old}"):
            moved = rename(tree, old, pipeline)
    if moved is None:
        view.print_line(f"The table of {old} is the one of {new} already: nothing is left to do")
    else:
        view.print_line(
            f"{old} is {new} now, with the offsets of {counted(moved, 'partition')}. Reload the code location on Dagster's "
            f"page, and wipe the assets of {old} in its catalog"
        )
