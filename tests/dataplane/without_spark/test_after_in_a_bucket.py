"""Consumed objects are deleted or archived in their bucket, but only if they are unchanged."""

from pathlib import Path

import pytest

from rota.dataplane.files import owner
from rota.dataplane.files.bucket import BucketLanding
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import ASSIGN
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_ports
from rota.run.spans import find_changed
from rota.stores import open_objects


def open_source(landing: str, folder: Path, after: str) -> FilesSource:
    source = files(landing, format="json", schema="n int", after=after)
    found = open_ports(Pipeline(source, delta(str(folder / "table")), name="p"), "g", "0" * 32).source
    assert isinstance(found, FilesSource)
    return found


def list_keys(landing: str) -> list[str]:
    """Return all keys except the mark of the index that owns the landing folder."""
    found = {str(one["path"]) for page in open_objects(landing).list() for one in page}
    return sorted(found - {owner.MARK})


@pytest.mark.parametrize(("after", "archived"), [("delete", []), ("archive:_done", ["_done/a/0.json"])])
def test_what_was_consumed_goes_and_what_was_overwritten_stays(
    tmp_path: Path, bucket: str, after: str, archived: list[str]
) -> None:
    landing = f"{bucket}/land"
    store = open_objects(landing)
    for name in ("0", "1", "2"):
        store.put(f"a/{name}.json", b'{"n": 1}\n')
    source = open_source(landing, tmp_path, after)
    assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 3}
    store.put("a/1.json", b'{"n": 2}\n')
    assert source.tidy(lambda _: {"p:a": [(0, 2)]}).taken == 1
    assert list_keys(landing) == sorted([*archived, "a/1.json", "a/2.json"])
    assert source.tidy(lambda _: {"p:a": [(0, 2)]}).taken == 0, "once more it does nothing"
    assert source.observe(("p:a",)).ends == {"p:a": 3}
    assert [one.offset for one in find_changed(source, {"p:a": [(0, 3)]})["p:a"]] == [1]
    assert source.list_keys() == ("a",)
    broken = source.reread({"p:a": (0, 1)}).find_broken({"p:a": (0, 1)})
    if archived:
        assert not broken
        assert source.reread({"p:a": (0, 1)}).locate("p:a", 0) == "_done/a/0.json"
    else:
        assert "was taken away after it was consumed (after='delete'). Land it again" in str(broken["p:a"])


def test_an_object_that_is_replaced_between_two_requests_is_left(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is checked again after it was copied into the archive."""
    landing = f"{bucket}/land"
    store = open_objects(landing)
    store.put("a/0.json", b'{"n": 1}\n')
    source = open_source(landing, tmp_path, "archive:_done")
    source.observe(("p:a",), ASSIGN)
    real = type(store).copy

    def meanwhile(of: object, *paths: str) -> None:
        real(of, *paths)  # type: ignore[arg-type]
        store.put("a/0.json", b'{"n": 2}\n')

    monkeypatch.setattr(type(store), "copy", meanwhile)
    assert source.tidy(lambda _: {"p:a": [(0, 1)]}).taken == 0
    assert bytes(store.get("a/0.json").bytes()) == b'{"n": 2}\n'
    assert list_keys(landing) == ["a/0.json"], "the copy may be of either"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
@pytest.mark.parametrize("there", [b'{"n": 1}\n', b'{"n": 2}\n', b'{"n": 12}\n'], ids=["equal", "other", "longer"])
def test_an_archived_object_is_never_overwritten(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch, there: bytes, guarded: bool
) -> None:
    landing, mine = f"{bucket}/land", b'{"n": 1}\n'
    store = open_objects(landing)
    store.put("a/0.json", mine)
    store.put("_done/a/0.json", there)
    source = open_source(landing, tmp_path, "archive:_done")
    source.observe(("p:a",), ASSIGN)
    if not guarded:
        monkeypatch.setattr(BucketLanding, "is_archived", lambda *_: False)
    stays = guarded and there != mine
    assert source.tidy(lambda _: {"p:a": [(0, 1)]}).taken == (0 if stays else 1)
    assert bytes(store.get("_done/a/0.json").bytes()) == (there if guarded else mine)
    assert list_keys(landing) == ["_done/a/0.json", *(["a/0.json"] if stays else [])]
