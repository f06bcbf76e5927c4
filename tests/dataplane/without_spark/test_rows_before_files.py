"""A consumed file is deleted or archived only while its rows are in the table now."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.ports import ASSIGN
from rota.ledger.ledger import Ledger
from rota.ledger.values import LogEntry
from rota.people.adopt import adopt
from rota.run import consume as consuming
from rota.run import tidy
from rota.run.maintain import maintain
from rota.run.replay import ReplayedRange, replay
from rota.run.spans import find_consumed
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark.trickle import TEXT, Trickle

AFTER = {"delete": 'after="delete"', "archive": 'after="archive:_done"'}
BATCHES = 3
Act = Callable[[Path], object]
TAKES: dict[str, Act] = {
    "RESTORE": lambda main: DeltaTable(main).restore(1),
    "DELETE": lambda main: DeltaTable(main).delete("_offset > 0"),
    "UPDATE": lambda main: DeltaTable(main).update({"n": "n + 1000"}),
    "overwrite": lambda main: write_deltalake(
        main, pa.table({"_partition": ["x"]}), mode="overwrite", schema_mode="merge"
    ),
}


def lies(one: Trickle, key: str = "a") -> list[str]:
    return sorted(file.name for file in (one.world.folder / "land" / key).glob("*"))


def find_rows(one: Trickle) -> set[int]:
    return {row["n"] for row in DeltaTable(one.world.table / "main").to_pyarrow_table().to_pylist()}


def consumed(folder: Path, more: str = "") -> Trickle:
    """Consume files of `a`, which stay in the landing folder."""
    one = Trickle(folder, more)
    for _ in range(BATCHES):
        one.land("a")
        one.consume()
    return one


def declare(one: Trickle, after: str) -> None:
    """Change `after`, which a person may do at any time."""
    one.world.write(TEXT.replace("{more}", AFTER[after]))


NAMES = [f"{number:03}.json" for number in range(BATCHES)]


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", TAKES)
def test_no_file_goes_whose_rows_another_program_took(tmp_path: Path, name: str, after: str) -> None:
    """Neither before nor after `rota adopt`: they are removed once a replay wrote their rows again."""
    one = consumed(tmp_path / "x")
    TAKES[name](one.world.table / "main")
    declare(one, after)
    done = maintain(one.world.pipeline)
    assert (done.tidied, len(done.failed), lies(one)) == (0, 1, NAMES)
    assert "changed rows, and rota did not make it" in done.failed[0]
    adopt(one.world.tree, [one.world.pipeline])
    done = maintain(one.world.pipeline)
    assert (done.tidied, done.failed, lies(one)) == (0, (), NAMES)
    one.land("a", "later")
    one.consume()
    assert lies(one) == NAMES, "what is consumed after it goes"
    (redone,) = replay(one.world.tree, one.ports, {"p:a": (1, 2)}, "r")
    assert isinstance(redone, ReplayedRange)
    assert (maintain(one.world.pipeline).tidied, lies(one)) == (1, [NAMES[0], NAMES[2]])
    for span in ((0, 1), (2, 3)):
        (redone,) = replay(one.world.tree, one.ports, {"p:a": span}, "r")
        assert isinstance(redone, ReplayedRange)
    assert (maintain(one.world.pipeline).tidied, lies(one)) == (2, [])
    assert {n for _, n in one.wanted} <= find_rows(one)


@pytest.mark.parametrize("adopted", [False, True], ids=["not adopted", "adopted"])
def test_without_the_guard_rows_are_in_no_table_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adopted: bool
) -> None:
    monkeypatch.setattr(Ledger, "find_foreign_commit", lambda *_: None)
    monkeypatch.setattr(tidy, "find_present", lambda past, _: find_consumed(past))
    one = consumed(tmp_path / "x")
    TAKES["RESTORE"](one.world.table / "main")
    if adopted:
        adopt(one.world.tree, [one.world.pipeline])
    declare(one, "delete")
    assert maintain(one.world.pipeline).tidied == BATCHES
    assert len({n for _, n in one.wanted} - find_rows(one)) == 3 * BATCHES - 3 * (1 if find_rows(one) else 0)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", TAKES)
def test_a_run_leaves_what_another_program_took_right_after_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: str, guarded: bool
) -> None:
    """The run may be frozen between its commit and its tidying."""
    one = Trickle(tmp_path / "x", AFTER[after])
    one.land("a")
    one.consume()
    one.land("a")
    if not guarded:
        monkeypatch.setattr(Ledger, "check_held", lambda *_: None)
    with strike_at(consuming, "write_checkpoints", lambda: TAKES[name](one.world.table / "main"), before=True):
        one.consume()
    assert lies(one) == ([NAMES[1]] if guarded else [])


def move_table(one: Trickle, other: Trickle) -> None:
    """Replace the table by that of another deployment with the same name and group."""
    shutil.rmtree(one.world.table / "main")
    shutil.copytree(other.world.table / "main", one.world.table / "main")


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_no_file_goes_because_of_what_another_table_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Its offsets are of other files: its commits name another index."""
    one, other = Trickle(tmp_path / "x"), consumed(tmp_path / "y")
    for _ in range(BATCHES):
        one.land("a")
    one.ports.source.observe(("p:a", "p:b"), ASSIGN)
    one.consume()
    move_table(one, other)
    if not guarded:
        monkeypatch.setattr(tidy, "find_present", lambda past, _: find_consumed(past))
    declare(one, "delete")
    assert maintain(one.world.pipeline).tidied == (0 if guarded else BATCHES)


def test_no_file_goes_while_a_file_of_the_table_is_gone(tmp_path: Path) -> None:
    one = consumed(tmp_path / "x")
    main = one.world.table / "main"
    shutil.move(lost := next(iter(main.glob("data/**/*.parquet"))), tmp_path / "away")
    declare(one, "delete")
    done = maintain(one.world.pipeline)
    assert (done.tidied, lies(one)) == (0, NAMES)
    assert "and it is gone" in done.failed[-1]
    assert done.failed[-1].endswith("No consumed file was taken away")
    shutil.move(tmp_path / "away", lost)
    assert maintain(one.world.pipeline).tidied == BATCHES


def test_an_older_copy_of_the_table_takes_away_only_what_it_has(tmp_path: Path) -> None:
    one = consumed(tmp_path / "x")
    main = one.world.table / "main"
    shutil.copytree(main, tmp_path / "copy")
    one.land("a")
    one.consume()
    shutil.rmtree(main)
    shutil.copytree(tmp_path / "copy", main)
    declare(one, "delete")
    assert maintain(one.world.pipeline).tidied == BATCHES
    assert lies(one) == ["003.json"]
    assert len(find_rows(one)) == 3 * BATCHES


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("replay"), st.integers(0, 6), st.integers(1, 4)),
        st.tuples(st.just("skip"), st.integers(1, 2), st.just(0)),
        st.tuples(st.just("took"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@given(STEPS)
def test_what_is_present_is_what_a_table_of_single_offsets_has(steps: list[tuple[str, int, int]]) -> None:
    """Compared with a model of the table, offset by offset."""
    rows: set[int] = set()
    consumed_offsets: set[int] = set()
    past: list[Any] = []
    end = 0
    for number, (op, one, two) in enumerate(steps):
        span, index = (0, 0), "i"
        if op in ("commit", "skip"):
            span, end = (end, end + one), end + one
            index = "ij"[two]
            if op == "commit" and index == "i":
                rows |= set(range(*span))
                consumed_offsets |= set(range(*span))
        elif op == "replay":
            span = (min(one, end), min(one + two, end))
            rows |= consumed_offsets.intersection(range(*span))
        else:
            rows.clear()
        ranges = {"p": span} if span[0] < span[1] else {}
        took, name = op == "took", "adopt" if op == "took" else op
        past.insert(
            0, LogEntry(number, 0, name, "g", "", "", "", 0, {}, ranges, {}, {}, 0, took, "" if took else index)
        )
    found = tidy.find_present(past, "i").get("p", ())
    assert {offset for span in found for offset in range(*span)} == rows
