"""Joins needs that have one cause, so that a report names the cause once."""

from collections.abc import Sequence
from itertools import groupby

from rota.errors import counted
from rota.face.needs import Need
from rota.ids import pipeline_of, quote


def join_needs(needs: Sequence[Need]) -> tuple[str, ...]:
    """Return the needs as lines, those that need an operator first.

    Partitions of one pipeline share a line if their causes are the same. `which` identifies a cause where it is set: the
    reason of each partition may name its own file. Without `which` the sentences are compared, each without its partition.
    """

    def find_cause(need: Need) -> tuple[str, ...]:
        if need.kind != "partition":
            return (need.kind, need.cause, need.line)
        about = pipeline_of(need.name)
        return need.kind, need.cause, about, (need.which or need.sentence).replace(quote(need.name), "...")

    lines: list[str] = []
    ordered = sorted(needs, key=lambda need: (not need.person, find_cause(need), need.name))
    for _, alike in groupby(ordered, key=lambda need: (need.person, find_cause(need))):
        first, *others = alike
        more = f" (and {counted(len(others), 'more partition')}, such as {others[0].name})" if others else ""
        lines.append(first.line + (more if first.kind == "partition" else ""))
    return tuple(lines)
