"""`rota completion`: what makes a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

from rota.cli import view
from rota.errors import ConfigError

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the lines that make SHELL complete commands and options.

    For example: rota completion bash >> ~/.bashrc
    """
    from rota.cli import cli

    known = get_completion_class(shell)
    if known is None:
        raise ConfigError(f"This version of click completes nothing in {shell}. Choose one of {', '.join(SHELLS)}")
    view.print_line(known(cli, {}, "rota", "_ROTA_COMPLETE").source())
