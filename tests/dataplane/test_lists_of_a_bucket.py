"""One list of a bucket covers many partitions: it finds the same as a list of each, with fewer requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from obstore.store import ObjectStore

from rota import stores
from rota.dataplane.files import bucket as buckets
from rota.dataplane.files.bucket import PAGE, BucketLanding
from rota.local.bucket import BucketServer
from rota.stores import open_files

# Neighbours in the order of keys: characters before and after a slash.
FOLDERS = ("a", "a b", "a!", "a#1", "a%", "a-1", "a.", "a.b", "a0", "aa", "a~", "b", "b=1", "é", "ü b", "z")
ABSENT = ("A", "a!!", "m", "zz")


@pytest.fixture
def landed(bucket: str) -> BucketLanding:
    """Folders with 0 to 11 objects, some hidden, and objects in no folder."""
    landing, draw = BucketLanding(f"{bucket}/land"), Random(1)
    for folder in FOLDERS:
        for number in range(draw.randrange(12)):
            landing.store.put(f"{folder}/{draw.choice(('', 'sub/', '_later/'))}x#{number}", b"1")
    for name in ("a.json", "b.json", "_hidden/x"):
        landing.store.put(name, b"1")
    return landing


def list_all(landing: BucketLanding) -> dict[str, list[str]]:
    """Return the visible paths of each folder, from one list of everything."""
    found: dict[str, list[str]] = {}
    for page in landing.store.list():
        for one in page:
            folder, slash, rest = one["path"].partition("/")
            if slash and not folder.startswith("_") and not rest.startswith("_"):
                found.setdefault(folder, []).append(one["path"])
    return found


def draw_known(there: Mapping[str, list[str]], draw: Random) -> dict[str, frozenset[str]]:
    """Choose some folders, some of them missing; some of their paths are known."""
    asked = draw.sample(FOLDERS + ABSENT, draw.randrange(1, len(FOLDERS) + len(ABSENT)))
    return {f: frozenset(path for path in there.get(f, ()) if draw.random() < 0.6) for f in asked}


def find_missing(landing: BucketLanding, seeds: range) -> list[str]:
    """Return unknown paths that were not found, and paths that were found and should not have been."""
    there, wrong = list_all(landing), []
    for seed in seeds:
        known = draw_known(there, Random(seed))
        found: dict[str, list[str]] = {}
        for folder, files in landing.list_rested(known, 0.0, 0.0, []):
            assert not isinstance(files, OSError)
            found[folder] = [file.path for file in files]
        wanted = {f: [path for path in there.get(f, ()) if path not in paths] for f, paths in known.items()}
        wrong += [f"{seed}: {f}: {found[f]}, not {wanted[f]}" for f in known if found[f] != wanted[f]]
    return wrong


@pytest.mark.parametrize(("page", "held"), [(1, 2), (2, 1000), (3, 1), (7, 5), (1000, 1)])
def test_a_list_along_the_folders_finds_what_a_list_of_each_finds(
    landed: BucketLanding, page: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it ends early because it found many new objects."""
    monkeypatch.setattr(buckets, "PAGE", page)
    monkeypatch.setattr(buckets, "HELD", held)
    assert find_missing(landed, range(40)) == []


@dataclass(frozen=True)
class Lying:
    """A store whose lists begin after the requested folder, or fail without a prefix."""

    store: ObjectStore
    breaks: str = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def list(self, prefix: str | None = None, *, offset: str | None = None, chunk_size: int = 1000) -> Any:
        if self.breaks and prefix in (None, self.breaks):
            raise PermissionError(prefix)
        return self.store.list(prefix, offset=offset and f"{offset[:-1]}0", chunk_size=chunk_size)


def test_a_leap_too_far_is_found(landed: BucketLanding, monkeypatch: pytest.MonkeyPatch) -> None:
    store = landed.store
    monkeypatch.setattr(stores, "open_objects", lambda _: Lying(store))
    assert find_missing(landed, range(10))


def test_a_folder_that_cannot_be_listed_is_the_only_one(landed: BucketLanding, monkeypatch: pytest.MonkeyPatch) -> None:
    store, there = landed.store, list_all(landed)
    monkeypatch.setattr(stores, "open_objects", lambda _: Lying(store, "b/"))
    found = dict(landed.list_rested(dict.fromkeys(there, frozenset[str]()), 0.0, 0.0, []))
    assert isinstance(found.pop("b"), OSError)
    assert {f: [file.path for file in files] for f, files in found.items() if not isinstance(files, OSError)} == {
        f: paths for f, paths in there.items() if f != "b"
    }


def test_many_folders_cost_as_many_lists_as_their_objects_have_pages(bucket: str, bucket_server: BucketServer) -> None:
    landing = BucketLanding(bucket)
    for number in range(60):
        landing.store.put(f"{number:02}/x", b"1")
    folders = [f"{number:02}" for number in range(60)]
    for asked in (folders, folders[3:], folders[::7], folders[:1]):
        before = bucket_server.count_requests()
        assert all(len(files) == 1 for _, files in landing.list_rested(dict.fromkeys(asked, frozenset()), 0.0, 0.0, []))
        assert bucket_server.count_requests() - before == 1


def test_what_only_shows_a_folder_is_asked_for_once(bucket: str, bucket_server: BucketServer) -> None:
    """A poll of a folder with many of these, which consoles and Hadoop make, took one request for each."""
    landing = BucketLanding(f"{bucket}/land")
    landing.store.put("a/0", b"1")
    landing.store.put("a/empty", b"")
    for number in range(30):
        open_files(landing.place).create_dir(f"a/{number:02}", recursive=True)
    asked, costs = {"a": frozenset[str]()}, []
    for _ in range(2):
        before = bucket_server.count_requests()
        ((_, files),) = landing.list_rested(asked, 0.0, 0.0, [])
        costs.append(bucket_server.count_requests() - before)
        assert [file.path for file in files if not isinstance(files, OSError)] == ["a/0", "a/empty"]
    assert costs == [1 + 31, 1 + 1], "the empty one is asked for until it is known to the index"


def test_what_was_archived_costs_no_look(bucket: str, bucket_server: BucketServer) -> None:
    landing = BucketLanding(f"{bucket}/land")
    for number in range(2 * PAGE + 5):
        landing.store.put(f"_done/a/{number:05}", b"1")
    for path in ("A/0", "a/0", "_done0/x"):
        landing.store.put(path, b"1")
    before = bucket_server.count_requests()
    assert landing.list_ignored() == []
    assert bucket_server.count_requests() - before == 3, "one at the top, and one on each side of the archive"
    odd = bucket_server.data / bucket.removeprefix("s3://") / "land" / "a" / "x\ty"
    odd.write_text("1")
    assert [path for path, _ in landing.list_ignored()] == ["a/x\\ty"]


def test_a_folder_of_a_page_that_is_known_costs_one_list(bucket: str, bucket_server: BucketServer) -> None:
    """A million objects are in a thousand such folders."""
    names, place = [f"{number:04}" for number in range(PAGE)], bucket_server.data / bucket.removeprefix("s3://")
    for folder in "abc":
        (place / folder).mkdir()
        for name in names:
            (place / folder / name).write_bytes(b"1")
    known = {folder: frozenset(f"{folder}/{name}" for name in names) for folder in "abc"}
    before = bucket_server.count_requests()
    assert dict(BucketLanding(bucket).list_rested(known, 0.0, 0.0, [])) == {"a": [], "b": [], "c": []}
    assert bucket_server.count_requests() - before == 3
