"""The commands, one module for each. Law: `rota --help` imports nothing heavy, so a command imports inside its function."""

import os
import sys
import warnings
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

import click

from rota.cli.group import NO_PANDAS
from rota.errors import RotaError

# Purpose -> verbs. A verb is the name of its module below rota.cli, except for those in `MODULES`.
HEADINGS: dict[str, tuple[str, ...]] = {
    "Inspect": ("status", "why", "history", "check", "export"),
    "Run": ("up", "worker", "found", "prepare"),
    "Workers": ("drain", "cordon", "uncordon"),
    "Partitions": ("pin", "pause", "resume", "retry", "skip", "replay"),
    "Repair and upkeep": ("repair", "adopt", "rename", "forget", "vacuum", "purge", "protect", "upgrade"),
    "Try out": ("try", "demo", "plan"),
}
OVERRIDES = frozenset({"drain", "cordon", "uncordon", "pause", "resume"})
MODULES = {**dict.fromkeys(OVERRIDES, "overrides"), "try": "tryout"}  # `try` is a word of Python's own
SPARING = frozenset({"status", "why", "history", "export"})  # run without pandas, unless a pipeline file imports it
STARTING = frozenset({"up", "demo"})  # start a stack of their own; the others find the one that runs
VERBS = tuple(verb for verbs in HEADINGS.values() for verb in verbs)
VERB_WIDTH = max(map(len, VERBS))


class Verbs(click.Group):
    """Finds each command in `VERBS` and imports it when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        override = cmd_name in OVERRIDES
        module = import_module(f"rota.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.make_command(cmd_name) if override else module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean `rota {near[0]}`?" if near else ""
            raise click.UsageError(f"{error.format_message()}{hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command by purpose, with its whole first sentence; click's own list cuts it at the page width."""
        for heading, verbs in HEADINGS.items():
            with formatter.section(heading):
                rows = [
                    (f"{v:<{VERB_WIDTH}}", (self.get_command(ctx, v) or cli).get_short_help_str(limit=1000))
                    for v in verbs
                ]
                formatter.write_dl(rows)


@click.command(cls=Verbs, context_settings={"max_content_width": 110})
@click.version_option(package_name="rota")
def cli() -> None:
    """Balanced, sticky, fenced assignment of source partitions to live Spark workers."""


def main() -> None:
    """The console script. An expected error is one red line and exit code 2; a traceback is a bug."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack the letters of a partition's id
    warnings.filterwarnings("ignore", module=r"dagster\.")  # about a pipeline file's assets: Dagster's own log has them
    if sys.argv[1:] and sys.argv[1] in SPARING:
        sys.meta_path.insert(0, NO_PANDAS)
    if "--json" in sys.argv:
        from rota.cli.view import reserve_stdout

        reserve_stdout()
    if sys.argv[1:] and sys.argv[1] not in STARTING:
        from rota.local.folder import join_running

        join_running(os.environ, Path.cwd())
    try:
        cli.main(standalone_mode=True)
    except RotaError as error:
        from rota.cli.view import print_error

        print_error(str(error))
        sys.exit(2)
