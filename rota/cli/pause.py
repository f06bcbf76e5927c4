"""`rota pause`: a group makes no voluntary moves."""

import click

from rota.cli import view
from rota.cli.group import group_option, open_group


@click.command("pause")
@group_option
def command(group: str) -> None:
    """Stop voluntary moves until `rota resume`.

    A partition whose worker is gone or drains still moves.
    """
    from rota.coordination import overrides

    with open_group(group) as tree:
        overrides.pause(tree)
    view.print_line(f"Group {group} is paused: only what must move moves. `rota resume` ends it")
