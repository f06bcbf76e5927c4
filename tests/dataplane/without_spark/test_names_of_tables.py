"""The log of a table names its one pipeline: a file of another name reads nothing of it, and of two files one is served."""

import shutil
from collections import Counter
from contextlib import nullcontext

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from rota.catalog import load
from rota.errors import ForeignTable
from rota.ledger import renaming
from rota.ledger.identity import Identity
from rota.people.adopt import adopt
from rota.people.rename import rename
from rota.people.skip import skip
from rota.run.consume import IdlePartition
from rota.run.replay import replay
from simulator.memory_store import MemoryServer
from tests.dataplane.delta_tables import batch
from tests.dataplane.renamed_tables import count_each, count_rows, fill, tables
from tests.dataplane.stand_ins import no_spark
from tests.dataplane.world import World

LINE = r"main is the table of pipeline 'p', and 'q' would read everything again .* delete p.py, then: rota rename p q"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_renamed_file_reads_nothing_again(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    fill(world, "0", "1")
    world.call("q")
    world.give("a")
    version = DeltaTable(world.table / "main").version()
    if not guarded:
        monkeypatch.setattr(Identity, "owns", Identity.group_has)
        fill(world)
        assert count_rows(world) == count_each("p:a", 2) + count_each("q:a", 2), "each file was read twice"
        return
    with pytest.raises(ForeignTable, match=LINE):
        world.run("a", connect=no_spark)
    with pytest.raises(ForeignTable, match=LINE):
        skip(world.tree, world.ports, "q:a")
    with pytest.raises(ForeignTable, match=LINE):
        list(replay(world.tree, world.open_ports(connect=no_spark), {"q:a": (0, 1)}, "r"))
    for ledger in (tables(world).main, tables(world).quarantine):
        with pytest.raises(ForeignTable, match="is the table of pipeline 'p'"):
            ledger.claim({"q:a": 9}, {"q:a": 0})
        with pytest.raises(ForeignTable, match="is the table of pipeline 'p'"):
            ledger.adopt()
    with pytest.raises(ForeignTable, match=LINE):
        adopt(world.tree, [world.pipeline])
    assert DeltaTable(world.table / "main").version() == version
    assert count_rows(world) == count_each("p:a", 2)


@pytest.mark.parametrize("consumed", [True, False], ids=["a table with rows", "the first batch"])
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_commit_that_was_claimed_before_the_rename_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool, consumed: bool
) -> None:
    """Otherwise its rows are read again under the new name. If the rename removed files, Delta itself refuses the commit."""
    world.give("a")
    if consumed:
        fill(world, "0", "1")
    zombie = tables(world).main
    claimed = zombie.claim({"p:a": 99}, {"p:a": 0})
    late = batch(zombie, claimed)
    world.call("q")
    if not guarded:
        real = renaming.make_moves
        monkeypatch.setattr(renaming, "make_moves", lambda of, now: real(of, now) if of.pipeline == "q" else [])
    rename(world.tree, "p", world.pipeline)
    refused = (
        pytest.raises(ForeignTable, match="is the table of pipeline 'q'") if guarded or consumed else nullcontext()
    )
    with refused:
        zombie.commit(claimed, late)
    assert count_rows(world) == count_each("q:a", 2 if consumed else 0) + (
        Counter() if guarded or consumed else count_each("p:a", 2)
    )


@pytest.mark.parametrize("group", ["g", "h"])
def test_a_table_of_another_deployment_and_another_name_is_left_alone(world: World, group: str) -> None:
    """Two ZooKeepers, or two groups, and the next step in each case."""
    fill(world, "0", "1")
    other = World(world.folder, server=MemoryServer(), group=group)
    other.call("q")
    other.give("a")
    line = "belongs to pipeline 'p' of another group, .* call the file p.py, then: rota adopt"
    with pytest.raises(ForeignTable, match=line):
        other.run("a", connect=no_spark)
    with pytest.raises(ForeignTable, match=line):
        adopt(other.tree, [other.pipeline])
    with pytest.raises(ForeignTable, match=r"belongs to another group.* rota adopt"):
        rename(other.tree, "p", other.pipeline)
    other.call("p")
    adopt(other.tree, [other.pipeline])
    other.call("q")
    rename(other.tree, "p", other.pipeline)
    other.give("a", incarnation=other.join("w2"))
    assert [type(e) for e in other.run("a", connect=no_spark)] == [IdlePartition]
    assert count_rows(world) == count_each("q:a", 2)


def test_a_table_that_another_program_wrote_is_left_alone_and_may_be_taken_over(world: World) -> None:
    write_deltalake(world.table / "main", pa.table({"_partition": ["p:a"], "_offset": [7], "n": [1]}))
    world.give("a")
    with pytest.raises(ForeignTable, match=r"rows that rota did not write.* another path.* rota adopt"):
        world.run("a", connect=no_spark)
    adopt(world.tree, [world.pipeline])


@pytest.mark.parametrize("copy", ["a", "z"])
def test_of_two_files_with_one_table_the_one_that_has_it_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch, copy: str
) -> None:
    monkeypatch.setattr("rota.ages.Ages.known", ({}, {}, ""))  # ZooKeeper knows neither
    pipelines = world.folder / "pipelines"
    shutil.copy(pipelines / "p.py", pipelines / f"{copy}.py")
    assert list(load(pipelines).pipelines) == [min("p", copy)], "there is no table yet: the first by name"
    fill(world, "0")
    catalog = load(pipelines)
    assert list(catalog.pipelines) == ["p"]
    assert catalog.refused[f"{copy}.py"].endswith(
        f"is the one of pipeline 'p'. Give '{copy}' another path; or, if it is 'p' under a new name, delete p.py, then: "
        f"rota rename p {copy}"
    )
    with monkeypatch.context() as patched:
        patched.setattr("rota.registry.find_owner", lambda *_: None)
        assert list(load(pipelines).pipelines) == [min("p", copy)], "the one that has it would be gone from the page"
    newest = max((world.table / "main" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:50])
    catalog = load(pipelines)
    assert not catalog.pipelines
    assert "its owner is unknown" in catalog.refused["p.py"]
    shutil.rmtree(world.table)
    assert list(load(pipelines).pipelines) == [min("p", copy)]


def test_what_goes_on_is_served_and_the_newcomer_within_its_folders_is_refused(world: World) -> None:
    """The pipeline without a table is the newcomer: one whose table would lie in another's landing folder, too."""
    fill(world, "0")
    table = str(world.folder / "land" / "q")
    source = "files('/elsewhere', format='csv', schema='a int')"
    text = f"from rota import Pipeline, delta, files\npipeline = Pipeline(source={source}, table=delta({table!r}))"
    (world.folder / "pipelines" / "a.py").write_text(text)
    catalog = load(world.folder / "pipelines")
    assert list(catalog.pipelines) == ["p"]
    assert "of pipeline 'p' lie within each other" in catalog.refused["a.py"]
