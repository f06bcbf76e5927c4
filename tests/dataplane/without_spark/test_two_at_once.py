"""Each pair of commands at once: the second runs before some call of the first. `two_at_once` has the laws."""

from pathlib import Path

import pytest

from rota.coordination import token_base
from rota.ledger import renaming
from rota.local.bucket import BucketServer
from tests.bucket import in_bucket, on_disk
from tests.dataplane.without_spark.foreign_programs import delete_in_place_by_spark
from tests.dataplane.without_spark.two_at_once import VERBS, Play, Stage, play

# The approximate number of calls of each command; if it makes fewer, the second command never runs.
CALLS = {"run": 45, "take": 45, "replay": 14, "rename": 68, "skip": 9, "retry": 15, "adopt": 70, "maintain": 9}


def play_each(folder: Path, first: str, seconds: list[str], at: int, server: BucketServer | None = None) -> list[Play]:
    """With each state of the stage, and a first command that ends and one that dies, in turn."""
    found = []
    for number, second in enumerate(seconds):
        place = in_bucket(server) if server else on_disk(folder / str(number) / "store")
        stage = Stage(folder / str(number), place, stuck=number % 2 == 0 or first == "retry")
        found.append(play(stage, first, second, 1 + (at + 13 * number) % CALLS[first], killed=number % 4 < 2))
    return found


@pytest.mark.parametrize("first", VERBS)
def test_any_two_at_once_lose_and_double_nothing(first: str, tmp_path: Path) -> None:
    found = play_each(tmp_path, first, list(VERBS), list(VERBS).index(first))
    assert [one.wrong for one in found] == [()] * len(VERBS)
    assert sum(one.struck for one in found) > len(found) / 2, "the others ended before that call"


def test_so_it_is_in_a_bucket(tmp_path: Path, bucket: str, bucket_server: BucketServer) -> None:
    for number, first in enumerate(VERBS):
        seconds = [list(VERBS)[(number + 3) % len(VERBS)]]
        (found,) = play_each(tmp_path / first, first, seconds, 3 * number, bucket_server)
        assert found.wrong == (), first


def strike(folder: Path, first: str, second: str, calls: range) -> list[str]:
    """Return the faults after the second command ran before each of these calls of the first."""
    plays = (
        play(Stage(folder / str(at), on_disk(folder / str(at) / "store"), False), first, second, at) for at in calls
    )
    return [line for one in plays for line in one.wrong]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_the_same_rename_twice_at_once_keeps_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(renaming, "is_renamed", lambda *_: False)
    found = strike(tmp_path, "rename", "rename", range(2, 50, 9))
    assert found == [] if guarded else any("the index has given 0 offsets" in line for line in found)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_an_adoption_beside_a_rename_leaves_no_checkpoint_of_the_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        monkeypatch.setattr(token_base, "pipeline_of", lambda _: "")
    found = strike(tmp_path, "adopt", "rename", range(45, 48))
    assert found == [] if guarded else all(line.startswith("checkpoints {'p:a'") for line in found)


def test_a_retry_beside_a_rename_ends_without_a_traceback(tmp_path: Path) -> None:
    for at in range(3, 7):
        place = on_disk(tmp_path / str(at) / "store")
        assert play(Stage(tmp_path / str(at), place, True), "retry", "rename", at).wrong == (), at


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_a_rename_of_rows_that_were_deleted_in_place_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the guard the table is half renamed, and no run works, until Spark has rewritten the file."""
    stage = Stage(tmp_path / "x", on_disk(tmp_path / "store"), stuck=False)
    delete_in_place_by_spark(stage.table.files / "main")
    stage.do("adopt")
    if not guarded:
        monkeypatch.setattr(renaming, "check_rewritable", lambda _: None)
    stage.do("rename")
    (said,) = stage.said
    stage.world.call("p")
    stage.do("run")
    if guarded:
        assert "Nothing was renamed" in said
        assert stage.said == [said], "the run works under the old name"
    else:
        assert "is between two names" in stage.said[-1]
