"""Executors that see the landing folder and the tables and nothing else: no checkout, no helper module, another Python."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark import cloudpickle

from rota.dataplane.spark import transforming
from rota.errors import EnvironmentFailed
from rota.run.consume import CommittedBatch
from tests.cluster.conftest import Place
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.landing_folders import encode
from tests.dataplane.world import World
from tests.waiting import wait_until

HELPED = """
import _help
def transform(frame):
    import _late_help
    from pyspark.sql.functions import udf
    def work(n):
        import importlib.util, os
        seen = [name for name in ("rota", "tests", "_help") if importlib.util.find_spec(name)]
        return f"{_help.triple(n)} {_late_help.triple(n)} {seen} {os.environ['HOME']} {os.getcwd()}"
    return frame.withColumn("said", udf(work, "string")("n"))
pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)
"""
ELSEWHERE = """
def transform(frame):
    from pyspark.sql.functions import udf
    def work(n):
        import _help
        return _help.triple(n)
    return frame.withColumn("said", udf(work, "int")("n"))
pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)
"""
SLOW = """
def transform(frame):
    from pyspark.sql.functions import udf
    def work(n):
        import os, time
        open({begun!r}, "w").close()
        while not os.path.exists({free!r}):
            time.sleep(0.05)
        return 3 * n
    return frame.withColumn("said", udf(work, "int")("n"))
pipeline = Pipeline(source=source(), table=delta({table!r}), transform=transform)
"""
HELPERS = ("_help", "_late_help")


@pytest.fixture
def helpers(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The pipelines' folder, with two helpers that the runs can import."""
    folder = world.folder / "pipelines"
    for name in HELPERS:
        (folder / f"{name}.py").write_text("def triple(n):\n    return 3 * n\n")
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in HELPERS:
        if module := sys.modules.pop(name, None):
            with suppress(ValueError):  # it was not sent
                cloudpickle.unregister_pickle_by_value(module)


def test_a_pipeline_and_its_helpers_travel_to_executors_without_them(world: World, helpers: Path, place: Place) -> None:
    world.write(HELPED)
    world.rows("a", "0", 20)
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch)
    for row in log(world.table / "main").rows():
        first, late, seen, rest = str(row["said"]).split(" ", 3)
        assert (int(first), int(late), seen) == (3 * int(str(row["n"])),) * 2 + ("[]",)
        assert str(place.cluster.folder) in rest


def test_what_decodes_avro_travels_to_executors_without_rota(world: World) -> None:
    world.write("pipeline = Pipeline(source=source(format='avro', schema='n int'), table=delta({table!r}))\n")
    for n in range(2):
        world.put(f"a/{n}.avro", encode("avro", range(20)))
    world.give("a")
    (event,) = world.run("a")
    assert isinstance(event, CommittedBatch)
    assert damage(world.table / "main", {"p:a": {0: 20, 1: 20}}) == NO_DAMAGE


def test_without_what_sends_them_a_helper_is_missed(
    world: World, helpers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: sent once, before the transform imports the late one. No partition is parked."""
    monkeypatch.setattr(transforming, "send_by_value", lambda _: None)
    world.write(HELPED)
    world.rows("a", "0", 20)
    world.give("a")
    with pytest.raises(EnvironmentFailed, match="no module '_late_help', which is here"):
        world.run("a")
    assert not world.tree.parked()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("without packages", "no module 'pyarrow', which is here. Install it there"),
        (
            "like ours",
            "no module '_help', which is here. Install it there; or, if it is your own, put it beside",
        ),
    ],
)
def test_what_executors_lack_is_one_line_and_parks_no_partition(
    world: World, helpers: Path, place: Place, kind: str, said: str
) -> None:
    """Once they have it, the same rows come in."""
    world.write(ELSEWHERE)
    for key in "ab":
        world.rows(key, "0", 20)
    world.give("a", "b")
    place.python.become(kind)
    with pytest.raises(EnvironmentFailed, match=said) as caught:
        world.run("a", "b")
    assert len(str(caught.value).splitlines()) == 1
    assert not world.tree.parked()
    place.python.become("like ours")
    world.write(HELPED)
    world.run("a", "b")
    assert damage(world.table / "main", {"p:a": {0: 20}, "p:b": {0: 20}}) == NO_DAMAGE


def test_all_executors_killed_in_a_batch_cost_time_and_no_row(world: World, place: Place) -> None:
    """kill -9: Spark repeats the tasks on executors that the master starts, in the same batch."""
    begun, free = world.folder / "begun", world.folder / "free"
    world.write(SLOW.replace("{begun!r}", repr(str(begun))).replace("{free!r}", repr(str(free))))
    for key in "ab":
        world.rows(key, "0", 50)
    world.give("a", "b")
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(world.run, "a", "b")
        wait_until(lambda: begun.exists() or run.done())
        killed = place.cluster.find_executors()
        for executor in killed:
            executor.kill()
        free.touch()
        events = run.result()
    assert len(killed) == 2
    assert {type(event) for event in events} == {CommittedBatch}
    assert not world.tree.parked()
    assert damage(world.table / "main", {"p:a": {0: 50}, "p:b": {0: 50}}) == NO_DAMAGE
    wait_until(lambda: len(place.cluster.find_executors()) == 2)
