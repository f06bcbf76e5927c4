"""Landed files after they are consumed (`after`): no unread file is deleted, wherever a run dies."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rota.catalog import load
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import INSPECT
from rota.errors import ConfigError
from rota.people.skip import skip
from rota.pipeline import files
from rota.run.consume import ConsumingRun
from rota.run.maintain import maintain
from rota.run.replay import RefusedReplay, ReplayedRange, replay
from rota.run.spans import find_changed
from tests.dataplane.striking import strike_at
from tests.dataplane.without_spark.trickle import Trickle

DELETE, ARCHIVE = 'after="delete"', 'after="archive:_done/2026"'


class Killed(BaseException):
    """Replaces a kill of the process."""


@pytest.fixture(params=[DELETE, ARCHIVE], ids=["delete", "archive"])
def trickle(request: pytest.FixtureRequest, tmp_path: Path) -> Trickle:
    return Trickle(tmp_path / "x", request.param)


def list_landed(one: Trickle) -> list[str]:
    """Return the files in the partitions' folders."""
    root = one.world.folder / "land"
    return sorted(str(file.relative_to(root)) for key in "ab" for file in (root / key).glob("**/*") if file.is_file())


def list_archived(one: Trickle) -> list[str]:
    root = one.world.folder / "land" / "_done" / "2026"
    return sorted(str(file.relative_to(root)) for file in root.glob("**/*") if file.is_file())


def list_aside(one: Trickle) -> list[str]:
    return [str(file) for file in (one.world.folder / "land" / ".rota-consumed").glob("**/*") if file.is_file()]


def is_whole(one: Trickle) -> bool:
    """Assert that nothing is lost or doubled, and that no partition waits."""
    lost, doubled = one.damage()
    return not (any(lost.values()) or any(doubled.values()) or one.world.tree.parked())


def is_archive(one: Trickle) -> bool:
    return ARCHIVE in (one.world.folder / "pipelines" / "p.py").read_text()


def test_what_is_consumed_goes_and_what_comes_is_read(trickle: Trickle) -> None:
    for _ in range(3):
        trickle.land("a")
        trickle.land("b")
        trickle.consume()
        assert (list_landed(trickle), list_aside(trickle)) == ([], [])
        assert is_whole(trickle)
    trickle.consume()
    assert len(list_archived(trickle)) == (6 if is_archive(trickle) else 0)
    source = trickle.world.ports.source
    assert isinstance(source, FilesSource)
    assert source.observe(("p:a", "p:b")).ends == {"p:a": 3, "p:b": 3}
    assert not find_changed(source, {"p:a": [(0, 3)]})
    assert not source.observe((), INSPECT).ignored
    assert maintain(trickle.world.pipeline).tidied == 0


def test_without_it_all_stays(tmp_path: Path) -> None:
    one = Trickle(tmp_path / "x")
    one.land("a")
    one.consume()
    assert (list_landed(one), maintain(one.world.pipeline).tidied) == (["a/000.json"], 0)


@contextmanager
def die_at(place: Any, name: str, *, before: bool) -> Iterator[None]:
    def die() -> None:
        raise Killed

    with strike_at(place, name, die, before=before), pytest.raises(Killed):
        yield


STEPS: list[tuple[Any, str, bool]] = [
    (ConsumingRun, "commit", True),
    (ConsumingRun, "commit", False),
    (DiskLanding, "take", True),
    (Path, "rename", False),
    (Path, "unlink", True),
    (DiskLanding, "take", False),
]


@pytest.mark.parametrize(("place", "name", "before"), STEPS, ids=lambda one: getattr(one, "__name__", str(one)))
def test_it_may_die_anywhere(trickle: Trickle, place: Any, name: str, before: bool) -> None:
    trickle.land("a")
    trickle.land("a")
    with die_at(place, name, before=before):
        trickle.consume()
    trickle.land("a")
    trickle.consume()
    assert is_whole(trickle)
    if is_archive(trickle):
        (done,) = replay(trickle.world.tree, trickle.ports, {"p:a": (0, 3)}, "r")
        assert isinstance(done, ReplayedRange), "a replay finds each of them at any moment"
    maintain(trickle.world.pipeline)
    assert (list_landed(trickle), list_aside(trickle)) == ([], [])
    assert len(list_archived(trickle)) == (3 if is_archive(trickle) else 0)
    trickle.consume()
    assert is_whole(trickle)


def overwrite(one: Trickle, name: str) -> Path:
    """Replace the file by one with other rows, by a rename, as another program does."""
    file = one.world.folder / "land" / "a" / f"{name}.json"
    new = file.with_name(".new")
    new.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(900, 905)))
    new.rename(file)
    return file


def test_what_was_overwritten_after_it_was_read_stays_and_is_reported(
    trickle: Trickle, caplog: pytest.LogCaptureFixture
) -> None:
    name, _ = trickle.land("a")
    with strike_at(DiskLanding, "take", lambda: overwrite(trickle, name), before=True):
        trickle.consume()
    assert list_landed(trickle) == ["a/000.json"]
    assert "another file took its place" in caplog.text
    source = trickle.world.ports.source
    assert isinstance(source, FilesSource)
    assert find_changed(source, {"p:a": [(0, 1)]}).keys() == {"p:a"}, "a check of the page reports it"
    (done,) = replay(trickle.world.tree, trickle.ports, {"p:a": (0, 1)}, "r")
    assert isinstance(done, ReplayedRange)
    assert done.rows == 5
    assert maintain(trickle.world.pipeline).tidied == 1, "as what it is now it was read"
    assert list_landed(trickle) == []


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_what_is_overwritten_at_the_last_moment_comes_back(
    trickle: Trickle, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Between the check and the move. Without the second check its rows are lost. The archive has the consumed file."""
    name, _ = trickle.land("a")
    if not guarded:
        real, state = DiskLanding.take, DiskLanding.read_state

        def trust(landing: DiskLanding, file: Any, to: str) -> bool:
            monkeypatch.setattr(DiskLanding, "read_state", lambda self, one: one if state(self, one) else None)
            try:
                return real(landing, file, to)
            finally:
                monkeypatch.undo()

        monkeypatch.setattr(DiskLanding, "take", trust)
    with strike_at(Path, "rename", lambda: overwrite(trickle, name), before=True):
        trickle.consume()
    there = list_landed(trickle) == ["a/000.json"]
    assert there == guarded
    assert list_aside(trickle) == []
    root = trickle.world.folder / "land/_done/2026"
    archived = [(root / path).read_text() for path in list_archived(trickle)]
    assert [json.loads(text.splitlines()[0])["n"] for text in archived] == ([0] if is_archive(trickle) else [])


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
def test_what_was_skipped_or_was_before_the_start_was_not_consumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    """Without the law each file below the offset would be removed."""
    if not guarded:
        real: Callable[..., int] = FilesSource.tidy
        monkeypatch.setattr(
            FilesSource,
            "tidy",
            lambda source, find: real(
                source, lambda index: {p: [(0, of[-1][1])] for p, of in find(index).items() if of}
            ),
        )
    one = Trickle(tmp_path / "x", f"{DELETE}, start='latest'")
    one.forget("a", one.land("a", "old")[1])
    one.consume()
    one.land("a")
    one.consume()
    one.forget("a", one.land("a", "bad")[1])
    (one.world.folder / "land" / "a" / "bad.json").touch()
    assert skip(one.world.tree, one.ports, "p:a", to=3) == (2, 3)
    one.land("a")
    one.consume()
    assert is_whole(one)
    maintain(one.world.pipeline)
    assert list_landed(one) == (["a/bad.json", "a/old.json"] if guarded else [])


def test_a_file_that_cannot_be_moved_stays_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All later files of its folder stayed, too. In a bucket it may be an object that is too large to copy."""
    one = Trickle(tmp_path / "x", ARCHIVE)
    (one.world.folder / "land/_done/2026/a/000.json").mkdir(parents=True)
    for _ in range(3):
        one.land("a")
    one.consume()
    assert (list_landed(one), list_archived(one)) == (["a/000.json"], ["a/001.json", "a/002.json"])
    assert "file=a/000.json not_taken_away=" in caplog.text
    (one.world.folder / "land/_done/2026/a/000.json").rmdir()
    assert maintain(one.world.pipeline).tidied == 1
    assert is_whole(one)


def replace_archived(aside: Path, to: Path, **_: object) -> None:
    """Ablation: archiving by a rename, which replaces an existing file."""
    shutil.copy2(aside, to)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("equal", [True, False], ids=["equal content", "different content"])
def test_an_archived_file_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, equal: bool, guarded: bool
) -> None:
    """Another table over the same folder may have archived a file of that name."""
    one = Trickle(tmp_path / "x", ARCHIVE)
    path, numbers = one.land("a")
    landed, archived = (one.world.folder / "land" / folder / "a" / f"{path}.json" for folder in ("", "_done/2026"))
    there = landed.read_text() if equal else f'{{"n": {numbers[0]}}}\n{{"n": 99}}\n'
    archived.parent.mkdir(parents=True)
    archived.write_text(there)
    if not guarded:
        monkeypatch.setattr("rota.dataplane.files.disk.os.link", replace_archived)
    one.consume()
    assert is_whole(one)
    assert (archived.read_text() == there) == (guarded or equal)
    assert (list_landed(one), list_aside(one)) == ([f"a/{path}.json"] if guarded and not equal else [], [])
    assert ("_done/2026/a/000.json in the archive has different content. Rename it;" in caplog.text) == (
        guarded and not equal
    )
    if guarded and not equal:
        (said,) = maintain(one.world.pipeline).failed
        assert said.startswith(f"{one.world.folder}/land/a/000.json was consumed and stays: _done/2026/a/000.json")
        archived.rename(archived.with_suffix(".first"))
        assert maintain(one.world.pipeline).tidied == 1
        assert (len(list_archived(one)), list_landed(one)) == (2, [])


def test_a_replay_reads_the_archive_and_names_what_was_deleted(trickle: Trickle) -> None:
    for _ in range(2):
        trickle.land("a")
        trickle.consume()
    (done,) = replay(trickle.world.tree, trickle.ports, {"p:a": (0, 2)}, "r")
    if is_archive(trickle):
        assert isinstance(done, ReplayedRange)
        assert (done.rows, len(list_archived(trickle))) == (6, 2)
    else:
        assert isinstance(done, RefusedReplay)
        assert done.reason == (
            "the source no longer has the whole range: p:a: a/000.json (offset 0) was taken away after it was consumed "
            "(after='delete'). Land it again, then replay p:a"
        )
    assert is_whole(trickle)


def test_an_older_table_gets_a_line_where_its_files_are(trickle: Trickle) -> None:
    """A copy of the table from before they were consumed."""
    trickle.land("a")
    trickle.consume()
    shutil.copytree(trickle.world.table / "main", trickle.world.folder / "copy")
    trickle.land("a")
    trickle.consume()
    source = trickle.world.ports.source
    said = str(source.find_broken({"p:a": (1, 2)})["p:a"])
    if is_archive(trickle):
        assert "was consumed, and lies in _done/2026/: this is an older table" in said
    else:
        assert "or this is an older table than the one that has it" in said
    assert said.endswith("then: rota retry p:a")


FILE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files({place!r}, format="csv", schema="a int", after={after!r}), table=delta({table!r}),
)
"""


@pytest.mark.parametrize(("mine", "its", "refused"), [
    ("land", "land", True), ("land", "land/x", True), ("land/x", "land", True), ("land", "landed", False),
])  # fmt: skip
def test_a_pipeline_that_takes_files_away_reads_alone(tmp_path: Path, mine: str, its: str, refused: bool) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    for name, place, after in (("taker", mine, "delete"), ("keeper", its, "keep")):
        text = FILE.format(place=str(tmp_path / place), after=after, table=str(tmp_path / "tables" / name))
        (pipelines / f"{name}.py").write_text(text)
    catalog = load(pipelines)
    assert set(catalog.refused) == ({"taker.py"} if refused else set())
    if refused:
        assert "would take files away that pipeline 'keeper' reads" in catalog.refused["taker.py"]


@pytest.mark.parametrize("after", ["", "move", "archive", "archive:", "archive:done", "archive:/x", "archive:_x/../y"])
def test_an_archive_whose_files_would_be_read_is_refused(after: str) -> None:
    with pytest.raises(ConfigError, match="after="):
        files("/x", format="json", schema="n int", after=after)
