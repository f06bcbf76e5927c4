"""Faults around a run that no Spark is needed to show: a stand-in session lets the world move while the run is "paused"."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from rota.adopt import adopt
from rota.backlog import backlog, owners
from rota.consume import CommittedBatch, DroppedPartition, Event, IdlePartition, ParkedPartition, _Run, consume
from rota.coordination import membership
from rota.coordination.checkpoint import Entry, write_checkpoints
from rota.coordination.group_state import GroupState
from rota.coordination.membership import register_run
from rota.coordination.parking import park, unpark
from rota.coordination.records import Checkpoint, RunNode
from rota.coordination.repair import find_unreadable, repair
from rota.coordination.store import Check
from rota.dataplane.delta import replacement
from rota.dataplane.delta.fenced_table import FencedTable
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.spark.failures import judge_failure
from rota.errors import BadTransform, ConfigError, Conflict, EnvironmentFailed, Fenced, ForeignTable, Unavailable
from rota.rights import read_rights
from rota.skip import skip
from tests.ablations import NO_RUN, changed
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.test_fenced_table import batch, ledger
from tests.dataplane.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def paused(meanwhile: Callable[[], object]) -> Callable[[str | None], Any]:
    """What a run gets as Spark: nothing that works; `meanwhile` happens before the run goes on."""

    def connect(_: str | None) -> Any:
        meanwhile()
        return SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))

    return connect


def no_spark(_: str | None) -> Any:
    """A run gets as far as this."""
    raise EnvironmentFailed("no Spark here")


def taken(world: World, worker: str, key: str) -> str:
    """Another worker claims the partition, under a target of its own."""
    incarnation = world.join(worker)
    return world.give(key, incarnation=incarnation)


# --- a zombie parks nobody ------------------------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    """A run parks under one check less: of the own record ("own") or of its own node ("runs")."""
    real = _Run._prove

    def checks(run: _Run, partition: str) -> tuple[Check, ...]:
        return tuple(one for one in real(run, partition) if f"/{guard}/" not in one.path)

    monkeypatch.setattr(_Run, "_prove", checks)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_that_was_overtaken_parks_nobody(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """The new owner consumed the file, and whoever landed it took it away: only the zombie misses it."""
    if not guarded:
        without(monkeypatch, "own")
    world.rows("a", "0", 1)
    zombie = world.give("a")

    def overtaken() -> None:
        taken(world, "w2", "a")
        (world.folder / "land/a/0.json").unlink()

    events = world.run("a", incarnation=zombie, connect=paused(overtaken))
    assert [type(e) for e in events] == [DroppedPartition if guarded else ParkedPartition], events
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_whose_session_ended_parks_nobody(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Its partition may be another run's of the same owner by now."""
    if not guarded:
        without(monkeypatch, "runs")
    world.rows("a", "0", 1)
    world.give("a")

    tree = GroupState(world.server.connect(), "g")

    def expired() -> None:
        world.server.expire(tree.store.session)
        with pytest.raises(Unavailable):
            tree.store.sync()
        (world.folder / "land/a/0.json").unlink()

    ports = world.open_ports(connect=paused(expired))
    events = list(consume(tree, world.pipeline, world.incarnation, ["p:a"], "run", ports))
    assert [type(e) for e in events] == [DroppedPartition if guarded else ParkedPartition], events
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_parks_nobody_for_what_another_run_consumed(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """The other has lost its session and not its token: it commits as long as nobody claims anew. A person would have to
    retry what is long in the table."""
    if not guarded:
        monkeypatch.setattr(_Run, "_was_overtaken", lambda run, partition, offset: False)
    world.rows("a", "0", 1)
    world.give("a")

    def outrun() -> None:
        consumed(world, "p:a", 1)
        (world.folder / "land/a/0.json").unlink()

    (event,) = world.run("a", connect=paused(outrun))
    assert isinstance(event, DroppedPartition if guarded else ParkedPartition)
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_run_whose_session_ended_writes_no_checkpoint_over_an_adoption(world: World, guarded: bool) -> None:
    """Who adopts sees no run. A checkpoint of what the table held before would stop the partition once more."""
    for name in "01":
        world.rows("a", name, 1)
    world.give("a")
    zombie = world.open()
    node = register_run(zombie, "zombie", world.incarnation, ["p:a"])
    held = read_rights(zombie, world.incarnation, node, ["p:a"]).held["p:a"]
    consumed(world, "p:a", 1)
    shutil.copytree(world.table, world.folder / "copy")
    consumed(world, "p:a", 2)
    world.server.expire(zombie.store.session)
    with pytest.raises(Unavailable):
        zombie.store.sync()
    shutil.rmtree(world.table)
    (world.folder / "copy").rename(world.table)
    adopt(world.tree, [world.pipeline])
    entry = Entry(held, Checkpoint(offset=2, token=held.token, run_id="zombie"), zombie.checkpoints()["p:a"])
    with pytest.raises(Conflict) if guarded else nullcontext():
        if not guarded:
            changed(zombie.store, NO_RUN)
        write_checkpoints(zombie, node, [entry])
    with pytest.raises(EnvironmentFailed, match="no Spark") if guarded else nullcontext():
        world.run("a", connect=no_spark)
    assert bool(world.tree.parked()) != guarded


@pytest.mark.parametrize(
    ("key", "typed"), [("a", "p:a"), ("Café Zürich", "'p:Café Zürich'"), (r"a\g<1>$(x)", r"'p:a\g<1>$(x)'")]
)
def test_the_rightful_run_parks_what_vanished(world: World, key: str, typed: str) -> None:
    """The next step can be typed as it stands, whatever the partition is called."""
    world.rows(key, "0", 1)
    world.give(key)
    (event,) = world.run(key, connect=paused(lambda: (world.folder / "land" / key / "0.json").unlink()))
    assert isinstance(event, ParkedPartition)
    assert world.tree.parked()[f"p:{key}"].record.reason == (
        f"p:{key}: {key}/0.json (offset 0) vanished before it was consumed. Bring it back, then: rota retry {typed}. Or, if "
        f"it is gone for good: rota skip {typed}"
    )


# --- nothing unreadable is taken for less ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parking", "checkpoint", "own", "live"])
def test_an_unreadable_record_keeps_its_partition_waiting(world: World, kind: str) -> None:
    """Unreadable is neither "not parked", nor "never consumed", nor "nobody's", nor "without a Spark of its own"."""
    for key in "ab":
        world.rows(key, "0", 1)
    world.give("a", "b")
    path = {
        "parking": world.tree.paths.parking("p:a"),
        "checkpoint": world.tree.paths.checkpoint("p:a"),
        "own": world.tree.paths.own("p:a"),
        "live": world.tree.paths.live(world.incarnation),
    }[kind]
    store = world.tree.store
    store.set(path, b"\xff", -1) if store.get(path) else store.create(path, b"\xff")
    left = {"p:a"} if kind != "live" else {"p:a", "p:b"}
    found = owners(world.tree, world.pipeline, ["p:a", "p:b"])
    assert set(found.skipped) == left
    assert all("cannot be read" in why for why in found.skipped.values()), found.skipped
    assert {p for w in backlog(world.tree, world.pipeline, world.ports.source) for p in w.lags} == {"p:a", "p:b"} - left
    seen: list[str | None] = []

    def connect(endpoint: str | None) -> Any:
        seen.append(endpoint)
        raise EnvironmentFailed("no Spark here")

    events: list[Event] = []
    try:
        events = world.run("a", "b", connect=connect)
    except EnvironmentFailed:
        assert kind != "live"
    else:
        assert kind == "live"
        assert {e.partition for e in events if isinstance(e, DroppedPartition)} == left
        assert not seen


# --- a table that Delta itself restored ------------------------------------------------------------------------------


def test_a_restored_table_parks_what_it_holds_until_it_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the checkpoint, the token and the table's id are those of before. The log is read once for all of them:
    for each it took a run hours."""
    for name in ("0", "1"):
        world.rows("a", name, 1)
    world.give("a", "b")
    main = consumed(world, "p:a", 2)
    assert [type(e) for e in world.run("a")] == [CommittedBatch, IdlePartition]
    DeltaTable(main.path).restore(1)
    before = DeltaTable(main.path).version()
    world.rows("a", "2", 1)
    read: list[int] = []
    past = FencedTable.read_log
    monkeypatch.setattr(FencedTable, "read_log", lambda self, since=-1: read.append(since) or past(self, since))
    event, other = world.run("a", "b", connect=paused(lambda: None))
    assert read == [1]
    assert isinstance(other, ParkedPartition), other
    assert isinstance(event, ParkedPartition), event
    assert event.retry_at is None
    assert "(RESTORE) changed rows" in event.reason
    assert "rota adopt" in event.reason
    assert "(of p:a: 0 to 2)" in event.reason
    with pytest.raises(ForeignTable, match="RESTORE"):
        skip(world.tree, world.ports, "p:a")
    assert DeltaTable(main.path).version() == before
    adopt(world.tree, [world.pipeline])
    assert not world.tree.parked()
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)


# --- what was given an offset keeps it ------------------------------------------------------------------------------


def test_a_lost_index_stops_the_partition(world: World) -> None:
    """Without it, files that landed since would get the ordinals of those that were consumed: they would be lost."""
    for name in ("0", "1"):
        world.rows("a", name, 1)
    world.give("a")
    consumed(world, "p:a", 2)
    shutil.rmtree(world.table / "index")
    for name in ("0", "1"):
        (world.folder / f"land/a/{name}.json").unlink()
    for name in ("2", "3"):
        world.rows("a", name, 1)
    (event,) = world.run("a", connect=paused(lambda: None))
    assert isinstance(event, ParkedPartition), event
    assert "index" in event.reason
    assert not (world.table / "index").exists()


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_refused_skip_renumbers_no_lost_index(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Each file is read once: a skip that gave offsets would number the files anew and switch the guard of runs off."""
    for name in ("2", "3"):
        world.rows("a", name, 1)
    world.give("a")
    consumed(world, "p:a", 2)
    shutil.rmtree(world.table / "index")
    for name in ("1", "4"):  # the first late, both new
        world.rows("a", name, 1)
    (event,) = world.run("a", connect=paused(lambda: None))
    assert isinstance(event, ParkedPartition), event
    if not guarded:
        monkeypatch.setattr("rota.skip.find_lost_offsets", lambda *_: {})
    for to in (99, 3):
        with suppress(ConfigError):
            skip(world.tree, world.ports, "p:a", to=to)
    unpark(world.tree, "p:a")  # rota retry
    read = ["a/2.json", "a/3.json"]
    try:
        (event,) = world.run("a", connect=no_spark)
        assert isinstance(event, ParkedPartition), event
    except EnvironmentFailed:  # it got as far as Spark
        source = FilesSource.of(world.pipeline)
        read += [source.locate("p:a", offset) for offset in range(2, source.read_assigned_ends(("p:a",))["p:a"])]
    doubled = len(read) - len(set(read))
    assert bool(doubled) != guarded, read
    assert (world.table / "index").exists() != guarded


def test_a_lost_index_without_a_copy_is_begun_anew_with_its_table(world: World) -> None:
    """The way on that the park names: every file that is there is read, into a table of its own."""
    for name in ("2", "3"):
        world.rows("a", name, 1)
    world.give("a")
    consumed(world, "p:a", 2)
    world.run("a", connect=no_spark)
    shutil.rmtree(world.table / "index")
    world.rows("a", "1", 1)
    (event,) = world.run("a", connect=paused(lambda: None))
    assert isinstance(event, ParkedPartition), event
    assert f"move {world.table} away, then rota adopt" in event.reason
    world.table.rename(world.folder / "aside")
    adopt(world.tree, [world.pipeline])
    with pytest.raises(EnvironmentFailed, match="no Spark"):
        world.run("a", connect=no_spark)
    source = FilesSource.of(world.pipeline)
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    assert [source.locate("p:a", offset) for offset in range(3)] == ["a/1.json", "a/2.json", "a/3.json"]
    assert main.read_positions(("p:a",))["p:a"].offset == 0


def consumed(world: World, partition: str, end: int) -> FencedTable:
    """As if a run had consumed everything: the index, the offset and the checkpoint."""
    FilesSource.of(world.pipeline).assign_offsets((partition,))
    main = PipelineTables.of(world.pipeline, "g", world.tree.meta().id).main
    token = world.tree.owned((partition,))[partition].token
    claimed = main.claim({partition: token}, {partition: 0})
    main.commit(claimed, batch(main, claimed, ends={partition: end}))
    return main


def test_a_skip_stays_within_what_has_an_offset(world: World) -> None:
    """Else the files that land next would be skipped unseen."""
    world.rows("a", "0", 1)
    world.give("a")
    main = consumed(world, "p:a", 1)
    with pytest.raises(ConfigError, match="nothing"):
        skip(world.tree, world.ports, "p:a")
    world.rows("a", "1", 1)
    with pytest.raises(ConfigError, match="2"):
        skip(world.tree, world.ports, "p:a", to=5)
    assert main.read_positions(("p:a",))["p:a"].offset == 1


def test_a_skip_that_a_new_owner_overtook_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "01":
        world.rows("a", name, 1)
    world.give("a")
    main = consumed(world, "p:a", 1)

    def meanwhile(source: FilesSource, partitions: tuple[str, ...]) -> dict[str, int]:
        taken(world, "w2", "a")
        main.claim({"p:a": world.tree.owned(("p:a",))["p:a"].token}, {"p:a": 0})
        return {"p:a": 2}

    monkeypatch.setattr(FilesSource, "assign_offsets", meanwhile)
    with pytest.raises(Fenced, match=r"p:a was taken over just now: .* Nothing was skipped; see `rota why p:a`"):
        skip(world.tree, world.ports, "p:a", to=2)
    assert main.read_positions(("p:a",))["p:a"].offset == 1


def test_what_a_run_works_on_is_no_backlog(world: World) -> None:
    """Else the sensor launches a run each time it looks, and each finds nothing to do."""
    for key in "ab":
        world.rows(key, "0", 1)
    incarnation = world.give("a", "b")
    clicked, former = world.open(), world.open()
    register_run(clicked, "clicked", incarnation, ["p:a"])
    register_run(former, "former", "w1@0000000000000abc", ["p:b"])
    assert [dict(work.lags) for work in backlog(world.tree, world.pipeline, world.ports.source)] == [{"p:b": (0, 1)}]
    clicked.store.close()
    assert [dict(work.lags) for work in backlog(world.tree, world.pipeline, world.ports.source)] == [
        {"p:a": (0, 1), "p:b": (0, 1)}
    ]


def test_more_partitions_than_a_run_can_name_are_consumed_in_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sensor's run takes those that waited longest, with most lag; a click takes all, some at a time."""
    monkeypatch.setattr(membership, "MAX_RUN", 2)
    for key, files in (("a", 2), ("b", 1), ("c", 3), ("d", 1), ("e", 1)):
        for name in range(files):
            world.rows(key, str(name), 1)
    world.give(*"abcde")

    def due() -> list[str]:
        (work,) = backlog(world.tree, world.pipeline, world.ports.source)
        return list(work.lags)

    assert due() == ["p:c", "p:a"]
    for partition in due():  # one file of each, and there is more
        consumed(world, partition, 1)
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("a", "c", connect=no_spark)  # it writes their checkpoints
    assert due() == ["p:b", "p:d"]
    registered: list[tuple[str, ...]] = []
    real = membership._create_ephemeral

    def register(tree: GroupState, path: str, node: RunNode) -> None:
        registered.append(node.partitions)
        real(tree, path, node)

    monkeypatch.setattr(membership, "_create_ephemeral", register)
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run(*"bde", connect=no_spark)
    for key in "bde":
        consumed(world, f"p:{key}", 1)
    events = world.run(*"bde", connect=no_spark)
    assert [e.partition for e in events if isinstance(e, IdlePartition)] == ["p:b", "p:d", "p:e"]
    assert registered == [("p:b", "p:d"), ("p:b", "p:d"), ("p:e",)]


# --- whose fault it is ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mount_point", [True, False], ids=["empty mount point", "no folder"])
def test_a_landing_folder_that_is_away_parks_nobody(world: World, mount_point: bool) -> None:
    """A disk that is not mounted is the environment's fault: when it is back, all goes on without a hand."""
    world.rows("a", "0", 1)
    world.give("a")
    land, away = world.folder / "land", world.folder / "away"

    def unmount() -> None:
        land.rename(away)
        if mount_point:
            land.mkdir()

    with pytest.raises(EnvironmentFailed, match=f"The landing folder {land} is not there, or empty"):
        world.run("a", connect=paused(unmount))
    assert not world.tree.parked()
    if mount_point:
        land.rmdir()
    away.rename(land)
    assert [dict(work.lags) for work in backlog(world.tree, world.pipeline, world.ports.source)] == [{"p:a": (0, 1)}]


@pytest.mark.parametrize("there", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("key", ["a", "b"], ids=["consumed before", "new"])
def test_a_folder_of_tables_that_is_not_mounted_is_left_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, there: bool, key: str
) -> None:
    """Nobody is parked and no second table is founded where the disk was mounted, also not for a partition that is new:
    once it is mounted again, all goes on without a hand."""

    if not there:
        monkeypatch.setattr(FencedTable, "open_existing", FencedTable.open_or_make)
    for name in "ab":
        world.rows(name, "0", 1)
    world.give("a", "b")
    main = consumed(world, "p:a", 1)
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
    """No file grows beyond a few bytes: what writes gets the system's own error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_each_step_of_a_run_parks_nobody_and_loses_nothing(world: World) -> None:
    world.rows("a", "0", 1)
    world.rows("a", "1", 1)
    world.give("a")
    with (
        full_disk(),
        pytest.raises(EnvironmentFailed, match=r"index cannot be made \(.*File too large.*Check the disk"),
    ):
        world.run("a", connect=no_spark)
    FilesSource.of(world.pipeline).assign_offsets(("p:a",))
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
    assert [type(e) for e in world.run("a")] == [CommittedBatch, IdlePartition], "it is told now"
    assert damage(main.path, {"p:a": {0: 1, 1: 1}}) == NO_DAMAGE


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


def test_a_name_that_is_no_text_holds_up_nobody(world: World) -> None:
    world.rows("a", "0", 1)
    bad = os.fsencode(world.folder / "land/a") + b"/caf\xe9.json"
    with open(bad, "wb") as file:
        file.write(b'{"n": 1}\n')
    source = FilesSource.of(world.pipeline)
    assert source.assign_offsets(("p:a",)) == {"p:a": 1}
    assert source.list_ignored() == {os.fsdecode(b"a/caf\xe9.json"): "its name is not UTF-8; give it another"}


def test_a_folder_whose_name_is_no_text_and_that_cannot_be_listed_stops_no_other(world: World) -> None:
    """Its name went into the reason, no record could hold that, and every run of its worker ended in a traceback."""
    world.rows("good", "0", 1)
    (world.folder / "land" / os.fsdecode(b"caf\xe9")).write_text("a file fails for root too")
    world.give("good", "caf%E9")
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("good", "caf%E9", connect=no_spark)  # the good one got as far as Spark
    parked = world.tree.parked()["p:caf%E9"].record
    assert r"land/caf\udce9 cannot be looked at (Not a directory)" in parked.reason


def test_a_folder_that_cannot_be_listed_parks_its_own_partition_and_stops_no_other(world: World) -> None:
    """Such as one that a producer made with umask 077. Mended, it goes on by itself, also where nothing is new in it."""
    for key in "ab":
        world.rows(key, "0", 1)
    world.give("a", "b")
    consumed(world, "p:a", 1)
    world.run("a")  # writes the checkpoint
    landed = world.folder / "land"
    (landed / "a").rename(landed / "_a")
    (landed / "a").write_text("a file fails for root too")

    def due() -> list[str]:
        return [p for work in backlog(world.tree, world.pipeline, world.ports.source) for p in work.lags]

    assert due() == ["p:a", "p:b"]
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("a", "b", connect=no_spark)  # b got as far as Spark
    parked = world.tree.parked()["p:a"].record
    assert parked.reason.endswith("land/a cannot be looked at (Not a directory). Mend its rights, then: rota retry p:a")
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


# --- the table of bad records ---------------------------------------------------------------------------------------


def test_bad_records_of_a_replay_alone_do_not_make_a_foreign_table(tmp_path: Path) -> None:
    """A replay may be the first that has bad records; the next live batch finds the quarantine its own."""
    aside = ledger(tmp_path)
    source = ledger(tmp_path / "other")
    claimed = source.claim({"p": 1}, {"p": 0})
    made = batch(aside, claimed)
    replacement.append_rows(aside, made)
    again = aside.claim({"p": 1}, {"p": 0})
    assert again.offsets == {"p": 0}


def test_a_zombie_adds_no_column(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    zombie = table.claim({"p": 7}, {"p": 0})
    table.claim({"p": 8}, {"p": 0})
    before = DeltaTable(table.path).version()
    with pytest.raises(Fenced):
        table.commit(zombie, batch(table, zombie, late="long"))
    assert DeltaTable(table.path).version() == before


def test_adopting_waits_until_what_cannot_be_read_was_removed(world: World) -> None:
    """p:a goes on where its table is."""
    world.rows("a", "0", 1)
    world.give("a", "b")
    consumed(world, "p:a", 1)
    paths, store = world.tree.paths, world.tree.store
    for path in (paths.checkpoint("p:a"), paths.checkpoint("p:b"), paths.parking("p:a")):
        store.create(path, b"\xff")
    before = DeltaTable(world.table / "main").version()
    with pytest.raises(ConfigError, match=r"3 record.s. of group .* before you adopt: rota repair"):
        adopt(world.tree, [world.pipeline])
    assert DeltaTable(world.table / "main").version() == before
    assert len(repair(world.tree, [paths.root])) == 3
    done = adopt(world.tree, [world.pipeline])
    assert (done.offsets, done.anew) == ({"p:a": 1}, ())
    assert {p: one.record.offset for p, one in world.tree.checkpoints().items()} == {"p:a": 1}
    assert store.children(paths.parked) == ()
    assert not find_unreadable(world.tree)


# --- a table that changes hands -------------------------------------------------------------------------------------


def test_a_table_that_comes_back_goes_on_where_the_other_group_stopped(tmp_path: Path) -> None:
    """A pipeline moved to another group and back: what was consumed there is not consumed again."""
    mine, other = ledger(tmp_path), FencedTable(tmp_path / "main", "h", "1" * 32)
    claimed = mine.claim({"p": 7}, {"p": 0})
    mine.commit(claimed, batch(mine, claimed))
    other.adopt()
    claimed = other.claim({"p": 3}, {"p": 0})
    assert claimed.offsets == {"p": 2}
    other.commit(claimed, batch(other, claimed))
    mine.adopt()
    assert mine.claim({"p": 9}, {"p": 0}).offsets == {"p": 4}


def test_what_the_former_group_has_under_way_is_refused(tmp_path: Path) -> None:
    mine, other = ledger(tmp_path), FencedTable(tmp_path / "main", "h", "1" * 32)
    first = mine.claim({"p": 7}, {"p": 0})
    mine.commit(first, batch(mine, first))
    zombie = mine.claim({"p": 7}, {"p": 0})
    other.adopt()
    claimed = other.claim({"p": 3}, {"p": 0})
    other.commit(claimed, batch(other, claimed))
    with pytest.raises(ForeignTable):
        mine.commit(zombie, batch(mine, zombie))
    assert damage(mine.path, {"p": dict.fromkeys(range(4), 1)})["doubled"] == 0


def test_a_skip_whose_unparking_is_lost_is_not_asked_for_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(tree: GroupState, partition: str) -> bool:
        raise Unavailable("no ZooKeeper")

    world.rows("a", "0", 1)
    world.rows("a", "1", 1)
    world.give("a")
    world.rows("a", "2", 1)
    main = consumed(world, "p:a", 1)
    park(world.tree, "p:a", "poison", offset=1)
    monkeypatch.setattr("rota.skip.unpark", lost)
    assert skip(world.tree, world.ports, "p:a") == (1, 2)
    with pytest.raises(ConfigError, match=r"p:a stands at 2 \(a/2.json\) and is parked for offset 1"):
        skip(world.tree, world.ports, "p:a")
    assert main.read_positions(("p:a",))["p:a"].offset == 2
