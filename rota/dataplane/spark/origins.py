"""Of which record each row of a transform's result is, as Spark's analyzed plan says.

Law: a row goes into the table under the partition and the offset of one record that it was made of. A replay or a
compaction of another partition would delete or double it else. Spark numbers every column where it is made, and passes the
number on with it. So whoever follows the two numbers down the plan to the frame that the transform was given knows that
nothing between has made the column anew. Both must come from the same place there: a join of the frame with itself has two.

What may be between: any step that passes rows on (a filter, a join, an explode, a window, a union, what removes doubles),
another name and back, `fillna`, a cast to the type that the column has, and groups by `_partition`, whose offset may be one
of theirs. An expression that makes either column is refused before a row is read. What the plan does not show is counted:
a function that makes whole rows (mapInPandas, applyInPandas), rows that were here (createDataFrame, a checkpoint), the field
of a struct. Then there must be as many rows as records under each partition and offset.

Not noticed: such a function that exchanges rows between files, so that each has as many as before.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rota.dataplane.delta.commit_info import OFFSET, PARTITION
from rota.dataplane.spark.parsing import ROWS
from rota.dataplane.spark.plans import ANALYZED, OPTIMIZED
from rota.errors import BadTransform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUM = "origins"
LINE = re.compile(r"(?P<tree>(?:[ :]  )*(?:[:+]- )?)(?P<text>\w.*)")
BOTH = re.compile(rf"Project \[{PARTITION}#(\d+), {OFFSET}#(\d+)L\]")
NAME = r"(?P<name>[^\[\],#]+)#(?P<number>\d+)L?"
ITEM = r"(?:\[|, )"  # where an item of a list begins
SAME = (  # what makes a column of the same values
    re.compile(rf"{ITEM}{NAME}$"),
    re.compile(rf"{ITEM}cast\({NAME} as (?:string|bigint)\)$"),
    re.compile(rf"{ITEM}coalesce\({NAME}, (?:(?!#\d).)*\)$"),
)
ONE_OF_GROUP = re.compile(rf"{ITEM}(?:max|min|first|last|any_value)\({NAME}(?:, (?:true|false))?\)$")
A_FIELD = re.compile(rf"{ITEM}[^\[\](),#]+#\d+\.[^\[\](),#]+$")
SAME_COLUMNS = {
    "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample", "Deduplicate", "Distinct", "CollectMetrics",
    "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint", "SubqueryAlias", "View",
}  # fmt: skip
PASSING = SAME_COLUMNS | {"Project", "Aggregate", "Window", "Generate", "Expand", "Join", "LateralJoin", "AsOfJoin"}
DEFINED, USE = re.compile(r"CTERelationDef (\d+)\b"), re.compile(r"CTERelationRef (\d+), \w+, \[(.*?)\]")
OF_THE_FIRST = {"Intersect", "Except"}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of a plan, and those that feed it."""

    text: str
    inputs: "list[Step]" = field(default_factory=list)

    @property
    def kind(self) -> str:
        return re.split(r"\W", self.text, maxsplit=1)[0]

    def mentions(self, number: str) -> bool:
        """Whether the column of this number is named here or below."""
        return any(re.search(rf"#{number}L?\b", one.text) for one in self.walk())

    def walk(self) -> "Iterator[Step]":
        """This step and all below it."""
        yield self
        for one in self.inputs:
            yield from one.walk()


class NotShownError(Exception):
    """The plan does not show where a column is from."""


@dataclass(slots=True)
class Trace:
    """How one column comes out of the frame with the alias `mark`: of which places in the plan, through which groups."""

    mark: str
    column: str
    named: "dict[str, Step]"  # queries that have a name (WITH), by their number
    places: set[tuple[int, ...]] = field(default_factory=set)  # each with the uses of named queries on the way to it
    grouped_by: set[int] = field(default_factory=set)  # steps that group by it
    one_of: set[int] = field(default_factory=set)  # steps that take one of each group

    def follow(self, step: Step, name: str, number: str, by: tuple[int, ...] = ()) -> None:
        """Raises NotShownError; BadTransform where an expression makes the column. `by`: see `places`."""
        if step.text == f"SubqueryAlias {self.mark}":
            if name.lower() != self.column:
                raise BadTransform(_explain_made(self.column))
            self.places.add((*by, id(step)))
        elif step.kind == "Union":
            at = [given for _, given in _read_columns(step.inputs[0])].index(number)
            for one in step.inputs:
                self.follow(one, *_read_columns(one)[at], by)
        elif step.kind == "WithCTE":
            self.follow(step.inputs[-1], name, number, by)
        elif use := USE.match(step.text):
            query = _only(self.named[use[1]].inputs)
            at = re.findall(r"#(\d+)L?(?=,|$)", use[2]).index(number)
            self.follow(query, *_read_columns(query)[at], (*by, id(step)))
        elif made := re.search(rf" AS ([^#]*)#{number}L?(?=[,\]]|$)", step.text):
            if made[1].lower() != name.lower():  # such as `-x`, which is no name
                raise BadTransform(_explain_made(self.column))
            self._follow_made(step, step.text[: made.start()], by)
        elif step.kind in OF_THE_FIRST:
            self.follow(step.inputs[0], name, number, by)
        elif step.kind in PASSING:
            if step.kind == "Generate" and re.search(rf"#{number}L?\b", step.text.rpartition("[")[2]):
                raise BadTransform(_explain_made(self.column))
            if step.kind == "Aggregate":
                self.grouped_by.add(id(step))
            self.follow(_only(one for one in step.inputs if one.mentions(number)), name, number, by)
        else:
            raise NotShownError

    def _follow_made(self, step: Step, before: str, by: tuple[int, ...]) -> None:
        found = next((m for form in SAME if (m := form.search(before))), None)
        if not found and step.kind == "Aggregate" and self.column == OFFSET:
            found = ONE_OF_GROUP.search(before)
            self.one_of.add(id(step))
        elif found and step.kind == "Aggregate":
            self.grouped_by.add(id(step))
        if not found and A_FIELD.search(before):
            raise NotShownError
        if not found:
            raise BadTransform(_explain_made(self.column))
        below = _only(one for one in step.inputs if one.mentions(found["number"]))
        self.follow(below, found["name"], found["number"], by)


def shows_origins(plan: str, mark: str) -> bool:
    """Whether the plan, of `select_origins`, shows that both columns are those of one row of the frame with the alias
    `mark`. Raises BadTransform where it shows the opposite."""
    try:
        top = _read_tree(plan.partition(ANALYZED)[2].partition(OPTIMIZED)[0].rstrip("\n").split("\n")[1:])
        asked = BOTH.fullmatch(top.text)
        if not asked:
            raise NotShownError
        named = {found[1]: one for one in top.walk() if (found := DEFINED.match(one.text))}
        partition, offset = Trace(mark, PARTITION, named), Trace(mark, OFFSET, named)
        partition.follow(_only(top.inputs), PARTITION, asked[1])
        offset.follow(_only(top.inputs), OFFSET, asked[2])
    except (NotShownError, LookupError, ValueError):
        return False
    if partition.places != offset.places or not offset.one_of <= partition.grouped_by:
        raise BadTransform(_explain_made(OFFSET))
    return True


def select_origins(result: "DataFrame") -> "DataFrame":
    """The two columns whose plan `shows_origins` reads."""
    return result.select(PARTITION, OFFSET)


def sum_origins() -> "tuple[Column, Column]":
    """How many rows there are, and a number that differs where another number of them is under any partition and
    offset."""
    from pyspark.sql import functions as F  # noqa: N812

    one = F.xxhash64(PARTITION, OFFSET).cast("decimal(38,0)")
    return F.count(F.lit(1)).alias(ROWS), F.coalesce(F.sum(one), F.lit(0)).alias(SUM)


def require_same(good: "DataFrame", written: "dict[str, int]") -> None:
    """Raises BadTransform where the rows `written`, as `sum_origins` counts them, are not one for one under the origins of
    the records. Reads these once more."""
    given = good.agg(*sum_origins()).collect()[0]
    if [int(given[name]) for name in (ROWS, SUM)] != [written.get(name) for name in (ROWS, SUM)]:
        raise BadTransform(
            f"The transform makes rows where Spark does not see of which records they are (mapInPandas, applyInPandas, "
            f"createDataFrame), and not one for each record under its {PARTITION} and {OFFSET}. Keep both as they come, and "
            f"filter or explode outside of it, by functions of Spark",
            everywhere=True,
            person=True,
        )


def _explain_made(column: str) -> str:
    return (
        f"The transform makes the column {column} anew: a row would be under a file that it is not from. Keep {PARTITION} "
        f"and {OFFSET} as they come, and give what you make another name"
    )


def _read_tree(lines: Iterable[str]) -> Step:
    """The first step of a plan's text. The plan of a subquery stands two deeper than its step, and is left out."""
    path: list[Step | None] = []
    for line in lines:
        found = LINE.fullmatch(line)
        if not found or "more fields" in line:
            raise NotShownError
        depth, step = len(found["tree"]) // 3, Step(found["text"])
        if not depth and path:
            raise NotShownError
        path = [*path[:depth], *[None] * (depth - len(path))]
        if path and (above := path[-1]):
            above.inputs.append(step)
        path.append(step)
    return _only(one for one in path[:1] if one)


def _read_columns(step: Step) -> list[tuple[str, str]]:
    """The names and numbers of the columns that a step gives, in order. Raises NotShownError."""
    if step.kind in SAME_COLUMNS:
        return _read_columns(_only(step.inputs))
    if step.kind == "Union":
        return _read_columns(step.inputs[0])
    if step.kind not in ("Project", "Aggregate") or not step.text.endswith("]"):
        raise NotShownError
    columns, item = [], ""
    for part in step.text[:-1].partition("[")[2].rpartition("], [")[2].split(", "):
        item = f"{item}, {part}" if item else part
        if item.count("(") == item.count(")") and (found := re.fullmatch(r"(?:.* AS )?(.*)#(\d+)L?", item)):
            columns.append((found[1], found[2]))
            item = ""
    if item:
        raise NotShownError
    return columns


def _only(steps: Iterable[Step]) -> Step:
    found = list(steps)
    if len(found) != 1:
        raise NotShownError
    return found[0]
