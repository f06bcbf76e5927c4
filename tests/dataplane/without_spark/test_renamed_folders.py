"""A partition's folder that is renamed, and renamed back: no file of it is consumed under two partitions."""

import os
import shutil
from pathlib import Path

import pytest

from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.ports import ASSIGN, ENDS
from rota.errors import EnvironmentFailed
from rota.run.consume import IdlePartition, ParkedPartition
from rota.run.work import find_work
from tests.dataplane.landing_folders import land, source
from tests.dataplane.stand_ins import consume_without_spark, no_spark, pause_run
from tests.dataplane.world import World


def rename(folder: Path, was: str, now: str) -> None:
    (folder / "land" / was).rename(folder / "land" / now)


def test_a_renamed_folder_waits_with_a_reason_and_goes_on_where_it_was_once_it_is_renamed_back(world: World) -> None:
    for name in "01":
        world.rows("a", name, 2)
    world.give("a")
    main = consume_without_spark(world, "p:a", 2)
    world.run("a")  # writes the checkpoint
    rename(world.folder, "a", "z")
    world.give("a", "z")
    idle, parked = sorted(world.run("a", "z", connect=no_spark), key=lambda e: e.partition)
    assert isinstance(idle, IdlePartition), "what was consumed needs its file no more"
    assert isinstance(parked, ParkedPartition)
    assert parked.reason == (
        f"{world.folder}/land/z/0.json is a/0.json, offset 0 of p:a, and 1 more with it: the folder was renamed, and what "
        "was read would be in the table twice. Rename it back. Or move away what was read; or, to have its rows under the "
        "new name as well, give it a new time: touch. It is tried again by itself"
    )
    assert parked.retry_at is not None, "it heals"
    world.server.clock = lambda: parked.retry_at or 0.0
    rename(world.folder, "z", "a")
    assert {type(e) for e in world.run("a", "z", connect=no_spark)} == {IdlePartition}
    assert not world.tree.parked()
    assert {p: one.offset for p, one in main.read_positions(("p:a", "p:z")).items()} == {"p:a": 2, "p:z": 0}
    assert not find_work(world.tree, world.pipeline, world.ports.source)


def test_of_a_renamed_folder_nothing_is_read_until_its_files_are_others(tmp_path: Path) -> None:
    one = source(tmp_path)
    land(tmp_path, "a/1.json", "a/deep/2.json", "b/1.json")
    assert one.observe(("p:a", "p:b"), ASSIGN).ends == {"p:a": 2, "p:b": 1}
    rename(tmp_path, "a", "z")
    land(tmp_path, "z/3.json", text='{"a": 3}\n')
    for query in (ENDS, ASSIGN):
        assert one.observe(("p:a", "p:b", "p:z"), query).ends == {"p:a": 2, "p:b": 1}
    assert "z/1.json is a/1.json, offset 0 of p:a, and 1 more with it" in one.observe(("p:z",)).unreadable["p:z"]
    os.utime(tmp_path / "land/z/1.json")
    assert "z/deep/2.json is a/deep/2.json, offset 1 of p:a:" in one.observe(("p:z",)).unreadable["p:z"]
    (tmp_path / "land/z/deep").rename(tmp_path / "land/z/_deep")
    assert not one.observe(("p:z",)).unreadable
    assert one.observe(("p:z",), ASSIGN).ends == {"p:z": 2}
    land(tmp_path, "z/4.json")
    assert one.observe(("p:z",), ASSIGN).ends == {"p:z": 3}, "it has begun"


@pytest.mark.parametrize("kind", ["copied", "made anew", "of another size", "tidied up before"])
def test_what_only_looks_like_a_renamed_folder_is_read(tmp_path: Path, kind: str) -> None:
    one = source(tmp_path)
    land(tmp_path, "a/1.json")
    one.observe(("p:a",), ASSIGN)
    old, new = tmp_path / "land/a", tmp_path / "land/z"
    if kind == "copied":
        shutil.copytree(old, new)
    else:
        was = (old / "1.json").stat()
        shutil.rmtree(old)
        land(tmp_path, "z/1.json", text='{"a": 11}\n' if kind == "of another size" else '{"a": 1}\n')
        if kind == "of another size":
            os.utime(new / "1.json", ns=(was.st_atime_ns, was.st_mtime_ns))
        if kind == "tidied up before":
            (new / "1.json").rename(new / "2.json")
            os.utime(new / "2.json", ns=(was.st_atime_ns, was.st_mtime_ns))
    assert one.observe(("p:a", "p:z"), ASSIGN).ends == {"p:a": 1, "p:z": 1}


def test_many_new_folders_cost_one_look_at_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = source(tmp_path)
    olds, news = ([f"{letter}{n}" for n in range(20)] for letter in "ab")
    land(tmp_path, *(f"{key}/1.json" for key in olds))
    one.observe(tuple(f"p:{key}" for key in olds), ASSIGN)
    land(tmp_path, *(f"{key}/1.json" for key in news))
    looks: list[int] = []
    real = FileIndex.find_alike
    monkeypatch.setattr(FileIndex, "find_alike", lambda self, files: looks.append(1) or real(self, files))
    assert len(one.observe(tuple(f"p:{key}" for key in news), ASSIGN).ends) == 20
    assert len(looks) == 1
    land(tmp_path, *(f"{key}/2.json" for key in news))
    looks.clear()
    one.observe(tuple(f"p:{key}" for key in news), ASSIGN)
    assert len(looks) == 0, "they have begun"


def test_a_file_that_vanished_with_its_folder_heals_when_it_is_back(world: World) -> None:
    """It had its offset and was not read yet: the folder is renamed, and renamed back, during a backlog."""
    world.rows("a", "0", 1)
    world.give("a")
    world.ports.source.observe(("p:a",), ASSIGN)
    rename(world.folder, "a", "z")
    world.rows("b", "0", 1)  # the disk is there
    (event,) = world.run("a", connect=pause_run(lambda: None))
    assert isinstance(event, ParkedPartition)
    assert "a/0.json (offset 0) vanished before it was consumed" in event.reason
    assert event.retry_at is not None
    rename(world.folder, "z", "a")
    world.server.clock = lambda: event.retry_at or 0.0
    with pytest.raises(EnvironmentFailed, match="no Spark here"):
        world.run("a", connect=no_spark)
