"""`rota pause`: voluntary moves are frozen."""

import click

from rota.cli import view
from rota.cli.group import group_option, opened


@click.command("pause")
@group_option
def command(group: str) -> None:
    """Freezes voluntary moves, until `rota resume`; what must move still moves."""
    from rota.coordination import wishes

    with opened(group) as tree:
        wishes.pause(tree)
    view.done(f"Group {group} is paused: only what must move moves. `rota resume` ends it")
