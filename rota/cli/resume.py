"""`rota resume`: a group makes voluntary moves again."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group


@click.command("resume")
@group_option
def command(group: str) -> None:
    """Allow voluntary moves again, after `rota pause`."""
    from rota.coordination import overrides

    with open_group(group) as tree:
        overrides.resume(tree)
    view.print_line(f"Group {group} is balanced again")
