"""`python -m simulator`: runs every assignor in simulated worlds and prints one table.

With `--json` one document, `{"results": [...]}`, an object for each world, assignor and seed: `world` `assignor` `seed`
`duration` `imbalance_p50` `imbalance_p99` `moves` `unavoidable_moves` `converge` `unowned` `doubly` `commits` `refused`
`epochs` `events` `violations`. Seconds are virtual; `unowned` and `doubly` are partition-seconds.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rota.errors import RotaError, counted

if TYPE_CHECKING:
    from simulator.compare import Cell


@click.command(context_settings={"max_content_width": 110})
@click.option("--world", "worlds", multiple=True, help="Only this world (again for more). Default: all.")
@click.option("--assignor", "assignors", multiple=True, help="Only this assignor (again for more). Default: all.")
@click.option("--protocol", help="Workers that decide alone under this protocol, instead of the assignors.")
@click.option("--seed", "seeds", multiple=True, type=int, help="Only this seed (again for more). Default: 1.")
@click.option("--seeds", "count", type=click.IntRange(1, 1_000), help="Seeds 1 to N; the table shows medians.")
@click.option("--jobs", type=click.IntRange(1), help="Processes. Default: one a core.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with every measure.")
def command(
    worlds: tuple[str, ...],
    assignors: tuple[str, ...],
    protocol: str | None,
    seeds: tuple[int, ...],
    count: int | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Compare assignors in simulated worlds; invariants are checked after every event.

    A broken invariant ends the command with exit code 1 and the command that repeats it.
    """
    from rota.cli import view
    from rota.core.protocols.known_protocols import ASSIGNED, find_protocol
    from simulator import compare
    from simulator.checker import Violation
    from simulator.worlds import WORLDS, world

    chosen = [world(w).name for w in worlds] or list(WORLDS)
    if protocol is not None:
        find_protocol(protocol)
        assignors = assignors or ("sticky",)  # required, and not used
    names = [compare.check_contestant(a) for a in assignors] or list(compare.contestants())
    numbers = list(seeds or range(1, (count or 1) + 1))
    progress = view.Progress(silent=as_json)
    total, done = len(chosen) * len(names) * len(numbers), 0

    def show_result(result: object) -> None:
        nonlocal done
        done += 1
        left = progress.seconds / done * (total - done)
        line = f"{done} of {total} runs, {left:.0f} s left: {getattr(result, 'world', '')}"
        progress.show_step(line)
        if not (as_json or view.console.is_terminal) and done * 10 // total > (done - 1) * 10 // total:
            view.errors.print(f"[dim]{progress.seconds:6.1f} s[/]  {line}", soft_wrap=True)

    try:
        with progress.show_spinner():
            progress.show_step(counted(total, "run"))
            cells = compare.grid(chosen, names, numbers, jobs, show_result, protocol or ASSIGNED)
    except Violation as violation:
        view.print_error(str(violation))
        sys.exit(1)
    if as_json:
        view.print_document(compare.document(cells))
        return
    view.print_parts(
        view.make_table("", ["", *compare.COLUMNS[2:]], _group_rows(cells), right=compare.COLUMNS[2:]), compare.LEGEND
    )


def _group_rows(cells: Sequence["Cell"]) -> list[tuple[object, ...]]:
    """Return a heading row for each world, then a row for each assignor."""
    rows: list[tuple[object, ...]] = []
    last = None
    for cell in cells:
        name, assignor, *numbers = cell.row()
        if name != last:
            rows.append((name, *(" " for _ in numbers)))
            last = name
        rows.append((f"  {assignor}", *numbers))
    return rows


if __name__ == "__main__":
    try:
        command()
    except RotaError as error:
        raise SystemExit(str(error)) from None
