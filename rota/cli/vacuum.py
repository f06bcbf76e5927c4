"""`rota vacuum`: deletes files that no version of a table needs: of dead attempts, merged small files, replaced rows, and
old checkpoints of the log."""

from datetime import timedelta

import click

from rota.cli import view
from rota.cli.group import json_option, load_catalog
from rota.errors import ConfigError, counted
from rota.settings import check_known


@click.command("vacuum")
@click.argument("pipelines", nargs=-1)
@click.option("--days", default=7, show_default=True, type=click.IntRange(min=7), help="Keep files that are younger.")
@click.option("--delete", is_flag=True, help="Delete the files. Default: list them only.")
@json_option
def command(pipelines: tuple[str, ...], days: int, delete: bool, as_json: bool) -> None:
    """Delete files that no version of a table needs.

    Of PIPELINES, or of all. Use no other vacuum: it does not know which files running jobs need.
    """
    from rota.deltalog.log_files import is_checkpoint
    from rota.registry import open_tables

    there = load_catalog().pipelines
    chosen = [there[check_known("pipeline", name, there)] for name in pipelines] or list(there.values())
    if not chosen:
        raise ConfigError("There is no pipeline. Set ROTA_PIPELINES to the folder that holds them")
    tables = {p.name: open_tables(p, p.group) for p in chosen}
    with view.show_wait(f"listing the folders of {', '.join(tables)}"):
        found = {name: one.vacuum(timedelta(days=days), dry_run=not delete) for name, one in tables.items()}
    if as_json:
        view.print_document({"deleted": delete, "files": found})
        return
    for name, files in found.items():
        old = sum(map(is_checkpoint, files))
        view.print_line(
            f"{name}: {counted(len(files), 'file')}{f', {old} of them old checkpoints of its log,' if old else ''} "
            f"{'deleted' if delete else 'can be deleted with --delete'}"
        )
