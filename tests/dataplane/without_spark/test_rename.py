"""A rename moves rows, offsets, tokens and pins, wherever it is killed; a refused rename is one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from rota.coordination.membership import end_run, register_run
from rota.coordination.overrides import pin
from rota.dataplane.files.file_index import FileIndex
from rota.errors import ConfigError, ForeignTable
from rota.ledger import renaming
from rota.ledger.ledger import Ledger
from rota.people import rename as verb
from rota.people.rename import rename
from tests.dataplane.renamed_tables import check_renamed, count_each, count_rows, fill, prepare, tables
from tests.dataplane.world import World


def test_a_rename_takes_everything_along(world: World) -> None:
    prepare(world)
    assert rename(world.tree, "p", world.pipeline) == 1
    assert rename(world.tree, "p", world.pipeline) is None
    check_renamed(world, "p", "q", 2)


@pytest.mark.parametrize("called", [("q", "p"), ("p-b", "p"), ("q", "z", "p")], ids="->".join)
def test_names_may_begin_like_others_and_come_back(world: World, called: tuple[str, ...]) -> None:
    fill(world, "0", "1")
    now = "p"
    for name in called:
        world.call(name)
        assert rename(world.tree, now, world.pipeline) == 1
        assert count_rows(world) == count_each(f"{name}:a", 2)
        past = tables(world).main.read_log()
        assert {p for one in past for p in (*one.ranges, *one.tokens)} == {f"{name}:a"}
        now = name
    pin(world.tree, "p:a", "w1")
    check_renamed(world, "", "p", 2)


STEPS: dict[str, tuple[Any, str, Callable[..., bool]]] = {
    "before it is begun": (renaming, "begin_rename", lambda *_: True),
    "begun": (FileIndex, "rename", lambda *_: True),
    "the index is renamed": (renaming, "finish_rename", lambda ledger, *_: Path(ledger.location).name == "quarantine"),
    "the quarantine is renamed": (renaming, "read_renamed_positions", lambda *_: True),
    "before the checkpoints": (verb.coordination, "rename_pipeline", lambda *_: True),
    "within the group's records": (verb.coordination, "move_partitions", lambda *_: True),
    "before the pins": (verb.coordination, "repin", lambda *_: True),
    "before the old checkpoints go": (verb.coordination, "remove_node", lambda *_: True),
    "the group's records are renamed": (
        renaming,
        "finish_rename",
        lambda ledger, *_: Path(ledger.location).name == "main",
    ),
    "a file of main is written": (Ledger, "check_on_disk", lambda ledger, *_: Path(ledger.location).name == "main"),
}


class Died(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("replied", [True, False], ids=["before the step", "after the step"])
@pytest.mark.parametrize("step", STEPS)
def test_a_rename_that_dies_is_typed_again(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, replied: bool
) -> None:
    prepare(world)
    owner_, name, when = STEPS[step]
    real = getattr(owner_, name)

    def dying(*args: Any, **more: Any) -> Any:
        if when(*args):
            if not replied:
                real(*args, **more)
            raise Died
        return real(*args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(owner_, name, dying)
        with pytest.raises(Died):
            rename(world.tree, "p", world.pipeline)
    over = step == "the group's records are renamed" and not replied
    if (step != "before it is begun" or not replied) and not over:
        for main in (tables(world).main, replace(tables(world).main, pipeline="p")):
            for touch in (lambda main: main.claim({"q:a": 99, "p:a": 99}, {"q:a": 0, "p:a": 0}), Ledger.adopt):
                with pytest.raises(ForeignTable, match=r"between two names.* rota rename p q --group g"):
                    touch(main)
        with pytest.raises(ConfigError, match="Go on with: rota rename p q --group g"):
            rename(world.tree, "x", world.pipeline)
    assert rename(world.tree, "p", world.pipeline) == (None if over else 1)
    check_renamed(world, "p", "q", 2)


def test_what_cannot_be_renamed_is_one_line_and_nothing_is_written(world: World) -> None:
    world.call("q")
    with pytest.raises(ConfigError, match="There is no table at"):
        rename(world.tree, "p", world.pipeline)
    world.call("p")
    fill(world, "0", "1")
    with pytest.raises(ConfigError, match="'p' is its name already"):
        rename(world.tree, "p", world.pipeline)
    with pytest.raises(ConfigError, match="is the table of pipeline 'p', not of 'x'"):
        rename(world.tree, "x", world.pipeline)
    version = DeltaTable(world.table / "main").version()
    world.call("q")
    with pytest.raises(ConfigError, match="is the table of pipeline 'p', not of 'x'"):
        rename(world.tree, "x", world.pipeline)
    node = register_run(world.tree, "r", world.incarnation, ["p:a"])
    with pytest.raises(ConfigError, match="Run r consumes p:a"):
        rename(world.tree, "p", world.pipeline)
    end_run(world.tree, node)
    world.call("q" * 127)
    with pytest.raises(ConfigError, match="Bad partition id"):
        rename(world.tree, "p", world.pipeline)
    assert DeltaTable(world.table / "main").version() == version
