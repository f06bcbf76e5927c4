"""`rota vacuum`: removes files that no version of a table needs: attempts that died, small files that were put together,
rows that were replaced, old checkpoints of the log."""

from datetime import timedelta

import click

from rota.cli import view
from rota.cli.group import catalog, json_option
from rota.errors import ConfigError
from rota.settings import known


@click.command("vacuum")
@click.argument("pipelines", nargs=-1)
@click.option("--days", default=7, show_default=True, type=click.IntRange(min=7), help="Keep what is younger.")
@click.option("--delete", is_flag=True, help="Delete; else only say what would go.")
@json_option
def command(pipelines: tuple[str, ...], days: int, delete: bool, as_json: bool) -> None:
    """Removes files of PIPELINES (all, unless named) that no version of their tables needs; the only vacuum to use."""
    from rota.dataplane.vacuum import is_checkpoint, vacuum
    from rota.settings import folder

    there = catalog().pipelines
    chosen = [there[known("pipeline", name, there)] for name in pipelines] or list(there.values())
    if not chosen:
        raise ConfigError("There is no pipeline. Set ROTA_PIPELINES to the folder that holds them")
    found = {p.name: vacuum(folder(p.table.path), timedelta(days=days), dry_run=not delete) for p in chosen}
    if as_json:
        view.document({"deleted": delete, "files": found})
        return
    for name, files in found.items():
        old = sum(map(is_checkpoint, files))
        view.done(
            f"{name}: {len(files)} files{f', {old} of them old checkpoints of its log,' if old else ''} "
            f"{'deleted' if delete else 'would go; --delete removes them'}"
        )
