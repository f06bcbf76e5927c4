"""Faults of the environment park no partition."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN, INSPECT
from rota.dataplane.spark.failures import judge_failure
from rota.errors import BadTransform, ConfigError, EnvironmentFailed
from rota.ledger.ledger import Ledger
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, IdlePartition
from rota.run.work import find_work
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.delta_tables import batch
from tests.dataplane.landing_folders import open_files
from tests.dataplane.stand_ins import consume_without_spark, no_spark, pause_run
from tests.dataplane.world import World


@pytest.mark.parametrize("mount_point", [True, False], ids=["empty mount point", "no folder"])
def test_a_landing_folder_that_is_away_parks_no_partition(world: World, mount_point: bool) -> None:
    """A disk that is not mounted is the environment's fault: once it is mounted, everything continues automatically."""
    world.rows("a", "0", 1)
    world.give("a")
    land, away = world.folder / "land", world.folder / "away"

    def unmount() -> None:
        land.rename(away)
        if mount_point:
            land.mkdir()

    with pytest.raises(EnvironmentFailed, match=f"The landing folder {land} is not there, or empty"):
        world.run("a", connect=pause_run(unmount))
    assert not world.tree.parked()
    if mount_point:
        land.rmdir()
    away.rename(land)
    assert [dict(work.lags) for work in find_work(world.tree, world.pipeline, world.ports.source)] == [{"p:a": (0, 1)}]


@pytest.mark.parametrize("there", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("key", ["a", "b"], ids=["consumed before", "new"])
def test_a_folder_of_tables_that_is_not_mounted_is_left_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, there: bool, key: str
) -> None:
    """No partition is parked and no second table is founded where the disk was mounted, also not for a new
    partition. Once it is mounted again, everything continues automatically."""

    if not there:
        monkeypatch.setattr(Ledger, "open_existing", Ledger.open_or_make)
    for name in "ab":
        world.rows(name, "0", 1)
    world.give("a", "b")
    main = consume_without_spark(world, "p:a", 1)
    world.run("a")
    away, mount = world.folder / "away", world.folder / "tables"
    mount.rename(away)
    mount.mkdir()
    if there:
        with pytest.raises(EnvironmentFailed, match="Is its disk mounted"):
            world.run(key)
    else:
        with suppress(EnvironmentFailed):
            world.run(key, connect=no_spark)
    damage = [*mount.rglob("*.json"), *world.tree.parked()]
    assert bool(damage) != there, damage
    if there:
        mount.rmdir()
        away.rename(mount)
        assert [type(e) for e in world.run("a")] == [IdlePartition]
        assert main.read_positions(("p:a",))["p:a"].offset == 1


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit files to a few bytes: writes raise the system's own error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_each_step_of_a_run_parks_no_partition_and_loses_nothing(world: World) -> None:
    world.rows("a", "0", 1)
    world.rows("a", "1", 1)
    world.give("a")
    with (
        full_disk(),
        pytest.raises(EnvironmentFailed, match=r"index cannot be made \(.*File too large.*Check the disk"),
    ):
        world.run("a", connect=no_spark)
    open_files(world.pipeline).observe(("p:a",), ASSIGN)
    with full_disk(), pytest.raises(EnvironmentFailed, match=r"main cannot be made \(.*File too large.*Check the disk"):
        world.run("a", connect=no_spark)
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    claimed = main.claim({"p:a": world.tree.owned(("p:a",))["p:a"].token}, {"p:a": 0})
    made = batch(main, claimed)
    with (
        full_disk(),
        pytest.raises(EnvironmentFailed, match=r"main cannot be written \(.*File too large.*Check the disk"),
    ):
        main.commit(claimed, made)
    assert not world.tree.parked()
    assert main.read_positions(("p:a",))["p:a"].offset == 0
    main.commit(main.renew(claimed, ("p:a",)), made)
    assert [type(e) for e in world.run("a")] == [CommittedBatch, IdlePartition], "it is reported now"
    assert damage(Path(main.location), {"p:a": {0: 1, 1: 1}}) == NO_DAMAGE


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: flight 12 was cancelled", BadTransform),
        ("[UNRESOLVED_COLUMN] did you mean one of `cancelled`, `carrier`?", BadTransform),
        ("Job 7 cancelled because SparkContext was shut down", EnvironmentFailed),
        ("[SPARK_JOB_CANCELLED] Job 3 cancelled as part of cancellation of all jobs", EnvironmentFailed),
        ("[INVALID_HANDLE.OPERATION_CANCELED] the operation was cancelled", EnvironmentFailed),
    ],
)
def test_a_word_of_the_data_is_no_fault_of_the_environment(text: str, kind: type[Exception]) -> None:
    spark: Any = SimpleNamespace(
        range=lambda n: SimpleNamespace(count=lambda: 1), addTag=lambda tag: None, removeTag=lambda tag: None
    )
    assert isinstance(judge_failure(RuntimeError(text), spark, "p:a"), kind)


def test_a_name_that_is_no_text_delays_no_partition(world: World) -> None:
    world.rows("a", "0", 1)
    bad = os.fsencode(world.folder / "land/a") + b"/caf\xe9.json"
    with open(bad, "wb") as file:
        file.write(b'{"n": 1}\n')
    source = open_files(world.pipeline)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 1}
    assert source.observe((), INSPECT).ignored == {
        os.fsdecode(b"a/caf\xe9.json"): "its name is not UTF-8; give it another"
    }


def test_a_folder_whose_name_is_no_text_and_that_cannot_be_listed_stops_no_other(world: World) -> None:
    """The reason had its name, which no record can contain, and every run of its worker ended in a traceback."""
    world.rows("good", "0", 1)
    (world.folder / "land" / os.fsdecode(b"caf\xe9")).write_text("a file fails for root too")
    world.give("good", "caf%E9")
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("good", "caf%E9", connect=no_spark)  # the run of the good partition reached Spark
    parked = world.tree.parked()["p:caf%E9"].record
    assert r"land/caf\udce9 cannot be looked at (Not a directory)" in parked.reason


def test_a_folder_that_cannot_be_listed_parks_its_own_partition_and_stops_no_other(world: World) -> None:
    """Such as one made with umask 077. Once corrected, its partition continues automatically, also without a new file."""
    for key in "ab":
        world.rows(key, "0", 1)
    world.give("a", "b")
    consume_without_spark(world, "p:a", 1)
    world.run("a")  # writes the checkpoint
    landed = world.folder / "land"
    (landed / "a").rename(landed / "_a")
    (landed / "a").write_text("a file fails for root too")

    def due() -> list[str]:
        return [p for work in find_work(world.tree, world.pipeline, world.ports.source) for p in work.lags]

    assert due() == ["p:a", "p:b"]
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("a", "b", connect=no_spark)  # b got as far as Spark
    parked = world.tree.parked()["p:a"].record
    assert parked.reason.endswith("land/a cannot be looked at (Not a directory). Mend its rights")
    assert parked.retry_at is not None
    assert due() == ["p:b"]
    with pytest.raises(ConfigError, match=r"p:a cannot be skipped: .*/land/a cannot be looked at"):
        skip(world.tree, world.ports, "p:a")
    world.server.clock = lambda: parked.retry_at or 0.0
    (landed / "a").unlink()
    (landed / "_a").rename(landed / "a")
    assert due() == ["p:a", "p:b"], "only a run can say that it is mended"
    (event,) = world.run("a")
    assert isinstance(event, IdlePartition)
    assert not world.tree.parked()
    assert due() == ["p:b"]
