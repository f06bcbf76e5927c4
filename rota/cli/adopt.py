"""`rota adopt`: takes over the tables of a group after ZooKeeper or a table was rebuilt or restored."""

import click

from rota.cli import view
from rota.cli.group import group_option, load_catalog, open_group
from rota.errors import ConfigError, counted


@click.command("adopt")
@group_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(group: str, yes: bool) -> None:
    """Take over the tables of the group's pipelines.

    Use it after ZooKeeper or a table was rebuilt or restored. New tokens of the group are greater than all tokens in the
    tables. Stop all runs first.
    """
    from rota.people.adopt import adopt, gone

    pipelines = load_catalog().of_group(group)
    names = ", ".join(p.name for p in pipelines) or "none"
    with open_group(group) as tree:
        for pipeline in pipelines:
            if lost := gone(tree, pipeline):
                count = counted(len(lost), "partition")
                click.echo(f"{pipeline.name} has no table at {pipeline.table.path}: {count} would start at offset 0")
        if not yes:
            _ask(f"Take over the tables of {names}? Workers under another ZooKeeper lose them", group)
        with view.show_wait(f"taking over the tables of {names}"):
            done = adopt(tree, pipelines)
    anew = f", {len(done.anew)} start at offset 0" if done.anew else ""
    view.print_line(
        f"Adopted the tables of {names}: {counted(len(done.offsets), 'partition')} continue{anew}, "
        f"tokens start above {done.token_base}"
    )


def _ask(question: str, group: str) -> None:
    """Raise ConfigError unless the user confirms; also if there is no terminal."""
    try:
        click.confirm(question, abort=True)
    except click.Abort:
        step = f"rota adopt --group {group} --yes"
        raise ConfigError(f"Not confirmed, nothing was changed. To confirm: {step}") from None
