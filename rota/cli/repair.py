"""`rota repair`: lists the records of a group that cannot be read, and removes those that the user names."""

from dataclasses import asdict

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.errors import ConfigError


@click.command("repair")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--remove", is_flag=True, help="Remove the unreadable records at or below each PATH.")
@group_option
@json_option
def command(paths: tuple[str, ...], remove: bool, group: str, as_json: bool) -> None:
    """List or remove records that cannot be read.

    Rota concludes nothing from an unreadable record in ZooKeeper: what depends on it waits. If a newer rota wrote the
    record, update this one instead. With --remove, the unreadable records at or below each PATH are removed; those that
    the group needs are created again.
    """
    from rota.coordination.repair import EFFECT, find_unreadable, repair

    if bool(paths) != remove:
        raise ConfigError("Give --remove and the paths to remove, or neither to see which records cannot be read")
    with open_group(group) as tree, view.show_wait("reading every record of the group"):
        removed = repair(tree, paths) if remove else ()
        left = find_unreadable(tree)
    if as_json:
        view.print_document({"group": group, "removed": list(removed), "records": [asdict(one) for one in left]})
        return
    for path in removed:
        view.print_line(f"Removed: {path}")
    for one in left:
        view.print_parts(one.path, f"  why      {one.why}", *([f"  instead  {one.instead}"] if one.instead else []), "")
    view.print_line(EFFECT if left else f"Every record of group {group} can be read")
