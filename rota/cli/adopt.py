"""`rota adopt`: takes the group's tables over after ZooKeeper was rebuilt or restored, or a table was."""

import click

from rota.cli import view
from rota.cli.group import catalog, group_option, opened


@click.command("adopt")
@group_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(group: str, yes: bool) -> None:
    """Takes the group's tables over, so that every token from now on is above all that they have seen."""
    from rota.adopt import adopt, gone

    pipelines = catalog().of_group(group)
    names = ", ".join(p.name for p in pipelines) or "none"
    with opened(group) as tree:
        for pipeline in pipelines:
            if lost := gone(tree, pipeline):
                click.echo(f"{pipeline.name} has no table at {pipeline.table.path}: {len(lost)} partitions begin anew")
        if not yes:
            click.confirm(
                f"Take over the tables of {names}? Whoever works on them under another ZooKeeper is stopped", abort=True
            )
        done = adopt(tree, pipelines)
    anew = f", {len(done.anew)} begin anew" if done.anew else ""
    view.done(
        f"Adopted the tables of {names}: {len(done.offsets)} partitions go on{anew}, "
        f"tokens start above {done.token_base}"
    )
