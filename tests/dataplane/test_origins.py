"""Law: a row goes into the table under the partition and the offset of one record that it was made of."""

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from functools import reduce

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from rota.coordination.parking import unpark
from rota.dataplane.spark import origins, parsing, plans, session
from rota.dataplane.spark.parsing import Parsed
from rota.errors import BadTransform
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.world import World

VIEWS = itertools.count()
AT_ONCE = 6
ROWS = 8  # half of them of each partition, a quarter of each file
DATA = (
    "id", "concat('w', id % 3) as word", "array(id, id + 1) as l", "cast(id as double) as `a, b#1`",
    "if(id < 4, 'p:a', 'p:b') as _partition", "id % 2 as _offset",
)  # fmt: skip
SHOWN = {  # each row is of one record, and the plan shows it
    "adds and drops": "df.withColumn('c', F.col('id') + 1).drop('word', 'l')",
    "few, in another order": "df.select('_offset', 'id', '_partition')",
    "text": "df.selectExpr('upper(word) as u', '*')",
    "renames and back": "df.withColumnRenamed('_partition', 'p').alias('x').withColumnRenamed('p', '_partition')",
    "all names anew": "df.toDF(*[f'{c}_' for c in df.columns]).toDF(*df.columns)",
    "fills": "df.fillna('#N/A, x').fillna(0)",
    "casts to what it is": "df.select(*[F.col(f'`{c}`').cast(t).alias(c) for c, t in df.dtypes])",
    "a schema": "df.to(df.schema)",
    "filters by them": "df.where(F.col('_partition').endswith('a') & (F.col('_offset') > 0))",
    "no nulls": "df.dropna()",
    "explodes": "df.withColumn('e', F.explode('l'))",
    "a sample, elsewhere": "df.sample(0.5, 1).repartition(2).hint('rebalance')",
    "a Python function": "df.withColumn('u', F.udf(lambda p, n: f'{p}{n}', 'string')('_partition', 'id'))",
    "a lookup": "df.join(other.select('word', F.lit(1).alias('k')), 'word', 'left')",
    "a lookup with such columns": "df.join(other, 'word').drop(other['_partition'], other['_offset'], other['id'])",
    "a lookup, broadcast": "df.join(F.broadcast(other.select('word')), 'word', 'left_semi')",
    "everything with everything": "df.crossJoin(other.select(F.col('id').alias('o')))",
    "with itself, within a file": "df.alias('a').join(df.alias('b'), F.expr('a._offset = b._offset and a.id = b.id and "
    "b._partition = a._partition')).select('a.*')",
    "with itself, the other": "df.alias('a').join(df.alias('b').drop('word'), F.expr('(a.id = b.id and a._partition = "
    "b._partition) and (a._offset = b._offset and a.id <= b.id)')).select('b.*')",
    "the greatest of a file": "df.alias('a').join(df.alias('b'), F.expr('a.id < b.id and a._partition = b._partition and "
    "a._offset = b._offset'), 'left_anti')",
    "a sum of a file": "df.join(df.groupBy('_partition', '_offset').agg(F.sum('id').alias('sum')), ['_partition', "
    "'_offset'])",
    "a count of a file, by other names": "df.join(df.toDF(*[f'{c}_' for c in df.columns]).groupBy('_offset_', "
    "'_partition_').agg(F.count('id_').alias('n')), F.expr('_partition = _partition_ and _offset_ = _offset'))",
    "the kinds of a file": "df.join(df.select('_partition', '_offset', 'word').distinct().groupBy('_partition', "
    "'_offset').agg(F.count('word').alias('n')), ['_partition', '_offset'], 'left')",
    "without its own": "df.select('id', '_partition', '_offset').exceptAll(df.where('id > 5').select('id', '_partition', "
    "'_offset'))",
    "a query joined within a file": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'with x as (select * from {v} "
    "where id > 1), y as (select _partition, _offset, max(id) m from {v} group by 1, 2) select x.*, m from x join y using "
    "(_partition, _offset)'))[1]",
    "a query beside a lookup": "(df.createOrReplaceTempView(v), other.createOrReplaceTempView('l' + v), df.sparkSession."
    "sql(f'with y as (select distinct word from l{v}), x as (select * from {v}) select x.* from x join y using (word)'))[2]",
    "twice": "df.union(df)",
    "two kinds": "df.where('id > 3').withColumn('u', F.lit(1)).unionByName(df.where('id < 2').withColumn('u', F.lit(2)))",
    "two kinds, renamed": "df.unionByName(df.toDF(*df.columns)).select('id', '_offset', '_partition')",
    "sorted": "df.orderBy('word').sortWithinPartitions('id')",
    "no doubles within a file": "df.distinct().dropDuplicates(['_partition', 'word', '_offset'])",
    "the last of each in a file": "df.withColumn('n', F.row_number().over(Window.partitionBy('word', '_partition', "
    "'_offset').orderBy('id'))).where('n = 1')",
    "how many in a file": "df.withColumn('n', F.count('*').over(Window.partitionBy('_partition', '_offset')))",
    "a lookup that is an aggregate": "df.join(other.groupBy('word').agg(F.max('id').alias('k')).limit(9), 'word', 'left')",
    "a query with a name": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'with x as (select *, 1 as o from {v} "
    "where id > 1), y as (select word, id, _partition, _offset from x) select * from y'))[1]",
    "a group of a file": "df.groupBy('_partition', '_offset').agg(F.count('id').alias('c'))",
    "a pivot": "df.groupBy('_partition', '_offset').pivot('word', ['w0', 'w1']).agg(F.count('id'))",
    "columns to rows": "df.unpivot(['id', '_partition', '_offset'], ['word'], 'k', 'v')",
    "what others have, too": "df.select('id', '_partition', '_offset').intersect(df.select('id', '_partition', '_offset'))",
    "many columns": "df.select('*', *[F.lit(n).alias(f'c{n}') for n in range(60)]).toDF(*[f'x{n}' for n in range(4)], "
    "'_partition', '_offset', *[f'y{n}' for n in range(60)])",
    "a view": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'select {v}.*, 1 as o from {v} where id > 1'))[1]",
}  # fmt: skip
MADE = {  # an expression makes a column anew
    "one for all": "df.withColumn('_partition', F.lit('p:b'))",
    "exchanged": "df.withColumn('_partition', F.when(F.col('_partition') == 'p:a', 'p:b').otherwise('p:a'))",
    "the other offset": "df.withColumn('_offset', 1 - F.col('_offset'))",
    "the negative, by another name": "df.withColumn('x', F.col('_offset')).withColumn('_offset', -F.col('x'))",
    "of the data": "df.withColumn('_partition', F.concat(F.lit('p:'), 'word'))",
    "another's name": "df.drop('_offset').withColumnRenamed('id', '_offset')",
    "trimmed": "df.withColumn('_partition', F.trim('_partition'))",
    "by a Python function": "df.withColumn('_partition', F.udf(lambda p: p, 'string')('_partition'))",
    "of the row before": "df.withColumn('_partition', F.lag('_partition').over(Window.partitionBy('word').orderBy('id')))",
    "the greatest": "df.withColumn('_offset', F.max('_offset').over(Window.partitionBy('_partition')))",
    "exploded": "df.drop('_offset').withColumn('_offset', F.explode(F.expr('array(0L, 1L)')))",
    "generated": "df.drop('_offset').selectExpr('*', 'explode(array(0L, 1L)) as _offset')",
    "the greatest of a partition": "df.groupBy('_partition').agg(F.max('_offset').alias('_offset'))",
    "of a group of several": "df.groupBy('word').agg(*[F.max(c).alias(c) for c in ('_partition', '_offset')])",
    "a sum": "df.groupBy('_partition').agg(F.sum('_offset').alias('_offset'))",
    "in one of two": "df.where('id > 3').union(df.where('id < 2').withColumn('_partition', F.lit('p:b')))",
    "in one of two by name": "df.withColumn('_offset', F.lit(0).cast('long')).unionByName(df)",
    "of two records": "df.alias('a').join(df.alias('b'), F.expr('a.id > b.id')).select('a.id', 'a._partition', 'b._offset')",
    "of two records of one query": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'with x as (select * from {v}) "
    "select a.id, a._partition, b._offset from x a join x b on a.id > b.id'))[1]",
    "those of a lookup": "df.select('word').join(other, 'word')",
    "a subquery": "df.withColumn('_partition', df.agg(F.max('_partition')).scalar())",
}  # fmt: skip
CUT = {  # the result depends on which files came together
    "limit": "df.orderBy('word').limit(3)",
    "offset": "df.offset(2)",
    "no doubles of a column": "df.dropDuplicates(['word'])",
    "no doubles in a partition": "df.dropDuplicates(['_partition', 'word'])",
    "the last of each": "df.withColumn('n', F.row_number().over(Window.partitionBy('word').orderBy('id'))).where('n = 1')",
    "the last, by both in order alone": "df.withColumn('n', F.row_number().over(Window.partitionBy(F.lit(1)).orderBy("
    "'_partition', '_offset')))",
    "how many in all": "df.withColumn('n', F.count('*').over(Window.partitionBy(F.lit('a'))))",
    "a subquery's sum": "df.withColumn('n', df.agg(F.max('id')).scalar())",
    "above the greatest": "df.where(F.col('id') < df.agg(F.max('id')).scalar())",
    "those that there are": "df.join(df.select('word').distinct(), 'word', 'left_semi')",
    "beside a sum": "df.crossJoin(df.agg(F.sum('id').alias('n')))",
    "in one of two": "df.where('id > 3').limit(1).union(df)",
    "with itself": "df.alias('a').join(df.alias('b'), F.expr('a.word = b.word')).select('a.*')",
    "with itself by one of two": "df.alias('a').join(df.alias('b'), F.expr('a._partition = b._partition')).select('a.*')",
    "with itself by one or the other": "df.alias('a').join(df.alias('b'), F.expr('(a._partition = b._partition) or "
    "(a._offset = b._offset)')).select('a.*')",
    "with itself, crosswise": "df.alias('a').join(df.withColumn('o', F.lit(0).cast('long')).alias('b'), F.expr("
    "'a._partition = b._partition and a._offset = b.o')).select('a.*')",
    "with itself by everything else": "df.alias('a').join(df.alias('b'), F.expr('not (a._partition = b._partition and "
    "a._offset = b._offset)'), 'left_semi')",
    "the newest of each": "df.join(df.selectExpr('word as w', 'id as i'), F.expr('word = w and id < i'), 'left_anti')",
    "what has a newer one": "df.join(df.selectExpr('word as w', 'id as i'), F.expr('word = w and id < i'), 'left_semi')",
    "everything with itself": "df.crossJoin(df.select(F.col('id').alias('o')))",
    "without those of itself": "df.join(df.select('word').exceptAll(df.where('id > 2').select('word')), 'word', "
    "'left_semi')",
    "others in common": "other.select('word').intersect(df.select('word')).join(df, 'word')",
    "in": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'select * from {v} where word in (select word from {v} "
    "where id > 5)'))[1]",
    "not exists": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'select * from {v} a where not exists (select 1 "
    "from {v} b where a.word = b.word and a.id < b.id)'))[1]",
    "a lateral query": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'select a.*, n from {v} a, lateral (select "
    "count(*) n from {v} b where a.word = b.word)'))[1]",
    "two queries with a name": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'with x as (select *, 1 as o from "
    "{v}), y as (select word from x) select x.* from x join y using (word)'))[1]",
    "a sum of a file, beside another": "df.join(df.groupBy('_partition', '_offset').agg(F.sum('id').alias('sum')).drop("
    "'_partition'), ['_offset'])",
    "whole rows, then with itself": "df.join(df.mapInPandas(lambda it: it, df.schema).selectExpr('word as w'), F.expr("
    "'word = w'), 'left_semi')",
    "whole rows, then a limit": "df.mapInPandas(lambda it: it, df.schema).limit(2)",
    "doubles in a query with a name": "(df.createOrReplaceTempView(v), df.sparkSession.sql(f'with x as (select *, 1 as o "
    "from {v} where id > 1), y as (select distinct word from x) select x.* from x join y using (word)'))[1]",
}  # fmt: skip
AWKWARD = (
    "\n", "\r\n", "a\n+- Filter false", "\n      +- GlobalLimit 3\n", "(", ")]", "], [", "'", '\\"', "`", "#1", "of#3L",
    "more fields", "\n\n", " AS offset#2L, ", "\n:  +- Aggregate [", "\n== Optimized Logical Plan ==\n", "\n" + " " * 60,
    ", ", "\u2028", "\0", "[[", "\nSubqueryAlias rota_top", "x AS _partition",
    "... more", "\x0b", "SubqueryAlias", "\t",
)  # fmt: skip
LITERAL = (  # lawful, whatever the text
    "df.withColumn('t', F.lit({0!r})).where('id > 1')",
    "df.withColumn('t', F.lit({0!r})).withColumn('e', F.explode('l'))",
    "df.where(F.col('word') != {0!r})",
    "df.where(F.col('word').isin({0!r}, 'w1')).withColumn('u', F.concat('word', F.lit({0!r})))",
    "df.withColumn('t', F.translate('word', {0!r}, ' ')).filter(F.length('t') > 0)",
    "df.withColumn('e', F.explode(F.split('word', F.lit({0!r}), 1)))",
    "df.fillna({0!r}).where('id < 6')",
    "df.withColumn('u', F.udf(lambda w: w + {0!r}, 'string')('word')).where(F.col('u') > {0!r})",
    "df.join(other.select('word', F.lit({0!r}).alias('k')), 'word', 'left').where(F.col('id') > 1)",
    "df.withColumnRenamed('word', {0!r}).where('id > 1')",
)
HIDDEN = {  # not detectable
    "whole rows in Arrow": "df.mapInArrow(lambda it: it, df.schema)",
    "whole rows in pandas": "df.mapInPandas(lambda it: it, df.schema)",
    "groups in pandas": "df.groupBy('_partition').applyInPandas(lambda one: one, df.schema)",
    "a field": "df.select(F.struct('*').alias('s')).select('s.*')",
    "rows from here": "df.sparkSession.createDataFrame([(1, 'p:a', 0)], 'id long, _partition string, _offset long')",
}


KINDS = {"shown": SHOWN, "made": MADE, "cut": CUT, "hidden": HIDDEN}
ALL = SHOWN | MADE | CUT | HIDDEN


@pytest.fixture(scope="module")
def parsed(spark: SparkSession) -> Parsed:
    session.fit_session(spark)
    return parsing.parse(spark.range(ROWS).selectExpr(*DATA), corruptible=False)


@pytest.fixture(scope="module")
def other(spark: SparkSession) -> DataFrame:
    """A lookup that is a table of rota's itself."""
    return spark.range(3).selectExpr("concat('w', id) as word", "id", "'p:a' as _partition", "id as _offset")


def apply(step: str, df: DataFrame, other: DataFrame) -> DataFrame:
    """The result of a step. Each has a view of its own: Spark looks a view up by its name whenever the result is used."""
    result: DataFrame = eval(step, {"df": df, "F": F, "Window": Window, "other": other, "v": f"v{next(VIEWS)}"})
    return result


def judge(result: DataFrame, mark: str) -> str:
    plan = plans.explain(origins.select_origins(result))
    try:
        return "shown" if origins.shows_origins(plan, mark) else "hidden"
    except BadTransform as error:
        return "cut" if "came in one batch" in str(error) else "made"


def test_what_a_plan_states_of_a_row(parsed: Parsed, other: DataFrame) -> None:
    said = {name: judge(apply(text, parsed.good, other), parsed.mark) for name, text in ALL.items()}
    wanted = {name: said for said, of in KINDS.items() for name in of}
    assert {name: (said[name], one) for name, one in wanted.items() if said[name] != one} == {}


def test_a_text_of_the_transform_is_no_step_of_its_plan(parsed: Parsed, other: DataFrame) -> None:
    """Each text alone, and some at random; the steps after it are as lawful or unlawful as without it."""
    draw, said = random.Random(6), {}
    texts = [*AWKWARD, *("".join(draw.choices(AWKWARD, k=4)) for _ in range(12))]
    for text in texts:
        body = draw.choice(LITERAL).format(text)
        said[body] = judge(apply(body, parsed.good, other), parsed.mark)
        for unlawful, verdict in ((".limit(2)", "cut"), (".withColumn('_offset', 1 - F.col('_offset'))", "made")):
            said[body + unlawful] = judge(apply(body + unlawful, parsed.good, other), parsed.mark)
            assert said.pop(body + unlawful) == verdict, body + unlawful
    assert {body: verdict for body, verdict in said.items() if verdict != "shown"} == {}
    kept = [
        plans.keeps_each_row(plans.explain(parsed.good.withColumn("t", F.lit(text))), parsed.mark) for text in texts
    ]
    assert all(kept)


def find_moved(results: list[DataFrame]) -> list[tuple[object, ...]]:
    """Rows that are not under the origin of the record of their `id`, of results that have it, some in a job: of all in one
    Spark's plan alone costs twice as much."""
    known = [one.select("id", "_partition", "_offset", F.lit(at).alias("at")) for at, one in enumerate(results)]
    moved = "_partition <> if(id < 4, 'p:a', 'p:b') or _offset <> id % 2 or _partition is null or _offset is null"
    jobs = [reduce(DataFrame.union, known[at : at + AT_ONCE]) for at in range(0, len(known), AT_ONCE)]
    return [tuple(row) for job in jobs for row in job.where(moved).collect()]


def test_rows_of_which_the_plan_shows_it_are_under_their_records(parsed: Parsed, other: DataFrame) -> None:
    results = {name: apply(text, parsed.good, other) for name, text in SHOWN.items()}
    with_id = {name: one for name, one in results.items() if "id" in one.columns}
    assert len(with_id) > 20
    assert not find_moved([*with_id.values()])
    assert {at for *_, at in find_moved([apply(text, parsed.good, other) for text in [*MADE.values()][:4]])} == {
        *range(4)
    }


@pytest.mark.parametrize("seed", range(2))
def test_random_transforms_of_which_the_plan_shows_it_keep_it(seed: int, parsed: Parsed, other: DataFrame) -> None:
    """Where several steps follow each other. What is not shown is not compared: it may be so all the same."""
    draw, said, shown = random.Random(seed), Counter[str](), []
    keeping = [t for t in SHOWN.values() if {*parsed.good.columns} <= {*apply(t, parsed.good, other).columns}]
    others = [t for t in ALL.values() if "pandas" not in t and "agg(" not in t]
    for _ in range(20):
        result, chosen = parsed.good, [*draw.choices(keeping, k=draw.randint(1, 3)), draw.choice(others)]
        try:
            for step in chosen:
                result = apply(step, result, other)
            verdict = judge(result, parsed.mark) if {"id", "_partition", "_offset"} <= {*result.columns} else "dropped"
        except (AnalysisException, ValueError):  # such as a column that an earlier step dropped
            continue
        said[verdict] += 1
        shown += [result] if verdict == "shown" else []
    assert said["shown"] >= 3
    assert said["made"]
    assert not find_moved(shown)


BY_CHANCE = {"a sample, elsewhere"}
IN_HALF = "(_partition = 'p:a') = (_offset = 0)"  # of each partition one offset, and another one of each
MEETING = ("with itself", "the newest of each", "what has a newer one", "without those of itself", "in", "not exists")


def find_dependent(texts: Iterable[str], df: DataFrame, other: DataFrame) -> list[str]:
    """The transforms that give other rows for all offsets at once than for two halves of them. It reads no plan."""
    halves = [df.where(IN_HALF), df.where(f"not ({IN_HALF})")]
    found = []
    for text in texts:
        at_once = apply(text, df, other).collect()
        apart = reduce(DataFrame.union, [apply(text, half, other) for half in halves]).collect()
        found += [text] if sorted(map(repr, at_once)) != sorted(map(repr, apart)) else []
    return found


def test_what_becomes_of_a_record_depends_on_its_offset_alone(parsed: Parsed, other: DataFrame) -> None:
    """Of each transform that is taken; the six that meet themselves are refused because they depend on more."""
    shown = [text for name, text in SHOWN.items() if name not in BY_CHANCE]
    assert not find_dependent(shown, parsed.good, other)
    meeting = [CUT[name] for name in MEETING]
    assert find_dependent(meeting, parsed.good, other) == meeting


def test_a_plan_that_is_cut_or_is_another_shows_nothing(parsed: Parsed) -> None:
    plan = plans.explain(origins.select_origins(parsed.good.drop("word")))
    assert origins.shows_origins(plan, parsed.mark)
    assert not origins.shows_origins("", parsed.mark)
    assert not origins.shows_origins(plan.replace("Project [id", "Project [id ... 3 more fields"), parsed.mark)
    with pytest.raises(BadTransform, match=r"_partition anew: .* as they come"):
        origins.shows_origins(plan, f"{parsed.mark}s")


# --- a run ----------------------------------------------------------------------------------------------------------


def declare(world: World, body: str) -> None:
    world.write(f"""
def transform(df):
    from pyspark.sql import functions as F
    return {body}
pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform=transform)
""")


@pytest.fixture
def landed(world: World) -> World:
    """Two partitions of two files of as many rows each: none is known by its number of rows."""
    world.give("a", "b")
    for key in "ab":
        for name in "01":
            world.rows(key, name, 3, 10 * int(name))
    return world


KEPT = {"p:a": {0: 3, 1: 3}, "p:b": {0: 3, 1: 3}}
HALF = "df.withColumn('_partition', F.when(F.col('n') < 10, F.lit('p:b')).otherwise(F.col('_partition')))"
NEWEST = "df.join(df.selectExpr('word as w', 'n as m'), F.expr('word = w and n < m'), 'left_anti')"
SUMS = "df.join(df.groupBy('_partition', '_offset').agg(F.sum('n').alias('sum')), ['_partition', '_offset'])"
FIRST = "df.mapInPandas(lambda it: (one.assign(_partition=one['_partition'].min()) for one in it), df.schema)"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (HALF, "makes the column _partition anew"),
        ("df.withColumn('_offset', 1 - F.col('_offset'))", "makes the column _offset anew"),
        (FIRST, "not one for each record"),
        ("df.where('n > 0').dropDuplicates(['word'])", "has dropDuplicates over rows of several offsets"),
        (NEWEST, "has a join of the frame with itself over rows of several offsets"),
        ("df.mapInPandas(lambda it: (one[one.n > 0] for one in it), df.schema)", "not one for each record"),
    ],
)
def test_rows_that_would_be_under_another_file_are_not_committed(landed: World, body: str, said: str) -> None:
    declare(landed, body)
    events = landed.run("a", "b")
    assert all(isinstance(e, ParkedPartition) and said in e.reason and "\n" not in e.reason for e in events), events
    assert len(events) == 2
    assert not log(landed.table / "main").said("commit")
    declare(landed, SUMS)
    for partition in KEPT:
        unpark(landed.tree, partition)
    assert all(isinstance(e, CommittedBatch) for e in landed.run("a", "b"))
    assert damage(landed.table / "main", KEPT) == NO_DAMAGE


@pytest.mark.parametrize("body", [f"{HALF}.repartition(2)", FIRST])
def test_without_the_guard_rows_are_lost_and_doubled(landed: World, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """The ablation: they are in the table under another partition. A job that goes row by row asks for no column."""
    monkeypatch.setattr(origins, "shows_origins", lambda *_: True)
    declare(landed, body)
    assert all(isinstance(e, CommittedBatch) for e in landed.run("a", "b"))
    found = damage(landed.table / "main", KEPT)
    assert (found["lost"], found["doubled"]) in ((3, 3), (6, 6))


def test_a_text_with_line_breaks_beside_a_filter_stops_no_partition(landed: World) -> None:
    declare(
        landed,
        "df.withColumn('word', F.regexp_replace('word', '\\n', ' ')).where(\"word <> 'more fields'\").where('n > 0')",
    )
    assert all(isinstance(e, CommittedBatch) for e in landed.run("a", "b"))
    few = {"p:a": {0: 2, 1: 3}, "p:b": {0: 2, 1: 3}}
    assert damage(landed.table / "main", few) == NO_DAMAGE


def test_a_function_that_makes_one_row_of_each_is_counted_and_committed(landed: World) -> None:
    """Also after an action inside the transform."""
    kept = "(df.limit(1).collect(), df.mapInPandas(lambda it: it, df.schema))[1]"
    declare(landed, kept)
    assert all(isinstance(e, CommittedBatch) for e in landed.run("a", "b"))
    assert damage(landed.table / "main", KEPT) == NO_DAMAGE
