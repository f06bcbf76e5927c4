"""Which partitions a failed job parks, without Spark: `faults` declares the result of a job for each partition."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rota.dataplane.ports import ASSIGN, FailedPartition
from rota.dataplane.spark import failures
from rota.dataplane.spark.bisection import ALONE, Bisection
from rota.dataplane.spark.failures import judge_failure
from rota.errors import BadTransform, ConfigError, EnvironmentFailed
from rota.people.skip import skip
from rota.run.consume import CommittedBatch, IdlePartition, ParkedPartition
from tests.dataplane.faulty_jobs import DISK, Faults, land_files, run, spark
from tests.dataplane.flaky_reader import CAUSES, Cause, Flaky, read_only_once
from tests.dataplane.landing_folders import make_unreadable, open_files
from tests.dataplane.world import World

CAST = '[CAST_INVALID_INPUT] The value \'{}\' of the type "STRING" cannot be cast to "BIGINT". SQLSTATE: 22018'


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- the environment, or quoted data ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        CAST.format("Connection refused"),
        CAST.format("it's a Connection refused"),
        "ValueError: no level in line 'sshd: Permission denied for root'",
        'ValueError: no level in line "can\'t: Too many open files"',
    ],
)
def test_what_a_message_quotes_is_data(text: str) -> None:
    assert isinstance(judge_failure(RuntimeError(text), spark(), "p:a"), BadTransform)


@pytest.mark.parametrize(
    "text",
    [
        "can't write, don't know why: No space left on device",
        "OSError: [Errno 13] Permission denied: '/data/x'",
        'Cannot run program "python3": error=2',
        "java.io.IOException: Stale file handle",
        "OSError: [Errno 116] Stale NFS file handle: '/data/x'",
        "java.io.FileNotFoundException: /data/x (Transport endpoint is not connected)",
        "java.io.IOException: Remote I/O error",
        "java.io.IOException: Host is down",
        "OSError: [Errno 110] Connection timed out: '/data/x'",
        'SparkConnectGrpcException: status = StatusCode.UNAUTHENTICATED details = "Invalid authentication token"',
    ],
)
def test_a_text_beside_a_quotation_is_the_environments(text: str) -> None:
    assert isinstance(judge_failure(RuntimeError(text), spark(), "p:a"), EnvironmentFailed)


PYTHON = "An exception was thrown from the Python worker: Traceback (most recent call last):\n{}\n SQLSTATE: 38000"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('java.io.IOException: Cannot run program "/nowhere/python3": error=2, No such file', "/nowhere/python3"),
        (
            "Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot run with different",
            "3.9 than that in driver: 3.11). Give the worker PYSPARK_PYTHON",
        ),
        ("[PACKAGE_NOT_INSTALLED] PyArrow >= 15.0.0 must be installed; it was not found.", "PyArrow >= 15.0.0 must be"),
        (PYTHON.format("ModuleNotFoundError: No module named 'pyarrow'"), "has no module 'pyarrow', which is here"),
        (PYTHON.format("ModuleNotFoundError: No module named 'tests.waiting'"), "put it beside the pipeline's file"),
    ],
)
def test_a_python_of_executors_that_is_not_the_runs_is_one_line_and_the_environments(text: str, said: str) -> None:
    error = judge_failure(RuntimeError(text), spark(), "p:a")
    assert isinstance(error, EnvironmentFailed)
    assert said in str(error)
    assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [PYTHON.format("ModuleNotFoundError: No module named 'no_such_module'"), "ValueError: 'No module named 'pyarrow''"],
)
def test_a_module_that_is_not_here_either_is_the_transforms(text: str) -> None:
    assert isinstance(judge_failure(RuntimeError(text), spark(), "p:a"), BadTransform)


def test_a_message_ends_with_the_next_step_for_its_partition() -> None:
    error = judge_failure(RuntimeError("cannot resolve `x`;\n'Project [x]"), spark(), "p:a")
    assert str(error) == ("RuntimeError: cannot resolve `x`. Mend the transform or the data, then: rota retry p:a")


def test_a_word_in_the_data_parks_its_own_partition_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unquoted: it reads like an error of the environment, but the other partitions succeed, and one alone is retried."""
    land_files(world, "abcd")
    Faults(monkeypatch, lambda p, _: "ValueError: sshd: Connection refused" if p == "p:c" else None)
    events = run(world, "abcd")
    assert {p: type(e) for p, e in events.items()} == {
        "p:a": CommittedBatch, "p:b": CommittedBatch, "p:c": ParkedPartition, "p:d": CommittedBatch,
    }  # fmt: skip
    parked = events["p:c"]
    assert isinstance(parked, ParkedPartition)
    assert parked.retry_at is not None
    assert "p:c alone (ValueError: sshd: Connection refused in offset 0 (c/00.json))" in parked.reason
    assert parked.reason.endswith("rota retry p:c")


@pytest.mark.parametrize("alone", [[], ["p:a"]], ids=["of all", "and one that fails on its data"])
def test_an_error_of_all_partitions_parks_none_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch, alone: list[str]
) -> None:
    land_files(world, "abc")
    Faults(monkeypatch, lambda p, _: "ValueError: poison" if p in alone else DISK)
    with pytest.raises(EnvironmentFailed, match="No space left"):
        run(world, "abc")
    assert list(world.tree.parked()) == alone


def test_a_spark_that_is_gone_is_not_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one succeeded before: the others are not at fault for a Spark that died."""
    land_files(world, "abcd")
    monkeypatch.setattr(Bisection, "draw", lambda _, partition: partition)
    lives = [True, False]
    monkeypatch.setattr(failures, "is_alive", lambda _: lives.pop(0))
    faults = Faults(monkeypatch, lambda p, _: DISK if p > "p:b" else None)
    with pytest.raises(EnvironmentFailed):
        run(world, "abcd")
    assert [len(one) for one in faults.jobs] == [4, 2, 2]
    assert not world.tree.parked()
    assert {p: c.record.offset for p, c in world.tree.checkpoints().items()} == {
        f"p:{k}": int(k in "ab") for k in "abcd"
    }


def test_those_that_fail_alone_do_not_come_first_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as files that a producer made with umask 077: as many as are tried alone, with the first names."""
    keys = "abcdefgh"
    land_files(world, keys)
    Faults(monkeypatch, lambda p, _: "Permission denied" if p in [f"p:{k}" for k in keys[:ALONE]] else None)
    for _ in range(3):
        with suppress(EnvironmentFailed):
            run(world, keys)
    offsets = {p: one.record.offset for p, one in world.tree.checkpoints().items()}
    assert offsets == {f"p:{k}": int(k not in keys[:ALONE]) for k in keys}
    assert {p: one.record.retry_at is not None for p, one in world.tree.parked().items()} == {
        f"p:{k}": True for k in keys[:ALONE]
    }


def test_a_full_disk_is_not_tried_by_every_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "abcdefghijklmnopqrstuvwxyz"
    land_files(world, keys)
    faults = Faults(monkeypatch, lambda *_: DISK)
    with pytest.raises(EnvironmentFailed):
        run(world, keys)
    assert sum(len(one) == 1 for one in faults.jobs) == ALONE
    assert len(faults.jobs) < 2 * ALONE + 6


def test_a_known_file_that_cannot_be_looked_at_parks_its_own_partition_until_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files before it are read first, as before a file that vanished. Repaired, it continues automatically."""
    land_files(world, "abc", files=2)
    open_files(world.pipeline).observe(("p:a", "p:b", "p:c"), ASSIGN)
    Faults(monkeypatch, lambda *_: None)
    away = [world.folder / "land" / name for name in ("a/00.json", "b/01.json")]
    for file in away:
        make_unreadable(file)
    events = [e for _ in range(2) for e in run(world, "abc").values()]
    assert {e.partition: (e.start, e.end) for e in events if isinstance(e, CommittedBatch)} == {
        "p:b": (0, 1), "p:c": (0, 2),
    }  # fmt: skip
    parked = {p: one.record for p, one in world.tree.parked().items()}
    assert set(parked) == {"p:a", "p:b"}
    assert parked["p:a"].reason.startswith(f"{away[0]} cannot be looked at (Too many levels of symbolic links)")
    for file in away:
        file.with_name(f"_{file.name}").replace(file)
    world.server.clock = lambda: max(one.retry_at or 0.0 for one in parked.values())
    assert {p: e.end for p, e in run(world, "abc").items() if isinstance(e, CommittedBatch)} == {"p:a": 2, "p:b": 2}
    assert not world.tree.parked()


# --- a skip skips the offset that the park names -------------------------------------------------------------------------


def skip_to_the_end(world: World) -> list[int]:
    """Run, and skip whatever is parked, until all is consumed. Return the skipped offsets."""
    out: list[int] = []
    for _ in range(40):
        event = run(world, "a")["p:a"]
        if isinstance(event, ParkedPartition):
            start, end = skip(world.tree, world.ports, "p:a")
            assert f"offset {start}" in event.reason
            out += range(start, end)
        elif not isinstance(event, CommittedBatch):
            return out
    raise AssertionError("it comes to no end")


@pytest.mark.parametrize("at", [[0], [6], [11], [3, 4, 9]], ids=str)
@pytest.mark.parametrize("kind", ["poison", "vanished"])
def test_only_what_is_broken_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch, at: list[int], kind: str
) -> None:
    land_files(world, "a", files=12)
    open_files(world.pipeline).observe(("p:a",), ASSIGN)
    for offset in at if kind == "vanished" else []:
        (world.folder / f"land/a/{offset:02}.json").unlink()
    faults = Faults(monkeypatch, lambda _, r: "ValueError: x" if kind == "poison" and {*at} & {*range(*r)} else None)
    assert skip_to_the_end(world) == at
    if kind == "poison":
        assert len(faults.jobs) <= 1 + len(at) * 16, "log2 runs of log2 jobs"


@pytest.mark.parametrize("kind", ["poison", "vanished"])
def test_without_shorter_ranges_a_skip_drops_whole_files(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    land_files(world, "a", files=4)
    open_files(world.pipeline).observe(("p:a",), ASSIGN)
    if kind == "vanished":
        (world.folder / "land/a/02.json").unlink()
    Faults(monkeypatch, lambda _, r: "ValueError: x" if kind == "poison" and 2 in range(*r) else None)
    monkeypatch.setattr("rota.dataplane.spark.spark_job.Bisection", lambda *args, shorten: Bisection(*args))
    assert isinstance(run(world, "a")["p:a"], ParkedPartition)
    assert skip(world.tree, world.ports, "p:a") == (0, 1)


@pytest.mark.parametrize("cause", CAUSES)
def test_an_offset_that_can_be_read_alone_is_not_blamed(
    world: World, monkeypatch: pytest.MonkeyPatch, cause: Cause
) -> None:
    """`rota skip` would drop a good record."""
    land_files(world, "ab", files=3)
    Faults(monkeypatch, Flaky(cause))
    events = [event for _ in range(3) for event in run(world, "ab").values()]
    assert not [e for e in events if isinstance(e, ParkedPartition)]
    assert {p: one.record.offset for p, one in world.tree.checkpoints().items()} == {"p:a": 3, "p:b": 3}
    assert not world.tree.parked()


def test_ablation_without_a_second_reading_a_good_offset_is_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only_once(monkeypatch)
    land_files(world, "a", files=3)
    Faults(monkeypatch, Flaky("once"))
    event = run(world, "a")["p:a"]
    assert isinstance(event, ParkedPartition)
    assert "in offset 0 (a/00.json)" in event.reason
    assert skip(world.tree, world.ports, "p:a") == (0, 1)


@pytest.mark.parametrize("second", [None, "ValueError: poison", DISK])
def test_what_failed_like_the_environment_is_judged_by_its_second_reading(
    world: World, monkeypatch: pytest.MonkeyPatch, second: str | None
) -> None:
    """The other partition succeeds, so the failure is blamed on this one."""
    land_files(world, "ab")
    faults = Faults(monkeypatch, lambda p, _: said() if p == "p:a" else None)

    def said() -> str | None:
        return DISK if sum("p:a" in job for job in faults.jobs) <= 2 else second

    event = run(world, "ab")["p:a"]
    if second is None:
        assert isinstance(event, CommittedBatch)
        return
    assert isinstance(event, ParkedPartition)
    assert second.rpartition(": ")[2] in event.reason
    assert ("p:a alone" in event.reason) == (second == DISK)
    assert event.reason.endswith("rota retry p:a")


def test_a_replay_is_never_shortened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the request would be reported as the whole."""
    land_files(world, "a", files=4)
    source = open_files(world.pipeline)
    source.observe(("p:a",), ASSIGN)
    Faults(monkeypatch, lambda _, r: "ValueError: x" if 2 in range(*r) else None)
    (piece,) = Bisection(world.pipeline, source, str(world.table), spark(), None).run({"p:a": (0, 4)})
    assert isinstance(piece, FailedPartition)
    assert "in offsets 0 to 3" in str(piece.error)
    (world.folder / "land/a/03.json").unlink()
    (piece,) = Bisection(world.pipeline, source, str(world.table), spark(), None).run({"p:a": (0, 4)})
    assert isinstance(piece, FailedPartition)
    assert "vanished" in str(piece.error)


def test_what_is_not_parked_at_its_offset_is_skipped_only_by_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_files(world, "a", files=1)
    Faults(monkeypatch, lambda *_: None)
    assert isinstance(run(world, "a")["p:a"], CommittedBatch)
    world.rows("a", "01", 1)
    with pytest.raises(ConfigError, match="p:a is at 1 and is not parked: nothing is skipped"):
        skip(world.tree, world.ports, "p:a")
    source = open_files(world.pipeline)
    assert source.observe(("p:a",)).assigned == {"p:a": 1}, "what is refused gives no offset"
    source.observe(("p:a",), ASSIGN)
    with pytest.raises(ConfigError, match=r"p:a is at 1 \(a/01.json\) and is not parked: nothing is skipped"):
        skip(world.tree, world.ports, "p:a")
    assert skip(world.tree, world.ports, "p:a", to=2) == (1, 2)


def test_what_a_skip_takes_has_its_offset(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that landed while it was parked are skipped under ordinals of their own: those after them are consumed."""
    land_files(world, "a")
    Faults(monkeypatch, lambda *_: None)
    open_files(world.pipeline).observe(("p:a",), ASSIGN)
    (world.folder / "land/a/00.json").unlink()
    assert isinstance(run(world, "a")["p:a"], ParkedPartition)
    for name in range(1, 4):
        world.rows("a", f"{name:02}", 1)
    assert skip(world.tree, world.ports, "p:a", to=4) == (0, 4)
    world.rows("a", "04", 1)
    event = run(world, "a")["p:a"]
    assert isinstance(event, CommittedBatch), event
    assert (event.start, event.end) == (4, 5)


def test_an_index_that_forgot_what_was_skipped_is_an_older_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the next files get the skipped ordinals, and are never read."""
    land_files(world, "a", files=2)
    Faults(monkeypatch, lambda _, r: "ValueError: x" if 0 in range(*r) else None)
    assert isinstance(run(world, "a")["p:a"], ParkedPartition)
    assert skip(world.tree, world.ports, "p:a") == (0, 1)
    shutil.rmtree(world.table / "index")
    event = run(world, "a")["p:a"]
    assert isinstance(event, ParkedPartition), event
    assert "the index has given 0 offsets" in event.reason


def test_an_index_that_is_lost_under_a_job_parks_its_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the job's error: it is unknown which file it read."""
    land_files(world, "a")

    def lost(*_: object) -> str:
        shutil.rmtree(world.table / "index")
        return "ValueError: x"

    Faults(monkeypatch, lost)
    event = run(world, "a")["p:a"]
    assert isinstance(event, ParkedPartition), event
    assert event.reason == (
        "p:a: the index has 0 files and offset 1 was asked for: an older one took its place. Bring the newer one back, "
        "then: rota retry p:a"
    )


@pytest.mark.parametrize("start", [0, 5])
def test_a_start_that_was_raised_hides_no_lost_index(world: World, monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    """The table's own offset counts, whatever the file declares by now."""
    land_files(world, "a", files=2)
    Faults(monkeypatch, lambda *_: None)
    assert isinstance(run(world, "a")["p:a"], CommittedBatch)
    shutil.rmtree(world.table / "index")
    world.write(f"pipeline = Pipeline(source=source(start={start}), table=delta({{table!r}}))\n")
    event = run(world, "a")["p:a"]
    assert isinstance(event, ParkedPartition), event
    assert "the index has given 0 offsets" in event.reason


def test_a_start_that_was_lowered_parks_no_partition(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset ahead of the index that no commit reached is the declared start, not a lost index."""
    world.write("pipeline = Pipeline(source=source(start=3), table=delta({table!r}))\n")
    Faults(monkeypatch, lambda *_: None)
    land_files(world, "a")
    assert isinstance(run(world, "a")["p:a"], IdlePartition)
    world.write("pipeline = Pipeline(source=source(), table=delta({table!r}))\n")
    assert isinstance(run(world, "a")["p:a"], IdlePartition)
    for name in range(1, 4):
        world.rows("a", f"{name:02}", 1)
    event = run(world, "a")["p:a"]
    assert isinstance(event, CommittedBatch), event
    assert (event.start, event.end) == (3, 4)
