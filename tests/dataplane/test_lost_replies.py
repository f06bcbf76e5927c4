"""A commit whose reply was lost is found in the log, and written once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema

from rota.deltalog.delta_log import DeltaLog
from rota.errors import EnvironmentFailed
from rota.ledger import change, schema
from rota.ledger.ledger import Ledger
from tests.dataplane.conftest import NO_DAMAGE, damage
from tests.dataplane.delta_tables import batch, expect_rows, ledger, spark_schema


class Retried(Exception):
    """The answer to the first put was lost, and the second put found the object of the first."""


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """At the next write of a batch, call this `before` or `after` it, and raise its error."""

    def arm(before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None) -> None:
        real, armed = DeltaLog.put_commit, [True]

        def put(log: DeltaLog, version: int, commit: bytes) -> str | None:
            if b'"add"' not in commit or not armed or not armed.pop():
                return real(log, version, commit)
            before()
            tag = real(log, version, commit)
            try:
                after()
            except Retried:
                return None
            return tag

        monkeypatch.setattr(DeltaLog, "put_commit", put)

    return arm


def fail(error: Exception) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


LOST = [OSError("timeout"), Retried()]


@pytest.mark.parametrize("error", LOST, ids=["timeout", "conflict"])
def test_a_commit_that_landed_without_a_reply_is_found(
    tmp_path: Path, interfere: Callable[..., None], error: Exception
) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(after=fail(error))
    assert table.commit(claimed, one).version == 2
    assert damage(Path(table.location), expect_rows(p=2)) == NO_DAMAGE


def test_it_is_found_below_the_commits_of_others(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})

    def others() -> None:
        for _ in range(3):
            other = table.claim({"q": 1}, {"q": 0})
            table.commit(other, batch(table, other))
        raise OSError("late")

    one = batch(table, claimed)
    interfere(after=others)
    assert table.commit(claimed, one).version == 2
    assert damage(Path(table.location), expect_rows(p=2, q=6)) == NO_DAMAGE


def test_without_looking_into_the_history_it_is_written_twice(
    tmp_path: Path, interfere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "find_commit", lambda *_: None)
    monkeypatch.setattr(Ledger, "check_unmoved", lambda *_: None)
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(after=fail(LOST[0]))
    for error in ("timeout", "the commit is not in the log"):  # the run, and the next run
        with pytest.raises(EnvironmentFailed, match=error):
            table.commit(claimed, one)
    assert damage(Path(table.location), expect_rows(p=2))["overlaps"] == 2


def test_a_commit_that_never_landed_is_an_error_of_the_disk(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(before=fail(OSError("No space left on device")))
    with pytest.raises(EnvironmentFailed, match="No space left"):
        table.commit(claimed, one)
    assert table.commit(claimed, one).version == 2


def test_another_schema_in_between_is_no_fence(tmp_path: Path, interfere: Callable[..., None]) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    one = batch(table, claimed)
    interfere(
        before=lambda: DeltaTable(Path(table.location)).alter.add_columns(
            list(Schema.from_json(schema.find_added(schema.FIRST, [spark_schema(b="long")])).fields)
        )
    )
    table.commit(claimed, one)
    assert damage(Path(table.location), expect_rows(p=2)) == NO_DAMAGE
