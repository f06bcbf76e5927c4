"""Of which record each row of a transform's result is, as Spark's analyzed plan says.

Law: a row goes into the table under the partition and the offset of one record that it was made of. A replay or a
compaction of another partition would delete or double it else. Spark numbers every column where it is made, and passes the
number on with it. So whoever follows the two numbers down the plan to the frame that the transform was given knows that
nothing between has made the column anew. Both must come from the same place there: a join of the frame with itself has two.

Law: what becomes of a record hangs on its offset alone, never on which offsets came together in a batch. A limit is refused
where the plan shows it above the frame; so is what groups, removes doubles or looks through a window, unless it does so
within each partition and offset.

What may be between: any step that passes rows on (a filter, a join, an explode, a union), another name and back, `fillna`, a
cast to the type that the column has, and groups by both. An expression that makes either column is refused before a row is
read. What the plan does not show is counted: a function that makes whole rows (mapInPandas, applyInPandas), rows that were
here (createDataFrame, a checkpoint), the field of a struct. Then there must be as many rows as records under each partition
and offset.

Not noticed: such a function that exchanges rows between files, so that each has as many as before.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from rota.dataplane.spark.parsing import ROWS
from rota.dataplane.spark.plans import read_steps
from rota.errors import BadTransform
from rota.record import OFFSET, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUM = "origins"
TREE, CUT = re.compile(r"^(?:[ :]  )*(?:[:+]- )?"), re.compile(r"\.\.\. \d+ more fields")
BOTH = re.compile(rf"Project \[{PARTITION}#(\d+), {OFFSET}#(\d+)L\]")
NAME = r"(?P<name>[^\[\],#]+)#(?P<number>\d+)L?"
COLUMN = re.compile(r"(\w+)#(\d+)")
ITEM = r"(?:\[|, )"  # where an item of a list begins
SAME = (  # what makes a column of the same values
    re.compile(rf"{ITEM}{NAME}$"),
    re.compile(rf"{ITEM}cast\({NAME} as (?:string|bigint)\)$"),
    re.compile(rf".*{ITEM}coalesce\({NAME}, (?P<instead>.*)\)$"),  # a text, in which `#1` is no column
)
A_FIELD = re.compile(rf"{ITEM}[^\[\](),#]+#\d+\.[^\[\](),#]+$")
SAME_COLUMNS = {
    "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Sample", "Deduplicate", "Distinct", "CollectMetrics",
    "Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint", "SubqueryAlias", "View",
}  # fmt: skip
PASSING = SAME_COLUMNS | {"Project", "Aggregate", "Window", "Generate", "Expand", "Join", "LateralJoin", "AsOfJoin"}
LIMITS = {"GlobalLimit": "a limit", "LocalLimit": "a limit", "Offset": "an offset", "Tail": "a limit"}
KEYED = {"Aggregate": "an aggregate", "Deduplicate": "dropDuplicates", "Distinct": "distinct", "Window": "a window"}
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

    def mentions(self, name: str, number: str) -> bool:
        """Whether the column of this number is named here or below."""
        column = re.compile(rf"{re.escape(name)}#{number}L?\b", re.IGNORECASE)
        return any(column.search(one.text) for one in self.walk())

    def mentions_below(self, name: str, number: str) -> bool:
        """Whether the column of this number is named below."""
        return any(one.mentions(name, number) for one in self.inputs)

    def is_by(self, number: str) -> bool:
        """Whether a step that passes the column of this number on does so within each value of it."""
        lists = [self.text] if self.kind == "Deduplicate" else re.findall(r"\[[^\[\]]*\]", self.text)[-2:]
        key = re.compile(rf"[\[ ][^\[\],# ]*#{number}L?[,\]]")
        return self.kind in ("Aggregate", "Distinct") or any(
            key.search(one) for one in lists if "windowspec" not in one
        )

    def walk(self) -> "Iterator[Step]":
        """This step and all below it."""
        yield self
        for one in self.inputs:
            yield from one.walk()


class NotShownError(Exception):
    """The plan does not show where a column is from."""


@dataclass(slots=True)
class Trace:
    """How one column comes out of the frame with the alias `mark`: of which places in the plan, and through which steps that
    keep its values apart."""

    mark: str
    column: str
    named: "dict[str, Step]"  # queries that have a name (WITH), by their number
    places: set[tuple[int, ...]] = field(default_factory=set)  # each with the uses of named queries on the way to it
    apart: set[int] = field(default_factory=set)

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
        elif made := re.search(
            rf"(.*) AS {re.escape(name)}#{number}L?(?=[,\]]|$)", step.text, re.DOTALL | re.IGNORECASE
        ):
            self._follow_made(step, made[1], by)
        elif re.search(rf" AS [^#]*#{number}L?(?=[,\]]|$)", step.text):  # such as `-x`, which is no name
            raise BadTransform(_explain_made(self.column))
        elif step.kind in OF_THE_FIRST:
            self.follow(step.inputs[0], name, number, by)
        elif step.kind in PASSING:
            if step.kind == "Generate" and re.search(rf"#{number}L?\b", step.text.rpartition("[")[2]):
                raise BadTransform(_explain_made(self.column))
            if step.is_by(number):
                self.apart.add(id(step))
            self.follow(_only(one for one in step.inputs if one.mentions(name, number)), name, number, by)
        else:
            raise NotShownError

    def _follow_made(self, step: Step, before: str, by: tuple[int, ...]) -> None:
        found = next((m for form in SAME if (m := form.search(before))), None)
        used = COLUMN.findall(found.groupdict().get("instead", "")) if found else ()
        if found and (
            not step.mentions_below(*found.group("name", "number")) or any(step.mentions_below(*u) for u in used)
        ):
            found = None
        if not found and A_FIELD.search(before):
            raise NotShownError
        if not found:
            raise BadTransform(_explain_made(self.column))
        if step.kind == "Aggregate":
            self.apart.add(id(step))
        below = _only(one for one in step.inputs if one.mentions(found["name"], found["number"]))
        self.follow(below, found["name"], found["number"], by)


def shows_origins(plan: str, mark: str) -> bool:
    """Whether the plan, of `select_origins`, shows that both columns are those of one row of the frame with the alias
    `mark`. Raises BadTransform where it shows the opposite, or that rows of several offsets are taken together."""
    steps = list(_read_tree(read_steps(plan)))
    try:
        top = _only(one for _, one in steps[:1])
        asked = BOTH.fullmatch(top.text)
        if not asked:
            raise NotShownError
        named = {found[1]: one for one in top.walk() if (found := DEFINED.match(one.text))}
        partition, offset = Trace(mark, PARTITION, named), Trace(mark, OFFSET, named)
        partition.follow(_only(top.inputs), PARTITION, asked[1])
        offset.follow(_only(top.inputs), OFFSET, asked[2])
    except (NotShownError, LookupError, ValueError):
        _refuse_cut(steps, mark, LIMITS, set())
        return False
    if partition.places != offset.places:
        raise BadTransform(_explain_made(OFFSET))
    _refuse_cut(steps, mark, LIMITS | KEYED, partition.apart & offset.apart)
    return True


def _refuse_cut(steps: "list[tuple[int, Step]]", mark: str, kinds: "dict[str, str]", apart: set[int]) -> None:
    """Raises BadTransform for a step of these kinds above the frame with the alias `mark`, also in a subquery or a query
    that has a name, unless it keeps both columns `apart`."""
    ours = re.compile(rf"SubqueryAlias {mark}")
    for at, (_, one) in enumerate(steps):
        if DEFINED.match(one.text) and any(ours.fullmatch(below.text) for below in _take_below(steps, at)):
            ours = re.compile(rf"{ours.pattern}|{USE.pattern}.*")  # whoever uses a query with a name may use this one
            break
    for at, (_, step) in enumerate(steps):
        over = step.kind in kinds and any(ours.fullmatch(below.text) for below in _take_below(steps, at))
        if over and id(step) not in apart:
            raise BadTransform(
                f"The transform has {kinds[step.kind]} over rows of several offsets: what it makes hangs on which of them "
                f"came in one batch. Work row by row, or within each {PARTITION} and {OFFSET}, and do the rest in an asset "
                f"downstream"
            )


def _take_below(steps: "list[tuple[int, Step]]", at: int) -> Iterator[Step]:
    """The steps that feed this one, also those of its subqueries."""
    return (one for _, one in takewhile(lambda pair: pair[0] > steps[at][0], steps[at + 1 :]))


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
            f"The transform makes rows where Spark's plan does not show of which records they are (mapInPandas, "
            f"createDataFrame, a checkpoint; or a text with an open bracket in a union), and not one for each record under "
            f"its {PARTITION} and {OFFSET}. Keep both as they come, and filter or explode outside of it, by functions of "
            f"Spark",
            everywhere=True,
            person=True,
        )


def _explain_made(column: str) -> str:
    return (
        f"The transform makes the column {column} anew: a row would be under a file that it is not from. Keep {PARTITION} "
        f"and {OFFSET} as they come, and give what you make another name"
    )


def _read_tree(lines: "list[str]") -> "Iterator[tuple[int, Step]]":
    """The steps of a plan, each with its depth; none where the plan is cut. The plan of a subquery stands two deeper than
    its step, and does not feed it."""
    path: list[Step | None] = []
    for line in lines if not any(map(CUT.search, lines)) else ():
        text = TREE.sub("", line)
        depth, step = (len(line) - len(text)) // 3, Step(text)
        path = [*path[:depth], *[None] * (depth - len(path))]
        if path and (above := path[-1]):
            above.inputs.append(step)
        path.append(step)
        yield depth, step


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
