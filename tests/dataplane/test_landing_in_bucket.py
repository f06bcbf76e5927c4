"""Properties of buckets only: keys that are not read, objects that mark a folder, requests, a Spark without jars."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rota.dataplane.files import bucket as buckets
from rota.dataplane.files import listed
from rota.dataplane.files.bucket import PAGE, BucketLanding
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.files.listed import Listed
from rota.dataplane.ports import ASSIGN, INSPECT
from rota.dataplane.spark import plans, spark_server, writing
from rota.errors import ConfigError, EnvironmentFailed
from rota.local.bucket import BucketServer
from rota.run.consume import CommittedBatch
from rota.stores import open_files, open_objects
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.landing_folders import encode
from tests.dataplane.landing_folders import open_files as open_source
from tests.dataplane.world import World, kill, start_spark
from tests.dataplane.written import read_numbers

MANY = 300
OTHER = "df.selectExpr('n m', '_partition p', '_offset o')"  # the frame itself, joined within each object
WITHIN = "F.expr('n = m and _partition = p and _offset = o')).drop('m', 'p', 'o')"


@pytest.fixture
def world(tmp_path: Path, bucket: str) -> World:
    return World(tmp_path, landing=f"{bucket}/land")


def open_landed(world: World) -> FilesSource:
    return open_source(world.pipeline)


def test_a_key_that_cannot_be_read_has_a_reason_and_keeps_no_partition_waiting(
    world: World, bucket_server: BucketServer, bucket: str
) -> None:
    """The client of the bucket refuses to list all keys of a prefix that has one with a tab."""
    for name in ("0", "1"):
        world.rows("a", name, 1)
    world.rows("b", "0", 1)
    world.rows("_later", "0", 1)
    world.rows("b/.hidden", "0", 1)
    odd = bucket_server.data / bucket.removeprefix("s3://") / "land" / "a" / "x\ty.json"
    odd.write_text("{}")
    world.put("beside.json", b"")
    source = open_landed(world)
    assert source.list_keys() == ("a", "b")
    assert source.observe(("p:a", "p:b"), ASSIGN).ends == {"p:a": 2, "p:b": 1}
    assert not source.find_broken({"p:a": (0, 2)}), "what Arrow listed is what the bucket has"
    assert source.observe((), INSPECT).ignored == {
        "a/x\\ty.json": "its key has a control character, or a slash too many; land it under another",
        "beside.json": "it lies in no partition's folder; move it into one",
    }
    world.rows("a", "2", 1)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 3}


def test_what_shows_a_folder_is_no_file(world: World) -> None:
    world.rows("a", "0", 1)
    world.put("a/empty.json", b"")
    open_files(world.landing).create_dir("a/sub", recursive=True)
    source = open_landed(world)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 2}
    assert not source.observe((), INSPECT).ignored


def test_a_late_name_before_all_others_is_found_among_several_pages(world: World) -> None:
    store = open_objects(world.landing)
    for number in range(PAGE + 5):
        store.put(f"a/f{number:05}.json", b"{}")
    source = open_landed(world)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": PAGE + 5}
    world.rows("a", "before", 1)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": PAGE + 6}
    assert source.locate("p:a", PAGE + 5) == "a/before.json"


def test_many_objects_are_looked_at_by_a_list_and_found_as_each_by_itself(
    world: World, bucket_server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are unchanged, some rewritten, some deleted, and some have a hidden folder between them."""
    for number in range(PAGE + 200):
        world.put(f"a/{number:05}.json", b"{}")
    world.put("a/sub/00500.json", b"{}")
    landing = BucketLanding(world.landing)
    ((_, files),) = landing.list_rested({"a": frozenset()}, 0.0, 0.0, [])
    assert not isinstance(files, OSError)
    for number in range(0, PAGE, 7):
        world.put(f"a/{number:05}.json", b"{ }")
    for number in range(3, PAGE, 7):
        world.delete(f"a/{number:05}.json")
    for asked in (files, files[700:], files[:16], files[5:8], [f for f in files if f.path.startswith("a/sub")]):
        before = bucket_server.count_requests()
        look = landing.look(asked)
        cost = bucket_server.count_requests() - before
        with monkeypatch.context() as patched:
            patched.setattr(buckets, "DEAR", 1 << 30)
            alone = landing.look(asked)
        assert [look(file) for file in asked] == [alone(file) for file in asked]
        assert cost <= 3, (cost, len(asked))


def test_a_bucket_that_is_not_there_parks_no_partition(world: World, bucket_server: BucketServer, bucket: str) -> None:
    world.rows("a", "0", 1)
    source = open_landed(world)
    source.observe(("p:a",), ASSIGN)
    folder = bucket_server.data / bucket.removeprefix("s3://")
    folder.rename(folder.with_name(f"{folder.name}-away"))
    with pytest.raises(EnvironmentFailed, match=r"cannot be listed"):
        source.list_keys()
    with pytest.raises(EnvironmentFailed, match=r"cannot be listed"):
        source.observe(("p:a",), ASSIGN)
    with pytest.raises(EnvironmentFailed, match=r"is not there, or empty"):
        source.find_broken({"p:a": (0, 1)})
    with pytest.raises(ConfigError, match=r"there is no such bucket. Make it"):
        source.observe((), INSPECT)


def test_a_batch_costs_a_bounded_number_of_requests_an_object(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, endpoint: str, spark: SparkSession
) -> None:
    """In a run: one read of its bytes, and Spark's own requests. rota lists the objects twice. Spark makes more
    requests if a folder has other objects."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    world.give("a", "b", "c")
    for number in range(MANY):
        world.rows("abc"[number % 3], f"{number:04}", 3)
    before = bucket_server.count_requests()
    world.run("a", "b", "c")
    asked = Counter(line.split()[0] for line in bucket_server.list_requests(before))
    expected = {f"p:{key}": dict.fromkeys(range(MANY // 3), 3) for key in "abc"}
    assert damage(world.table / "main", expected) == NO_DAMAGE
    assert sum(asked.values()) < 4 * MANY, asked
    before = bucket_server.count_requests()
    world.run("a", "b", "c")
    assert bucket_server.count_requests() - before < 10, "nothing is new"
    for number in range(MANY):
        world.rows("abc"[number % 3], f"{MANY + number:04}", 3)
    before = bucket_server.count_requests()
    world.run("a", "b", "c")
    assert bucket_server.count_requests() - before < 7 * MANY


ODD_NAMES = ("a b", "a#1", "a%20", "a+b", "b=1", "é", "{x}", "x[1]", "a:b", "q?", "*")
ODD_FOLDER = "k é=2#%"  # without characters that are a pattern to Hadoop: with them it finds no colon below


def test_a_folder_without_others_is_listed_by_spark_at_once(
    tmp_path: Path, bucket: str, bucket_server: BucketServer, endpoint: str, spark: SparkSession
) -> None:
    """Whatever the names of the folder and its objects. Otherwise the objects are named, with one request each."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    for name in ODD_NAMES:
        world.put(f"{ODD_FOLDER}/{name}.json", encode("json", range(3)))
        world.put(f"{ODD_FOLDER}/sub/{name}.json", encode("json", range(3)))
    source = open_landed(world)
    (key,) = source.list_keys()
    ranges = {p: (0, end) for p, end in source.observe((f"p:{key}",), ASSIGN).ends.items()}
    assert list(ranges.values()) == [(0, 2 * len(ODD_NAMES))]

    def read() -> tuple[int, int]:
        before = bucket_server.count_requests()
        with source.read(spark, ranges, "x") as records:
            records.frame.schema  # noqa: B018
            asked = bucket_server.count_requests() - before - 2 * len(ODD_NAMES)  # the bytes are counted
            return records.identify(records.frame).count(), asked

    rows, asked = read()
    assert rows == 6 * len(ODD_NAMES)
    assert asked < 10, "of two folders"
    world.rows(ODD_FOLDER, "more", 1)
    rows, asked = read()
    assert rows == 6 * len(ODD_NAMES)
    assert asked > 4 * len(ODD_NAMES)


@pytest.mark.parametrize("guarded", [True, False])
def test_what_lands_behind_the_list_is_of_no_job(
    guarded: bool, tmp_path: Path, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """In a session with an old list of a folder, rows of the other object are an error."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    for name in "012":
        world.rows("a", name, 2)
    source = open_landed(world)
    source.observe(("p:a",), ASSIGN)
    world.rows("a", "3", 2)
    place = f"s3a://{bucket.removeprefix('s3://')}/land"
    if not guarded:
        monkeypatch.setattr(type(spark.range(1)), "inputFiles", lambda _: [f"{place}/a/{n}.json" for n in "012"])
    with source.read(spark, {"p:a": (0, 3)}, "x") as records:
        if guarded:
            assert records.identify(records.frame).count() == 6
            return
        with pytest.raises(PySparkException, match=r"what is not of this job: .*/a/3.json"):
            records.identify(records.frame).collect()


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_without_a_transform_a_row_is_under_the_object_of_whose_name_it_has_the_number(
    format: str,
    guarded: bool,
    tmp_path: Path,
    bucket: str,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    """Whatever the name of the object. If two names are exchanged, the rows are exchanged, too."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    world.write(f"pipeline = Pipeline(source=source(format={format!r}, schema='n int'), table=delta({{table!r}}))\n")
    world.give("a", "b")
    names = sorted(ODD_NAMES)
    for key, begin in (("a", 0), ("b", 1000)):
        for offset, name in enumerate(names):
            numbers = range(begin + 10 * offset, begin + 10 * offset + 9)
            world.put(f"{key}/{name}.{format}", encode(format, numbers))
    if not guarded:
        real = Listed.named.fget
        swap = {0: 1, 1: 0}
        lie = property(lambda self: {n: (p, swap.get(o, o)) for n, (p, o) in real(self).items()})
        monkeypatch.setattr(Listed, "named", lie)
    assert {type(event) for event in world.run("a", "b")} == {CommittedBatch}
    found = read_numbers(world)
    wrong = [
        (partition, offset)
        for partition, begin in (("p:a", 0), ("p:b", 1000))
        for offset in range(len(names))
        if found[partition, offset] != Counter(range(begin + 10 * offset, begin + 10 * offset + 9))
    ]
    assert wrong == ([] if guarded else [("p:a", 0), ("p:a", 1), ("p:b", 0), ("p:b", 1)])
    assert len(found) == 2 * len(names)


def test_a_row_of_no_object_of_the_job_is_no_data_error(
    tmp_path: Path, bucket: str, endpoint: str, spark: SparkSession
) -> None:
    """Java has another name for an object than this process: nothing is committed, and no partition is parked."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    world.give("a")
    world.rows("a", "0", 3)
    real = listed.escape_as_java
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listed, "escape_as_java", lambda uri: real(uri).replace("/0.json", "/%30.json"))
        with pytest.raises(EnvironmentFailed, match=r"Spark read what is not of this job"):
            world.run("a")
    assert not world.tree.parked()
    world.run("a")
    assert damage(world.table / "main", {"p:a": {0: 3}}) == NO_DAMAGE


UDF = "F.udf(lambda n: n >= 0, 'boolean')('n')"


@pytest.mark.parametrize(
    ("format", "body", "by_name"),
    [
        ("json", f"df.coalesce(1).join({OTHER}.coalesce(1).hint('merge'), {WITHIN}", False),
        ("parquet", f"df.coalesce(1).join({OTHER}.coalesce(1).hint('merge'), {WITHIN}", False),
        ("json", f"df.coalesce(1).join({OTHER}.coalesce(1).hint('shuffle_hash'), {WITHIN}", False),
        ("parquet", "df.crossJoin(SIDE).drop('m')", False),
        ("json", "df.where('n % 2 = 0').union(df.where('n % 2 = 1')).coalesce(1)", False),
        ("parquet", f"df.where({UDF}).sort('n')", False),
        ("parquet", f"df.withColumn('more', {UDF})", False),
        ("json", "df.persist().repartition(3)", False),
        ("json", "df.persist().where('n >= 0')", False),
        ("json", "df.join(SIDE.where(F.lit(False)), F.expr('n = m'), 'left').drop('m')", False),
        ("parquet", "df.join(SIDE.dropDuplicates(['m']), F.expr('n = m'), 'left').drop('m')", False),
        ("json", "df.join(SIDE, F.lit(False), 'left_anti')", False),
        ("parquet", "df.where('n >= 0').withColumn('more', F.rand())", True),
        ("json", "df.where('n >= 0').withColumn('more', F.expr('n * 2'))", True),
    ],
)
def test_a_row_stays_under_its_object_where_one_thread_reads_several(
    format: str,
    body: str,
    by_name: bool,
    tmp_path: Path,
    bucket: str,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    """Spark reports which object a thread has open, not the object of a row: both are the same only row by row. Spark
    reports nothing if a plan has two relations, even if it drops one."""
    real, names = writing.write, list[bool]()
    monkeypatch.setattr(writing, "write", lambda *a, **more: names.append(bool(more.get("named"))) or real(*a, **more))
    world, wanted = land_for(format, body, tmp_path, bucket, endpoint, spark)
    assert {type(event) for event in world.run("a", "b")} == {CommittedBatch}
    assert read_numbers(world) == wanted
    assert set(names) == {by_name}


def test_rows_of_an_udf_are_not_row_by_row(
    tmp_path: Path, bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Ablation: the thread reads ahead for Python, and rows are under other objects than their own."""
    monkeypatch.setattr(plans, "goes_row_by_row", lambda _: True)
    world, wanted = land_for("parquet", f"df.coalesce(1).withColumn('more', {UDF})", tmp_path, bucket, endpoint, spark)
    assert {type(event) for event in world.run("a", "b")} == {CommittedBatch}
    found = read_numbers(world)
    assert found != wanted
    assert sum(found.values(), Counter()) == sum(wanted.values(), Counter()), "each row is there once"


def land_for(
    format: str, body: str, tmp_path: Path, bucket: str, endpoint: str, spark: SparkSession
) -> tuple[World, dict[tuple[str, int], Counter[int]]]:
    """A world with ten objects and this transform, in which SIDE is another table; and the numbers of each object."""
    (tmp_path / "side.json").write_text('{"m": 1}\n')
    body = body.replace("SIDE", f"df.sparkSession.read.schema('m int').json({str(tmp_path / 'side.json')!r})")
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    world.write(f"""
def transform(df):
    from pyspark.sql import functions as F
    return {body}
source = source(format="{format}", schema="n int")
pipeline = Pipeline(source=source, table=delta({{table!r}}), transform=transform)
""")
    world.give("a", "b")
    wanted = {
        (f"p:{key}", o): Counter(range(begin + 10 * o, begin + 10 * o + 9))
        for key, begin in (("a", 0), ("b", 100))
        for o in range(5)
    }
    for (partition, offset), numbers in wanted.items():
        world.put(f"{partition[-1]}/{offset}.{format}", encode(format, numbers))
    return world, wanted


def test_a_lookup_that_does_not_stand_on_its_reader_is_an_error(
    tmp_path: Path, bucket: str, endpoint: str, spark: SparkSession
) -> None:
    """After a shuffle Spark no longer reports which object was open."""
    world = World(tmp_path, endpoint, spark=spark, landing=f"{bucket}/land")
    world.give("a")
    world.rows("a", "0", 3)
    source = world.ports.source
    ends = source.observe(("p:a",), ASSIGN).ends
    with source.read(spark, {"p:a": (0, ends["p:a"])}, "x") as records:  # type: ignore[attr-defined]
        assert records.identify(records.frame).count() == 3
        assert {row["_offset"] for row in records.identify(records.frame).collect()} == {0}
        with pytest.raises(PySparkException, match=r"what is not of this job"):
            records.identify(records.frame.repartition(2)).collect()


def test_a_spark_without_the_jars_names_the_command_and_parks_no_partition(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_server, "list_jars", tuple)
    server, endpoint = start_spark(tmp_path / "spark")
    try:
        world = World(tmp_path, endpoint, landing=f"{bucket}/land")
        world.give("a")
        world.rows("a", "0", 1)
        with pytest.raises(
            EnvironmentFailed, match=r"no jars to read a bucket .* rota prepare --s3; then start the worker"
        ):
            world.run("a")
        assert not world.tree.parked()
    finally:
        kill(server)
