"""`rota resume`: voluntary moves happen again."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened


@click.command("resume")
@group_option
def command(group: str) -> None:
    """Lets voluntary moves happen again."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.resume(tree)
    view.done(f"Group {group} balances itself again")
