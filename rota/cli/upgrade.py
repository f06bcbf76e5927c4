"""`rota upgrade`: shows which build each process of a group is, and raises the level of the group's records."""

from typing import TYPE_CHECKING

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.coordination.levels import Levels, upgrade_command

if TYPE_CHECKING:
    from rota.coordination.upgrade import Process

STEPS = {  # kind of a process that is too old -> what replaces it
    "worker": "restart it with this rota",
    "run": "wait for its end",
    "controller": "install this rota for Dagster, then materialize the asset assignment of the group",
}


@click.command("upgrade")
@click.option("--finalize", is_flag=True, help="Raise the level, if every process reads and writes the new one.")
@group_option
@json_option
def command(finalize: bool, group: str, as_json: bool) -> None:
    """Show the build and the levels of each process, or raise the level of a group.

    Until the level is raised, each process may go back to the older build. Afterwards an older build is refused before it
    writes anything. Exit code 1 where --finalize finds a process that is too old.
    """
    from rota.coordination.upgrade import finalize as raise_level
    from rota.coordination.upgrade import list_processes

    with open_group(group) as tree, view.show_wait("reading the nodes of the group's processes"):
        meta = raise_level(tree) if finalize else tree.meta()
        ours, processes = tree.levels, list_processes(tree)
    late = [one for one in processes if not one.reaches(ours.level)]
    step = ""
    if meta.level != ours.level:
        what = (
            f"Too old for level {ours.level}: {len(late)}. Replace, then" if late else f"All reach level {ours.level}"
        )
        step = f"{what}: {upgrade_command(group)}"
    if as_json:
        rows = [{"kind": one.kind, "name": one.name, **_describe(one.levels)} for one in processes]
        about = {"group": group, "level": meta.level, "floor": meta.floor, **_describe(ours)}
        view.print_document({**about, "step": step, "processes": rows})
    else:
        cells = [_list_cells(one, STEPS[one.kind] if one in late else "") for one in processes]
        table = view.make_table("", ("name", "process", "build", "levels", "next step"), cells)
        said = f"Group {group} is at level {meta.level}, and {ours}. {step}"
        view.print_parts(*([table, ""] if cells else []), said.strip())
    if finalize and meta.level != ours.level:
        raise SystemExit(1)


def _describe(levels: Levels | None) -> dict[str, object]:
    """Return the levels of a build as JSON values; null if its record cannot be read."""
    if levels is None:
        return {"build": None, "reads_from": None, "reads_to": None}
    return {"build": levels.build, "reads_from": levels.lowest, "reads_to": levels.level}


def _list_cells(one: "Process", step: str) -> tuple[str, ...]:
    if one.levels is None:
        return (one.name or one.kind, one.kind, "-", "unreadable", step)
    return (one.name or one.kind, one.kind, one.levels.build or "-", f"{one.levels.lowest} to {one.levels.level}", step)
