"""Check, in Spark's analyzed plan, which record each row of a transform's result comes from.

Law: the table has a row under the partition and the offset of one record from which the row was made. Under another one, a
replay or a compaction would delete or double the row. Spark gives a column a number in the step that makes it, and later
steps keep the number. So both columns are the frame's own if their numbers lead down to the frame that the transform
received. Both must lead to the same place in the plan: a join of the frame with itself reads the frame in two places.

Law: the result of a record depends on its offset alone, never on the other offsets of its batch. These steps are refused
above the frame, unless they work within each partition and offset:

- a limit or an offset: always;
- a group, a dropDuplicates, a distinct, a window: unless both columns are among its keys;
- a join, an intersect or an except of the frame with itself: unless both sides must have equal values in both columns;
- a subquery over the frame, such as EXISTS, IN or a scalar: always.

Any other step that passes rows on is allowed (a filter, a join, an explode, a union). So are a rename and back, `fillna`, a
cast to the same type, and groups by both columns. An expression that makes either column is refused before Spark reads a
row. If the plan does not show the origin, rows are counted: after a function that makes whole rows (mapInPandas,
applyInPandas), for rows from this process (createDataFrame, a checkpoint), and for the field of a struct. Each partition
and offset must then have as many rows as records.

Not detected: a function that exchanges rows between files, so that each file has as many rows as before.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
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
SAME = (  # expressions that make a column of the same values
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
BESIDE_EACH_OTHER = {"Union", "WithCTE"}  # their inputs do not meet
EQUAL = re.compile(r"\(([^\[\]()#]+)#(\d+)L? = ([^\[\]()#]+)#(\d+)L?\)")
COMPARED = r"\([^\[\]()#]+#\d+L? (?:=|<=>|<|>|<=|>=) [^\[\]()#]+#\d+L?\)"
ALL_OF = re.compile(rf"Join \w+, \(*{COMPARED}(?:\)* AND \(*{COMPARED})*\)*")
KEY = re.compile(r"[\[ ]([^\[\],# ]*)#(\d+)L?(?=[,\]])")


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of a plan, and the steps that feed it."""

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
        """Whether the step passes the column of this number on and never combines rows with different values of it."""
        return self.kind in ("Aggregate", "Distinct") or any(key[1] == number for key in self.read_keys())

    def read_keys(self) -> list[tuple[str, str]]:
        """The names and numbers of the columns by which the step groups rows."""
        if self.kind == "Distinct":
            return _read_columns(self)
        lists = re.findall(r"\[[^\[\]]*\]", self.text)
        kept = {"Aggregate": lists[:1], "Window": [one for one in lists[-2:] if "windowspec" not in one]}
        return KEY.findall(" ".join(kept.get(self.kind, [self.text])))

    def walk(self) -> "Iterator[Step]":
        """Yield this step and all steps below it."""
        yield self
        for one in self.inputs:
            yield from one.walk()


class NotShownError(Exception):
    """The plan does not show where a column is from."""


@dataclass(slots=True)
class Trace:
    """The way of one column from the frame with the alias `mark` to the result.

    `places`: where the plan reads the frame for it. `apart`: the steps on the way that keep the column's values apart.
    """

    mark: str
    column: str
    named: "dict[str, Step]"  # queries that have a name (WITH), by their number
    places: set[tuple[int, ...]] = field(default_factory=set)  # each with the uses of named queries on the way to it
    apart: set[int] = field(default_factory=set)

    def follow(self, step: Step, name: str, number: str, by: tuple[int, ...] = ()) -> None:
        """Follow the column of this number down from `step`.

        Args:
            by: the uses of named queries on the way to `step`.

        Raises: NotShownError; BadTransform, if an expression makes the column.
        """
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
    """Check a transform's plan.

    Args:
        plan: of `select_origins`.
        mark: the alias of the frame that the transform received.

    Returns: whether the plan shows that both columns are those of one row of that frame.

    Raises: BadTransform, if the plan shows that an expression made a column, or that rows of several offsets meet.
    """
    steps = list(_read_tree(read_steps(plan)))
    named = {found[1]: one for _, one in steps if (found := DEFINED.match(one.text))}
    meeting = _Meeting(steps, mark, named)
    try:
        top = _only(one for _, one in steps[:1])
        asked = BOTH.fullmatch(top.text)
        if not asked:
            raise NotShownError
        partition, offset = Trace(mark, PARTITION, named), Trace(mark, OFFSET, named)
        partition.follow(_only(top.inputs), PARTITION, asked[1])
        offset.follow(_only(top.inputs), OFFSET, asked[2])
    except (NotShownError, LookupError, ValueError):
        meeting.refuse(LIMITS, set())
        return False
    if partition.places != offset.places:
        raise BadTransform(_explain_made(OFFSET))
    meeting.refuse(LIMITS | KEYED, partition.apart & offset.apart)
    return True


class _Meeting:
    """The steps of a plan in which rows of several offsets meet."""

    def __init__(self, steps: "list[tuple[int, Step]]", mark: str, named: "dict[str, Step]") -> None:
        self._steps, self._mark, self._named = steps, mark, named
        self._ours = {number for number, one in named.items() if any(map(self._is_frame, one.walk()))}
        while more := {n for n, one in named.items() if n not in self._ours and any(map(self._is_ours, one.walk()))}:
            self._ours |= more

    def refuse(self, kinds: "Mapping[str, str]", apart: set[int]) -> None:
        """Raise BadTransform for the first step of these kinds over the frame, or in which the frame meets itself. A step
        is allowed if it keeps both columns `apart`, or works within each partition and offset."""
        for at, (_, step) in enumerate(self._steps):
            inputs, subqueries = (sum(map(self._holds_ours, of)) for of in self._branch(at))
            what = ""
            if subqueries:
                what = "a subquery"
            elif inputs and step.kind in kinds and id(step) not in apart and not self._is_within(step):
                what = kinds[step.kind]
            elif inputs > 1 and step.kind not in BESIDE_EACH_OTHER and not self._is_within(step):
                what = "a join of the frame with itself" if "Join" in step.kind else step.kind.lower()
            if what:
                raise BadTransform(
                    f"The transform has {what} over rows of several offsets: the result depends on which of them came in "
                    f"one batch. Work row by row, or within each {PARTITION} and {OFFSET} (group by both, join on both), "
                    f"and do the rest in an asset downstream"
                )

    def _branch(self, at: int) -> "tuple[list[list[Step]], list[list[Step]]]":
        """Return the steps of each input of a step, and of each of its subqueries. The plan of a subquery is two levels
        deeper than the step, and comes before the inputs."""
        depth = self._steps[at][0]
        inputs: list[list[Step]] = []
        subqueries: list[list[Step]] = []
        for below, one in takewhile(lambda pair: pair[0] > depth, self._steps[at + 1 :]):
            if below == depth + 1:
                inputs.append([])
            elif below == depth + 2 and not inputs:
                subqueries.append([])
            (inputs or subqueries)[-1].append(one)
        return inputs, subqueries

    def _is_frame(self, step: Step) -> bool:
        return step.text == f"SubqueryAlias {self._mark}"

    def _is_ours(self, step: Step) -> bool:
        use = USE.match(step.text)
        return self._is_frame(step) or (use is not None and use[1] in self._ours)

    def _holds_ours(self, steps: Iterable[Step]) -> bool:
        return any(map(self._is_ours, steps))

    def _is_within(self, step: Step) -> bool:
        """Whether rows meet in the step only if they have the same partition and offset."""
        try:
            pairs = self._read_pairs(step)
        except NotShownError:
            return False
        found: dict[str, list[tuple[object, ...]]] = {PARTITION: [], OFFSET: []}
        for column, places in found.items():
            for pair in pairs:
                reached = tuple(self._reach(column, *one) for one in pair)
                places += [reached] if all(reached) else []
        return any(one in found[OFFSET] for one in found[PARTITION])

    def _read_pairs(self, step: Step) -> "list[tuple[tuple[Step, str, str], ...]]":
        """Return the columns whose values are the same in all rows that meet in the step, each with its input. Raises
        NotShownError."""
        if step.kind == "Join" and ALL_OF.fullmatch(step.text):
            one, other = step.inputs
            found = [((a, its), (b, number)) for a, its, b, number in EQUAL.findall(step.text)]
            return [((one, *a), (other, *b)) for pair in found for a, b in (pair, pair[::-1])]
        if step.kind in OF_THE_FIRST:
            one, other = step.inputs
            pairs = zip(_read_columns(one), _read_columns(other), strict=True)
            return [((one, *a), (other, *b)) for a, b in pairs]
        if step.kind in KEYED:
            return [((_only(step.inputs), *key),) for key in step.read_keys()]
        raise NotShownError

    def _reach(self, column: str, step: Step, name: str, number: str) -> frozenset[tuple[int, ...]]:
        """Return the places where the column of this number is that `column` of the frame; none if the plan shows none."""
        trace = Trace(self._mark, column, self._named)
        try:
            trace.follow(step, name, number)
        except (NotShownError, LookupError, ValueError, BadTransform):
            return frozenset()
        return frozenset(trace.places)


def select_origins(result: "DataFrame") -> "DataFrame":
    """Select the two columns whose plan `shows_origins` reads."""
    return result.select(PARTITION, OFFSET)


def sum_origins() -> "tuple[Column, Column]":
    """Return the number of rows, and a sum over their origins. The sum changes if the number of rows of any partition and
    offset changes."""
    from pyspark.sql import functions as F  # noqa: N812

    one = F.xxhash64(PARTITION, OFFSET).cast("decimal(38,0)")
    return F.count(F.lit(1)).alias(ROWS), F.coalesce(F.sum(one), F.lit(0)).alias(SUM)


def require_same(good: "DataFrame", written: "dict[str, int]") -> None:
    """Compare the rows `written`, as `sum_origins` counts them, with the records. This reads the records once more.

    Raises: BadTransform, if any partition and offset has more or fewer rows than records.
    """
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
    """Yield the steps of a plan, each with its depth; none if Spark cut the plan. The plan of a subquery is two deeper than
    its step, and is none of the step's inputs."""
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
    """Return the names and numbers of the columns that a step outputs, in order. Raises NotShownError."""
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
