"""`rota plan`: shows which partitions would move and why, for a JSON document or for a live group; publishes nothing.

Law: for bad input it prints one line with the field, the value and the valid values, and exits with 2. With `--lines` each
input line gets an answer, also after a bad line.
"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.errors import ConfigError, RotaError, counted, shown

if TYPE_CHECKING:
    from rota.core.values import Assignment, Plan

MAX_ROWS = 40


@click.command("plan")
@click.argument("source", required=False)
@click.option("--lines", is_flag=True, help="Read one document a line, print one answer a line.")
@click.option("--from-zookeeper", is_flag=True, help="Plan the live group.")
@group_option
@json_option
def command(source: str | None, lines: bool, from_zookeeper: bool, group: str, as_json: bool) -> None:
    """Show what would move and why.

    Plans the live group with --from-zookeeper, else the JSON document in the file SOURCE or from standard input. Publishes
    nothing.
    """
    if from_zookeeper:
        if source is not None or lines:
            raise ConfigError("--from-zookeeper reads the live group. Leave out SOURCE and --lines")
        from rota.group.rebalance import preview

        with open_group(group) as tree:
            with view.show_wait("reading the group and planning"):
                made = preview(tree).plan
        _print_plan(made, as_json)
        return
    if lines:
        sys.exit(2 if _answer_lines(source) else 0)
    from rota.cli.document import parse_request, plan_request

    if not (document := b"".join(_read_lines(source))).strip():
        raise ConfigError(
            "No input. Give a file or standard input with a JSON document, or --from-zookeeper for the live group"
        )
    _print_plan(plan_request(parse_request(document)), as_json)


def _read_lines(source: str | None) -> Iterator[bytes]:
    """Return the lines of a file or of standard input."""
    if source in (None, "-"):
        yield from sys.stdin.buffer
        return
    try:
        with open(str(source), "rb") as file:
            yield from file
    except OSError as error:
        raise ConfigError(f"Cannot read {source!r}: {error.strerror}. Give a file, or - for standard input") from None


def _answer_lines(source: str | None) -> bool:
    """Print the answer to each line that is not empty; return whether one failed."""
    from rota.cli.document import answer_request, parse_request

    failed = False
    for line in _read_lines(source):
        if not line.strip():
            continue
        try:
            answer = answer_request(parse_request(line))
        except RotaError as error:
            answer, failed = {"error": str(error)}, True
        except Exception as error:  # a bug in rota: the other lines are still answered
            answer, failed = (
                {"error": f"a bug in rota: {type(error).__name__}: {shown(str(error))}. Report the line"},
                True,
            )
        click.echo(json.dumps(answer, allow_nan=False))
        sys.stdout.flush()
    return failed


def _print_plan(made: "Plan", as_json: bool) -> None:
    if as_json:
        from rota.cli.document import format_plan

        view.print_document(format_plan(made))
    else:
        view.print_parts(*_make_tables(made))


def _make_tables(made: "Plan") -> Iterator[Any]:
    """Return tables of the workers, the moves and the unassigned partitions, and the measures as a sentence."""
    yield view.make_table(
        "Workers",
        ["worker", "state", "partitions", "partitions after", "load", "load after"],
        _make_worker_rows(made.assignment),
        right=["partitions", "partitions after", "load", "load after"],
    )
    for title, items, columns in (
        ("Moves", made.moves, ("partition", "from_worker", "to_worker", "load", "reason")),
        ("Unassigned", made.unassigned, ("partition", "from_worker", "reason")),
    ):
        if len(items):
            rows = [[getattr(item, column) for column in columns] for item in islice(items, MAX_ROWS)]
            heads = [{"from_worker": "from", "to_worker": "to"}.get(column, column) for column in columns]
            yield view.make_table(f"{title} ({len(items):,})", heads, rows, right=["load"])
            if len(items) > MAX_ROWS:
                yield f"... and {len(items) - MAX_ROWS:,} more (--json lists all)"
    yield summarize(made)


def summarize(made: "Plan") -> str:
    """Return the measures of a plan as a sentence."""
    m = made.measures
    moves, placements = counted(m.moves, "move"), counted(m.placements, "placement")
    sentences = [f"{moves} ({m.unavoidable_moves:,} unavoidable), {placements}."]
    if m.imbalance_before is not None and m.imbalance_after is not None and m.lower_bound is not None:
        figures = f"{m.imbalance_before:.3f} -> {m.imbalance_after:.3f}"
        sentences.append(f"Imbalance {figures} (not below {m.lower_bound:.3f}).")
    if m.reason:
        sentences.append(f"{m.reason[0].upper()}{m.reason[1:]}.")
    if made.due is not None:
        sentences.append(f"The next decision is due at {made.due:g}.")
    return " ".join(sentences)


def _make_worker_rows(assignment: "Assignment") -> Iterator[tuple[object, ...]]:
    from rota.core.columns import count_per_worker

    snapshot, size = assignment.snapshot, len(assignment.snapshot.workers)
    columns = [
        count_per_worker(column, size, weight)
        for weight in (None, snapshot.load)
        for column in (snapshot.owner, assignment.target)
    ]
    for i, worker in enumerate(snapshot.workers):
        before, after, load, load_after = (column[i] for column in columns)
        yield worker.id, worker.state, int(before), int(after), float(load), float(load_after)
