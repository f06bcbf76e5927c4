"""`rota repair`: lists the records of a group that cannot be read, and removes those that a person names."""

from dataclasses import asdict

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, opened
from rota.errors import ConfigError


@click.command("repair")
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--remove", is_flag=True, help="Remove the unreadable records at or below each PATH.")
@group_option
@json_option
def command(paths: tuple[str, ...], remove: bool, group: str, as_json: bool) -> None:
    """Lists each record of the group in ZooKeeper that cannot be read, with what it was and what removing it does.

    Nobody concludes anything from such a record: what needs it waits. If a newer version of rota wrote it, update instead.
    With --remove the records at PATH, or below it, are removed; those that the group needs begin anew.
    """
    from rota.coordination.repair import find_unreadable, repair

    if bool(paths) != remove:
        raise ConfigError("Give --remove and the paths to remove, or neither to see which records cannot be read")
    with opened(group) as tree:
        removed = repair(tree, paths) if remove else ()
        left = find_unreadable(tree)
    if as_json:
        view.document({"group": group, "removed": list(removed), "records": [asdict(one) for one in left]})
        return
    for path in removed:
        view.done(f"Removed: {path}")
    for one in left:
        view.show(f"{one.path}  {one.record}", f"  why      {one.why}")
        view.show(f"  {'remove' if one.removable else 'instead':8} {one.effect}", "")
    if not left:
        view.done(f"Every record of group {group} can be read")
