"""What every source promises (`ports.Source`). An implementation is put under it by one line:

    class TestMySource(SourceSuite):
        bench = MyBench  # makes sources in a folder of the test's own

Beside, a source is put under what holds of its kind: `SharingSuite` if several may read it at once, `AssigningSuite` if it
gives the offsets itself, `StartingSuite` if its declaration says where a partition starts, `ChangingSuite` if its data can
change or vanish in place.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

from rota.dataplane.ports import Ports, Source
from rota.errors import RotaError


class SourceBench(Protocol):
    """A place with one source of pipeline `p`, whose partition of key `a` is `p:a`."""

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        """The ports over the source, opened anew. `most` offsets are a batch."""
        ...

    def land(self, key: str, count: int = 1) -> None:
        """So many offsets' worth of new data of this key."""
        ...

    def change(self, partition: str, offset: int) -> None:
        """The data of the offset is another than it was."""
        ...

    def lose(self, partition: str, offset: int) -> None:
        """The data of the offset is gone."""
        ...


class Benched:
    """A suite over the source of a bench."""

    bench: Callable[[Path], SourceBench]

    @pytest.fixture
    def place(self, tmp_path: Path) -> SourceBench:
        return type(self).bench(tmp_path)


class SourceSuite(Benched):
    """The laws of `ports.Source`."""

    # --- what is there ---

    def test_the_keys_are_sorted_and_follow_what_lands(self, place: SourceBench) -> None:
        assert place.open().source.list_keys() == ()
        for key in "ba":
            place.land(key)
        assert place.open().source.list_keys() == ("a", "b")
        assert not place.open().source.list_ignored()

    # --- offsets ---

    def test_an_offset_means_the_same_for_ever(self, place: SourceBench) -> None:
        place.land("a", 2)
        place.land("b")
        assert place.open().source.assign_offsets(("p:a", "p:b")) == {"p:a": 2, "p:b": 1}
        first = names(place.open().source, "p:a", 2)
        place.land("a", 3)
        assert place.open().source.read_ends(("p:a",)) == {"p:a": 5}
        assert place.open().source.assign_offsets(("p:a",)) == {"p:a": 5}
        assert place.open().source.assign_offsets(("p:a",)) == {"p:a": 5}
        assert place.open().source.read_assigned_ends(("p:a", "p:b")) == {"p:a": 5, "p:b": 1}
        assert names(place.open().source, "p:a", 5)[:2] == first
        assert len(set(names(place.open().source, "p:a", 5))) == 5

    # --- jobs ---

    def test_what_is_new_is_in_one_job_in_order_and_within_its_largest_batch(self, place: SourceBench) -> None:
        sizes = {"a": 5, "b": 0, "c": 2, "d": 1}
        for key, count in sizes.items():
            place.land(key, count)
        source = place.open(most=3).source
        ends = source.assign_offsets(tuple(f"p:{key}" for key in sizes))
        starts = {"p:d": 0, "p:c": 2, "p:b": 0, "p:a": 1}
        jobs = source.plan_jobs(starts, ends)
        assert [p for ranges in jobs for p in ranges] == ["p:d", "p:a"], "c is consumed, b has nothing"
        for p, (start, end) in ((p, r) for ranges in jobs for p, r in ranges.items()):
            assert start == starts[p]
            assert start < end <= min(ends[p], start + 3)
        assert source.plan_jobs(ends, ends) == ()

    # --- what is no more what it was ---

    def test_what_is_whole_is_not_broken_and_what_was_never_there_is(self, place: SourceBench) -> None:
        place.land("a", 2)
        source = place.open().source
        source.assign_offsets(("p:a",))
        assert not source.find_broken({"p:a": (0, 2)})
        assert source.find_rewritten({"p:a": (0, 1)}) == {"p:a": ()}
        assert source.find_broken({"p:a": (0, 3)}).keys() == {"p:a"}
        assert "p:a" in source.explain_lost("p:a", 1)


class SharingSuite(Benched):
    """Of a source that gives every reader the same at the same time."""

    def test_whoever_races_each_record_has_one_offset(self, place: SourceBench) -> None:
        for key in "ab":
            place.land(key, 5)
        partitions = ("p:a", "p:b")
        sources = [place.open().source for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda source: source.assign_offsets(partitions), sources))
        assert found == [{"p:a": 5, "p:b": 5}] * 4
        for p in partitions:
            assert len(set(names(place.open().source, p, 5))) == 5


class AssigningSuite(Benched):
    """Of a source that gives the offsets itself."""

    def test_looking_assigns_nothing(self, place: SourceBench) -> None:
        place.land("a", 2)
        source = place.open().source
        for _ in range(2):
            assert source.read_ends(("p:a", "p:none")) == {"p:a": 2, "p:none": 0}
            assert source.read_assigned_ends(("p:a", "p:none")) == {"p:a": 0, "p:none": 0}
            assert not source.explain_unreadable("p:a")


class StartingSuite(Benched):
    """Of a source whose declaration says where a partition starts."""

    @pytest.mark.parametrize(("start", "at", "later"), [("earliest", 0, 0), ("latest", 7, 0), (3, 3, 3)])
    def test_where_a_partition_starts(self, place: SourceBench, start: str | int, at: int, later: int) -> None:
        source = place.open(start).source
        assert source.choose_starts({"p:a": 7, "p:b": 7}, later=("p:b",)) == {"p:a": at, "p:b": later}
        assert source.skips_existing == (at == 7)


class ChangingSuite(Benched):
    """Of a source whose data can change or vanish in place."""

    @pytest.mark.parametrize("how", ["change", "lose"])
    def test_what_is_no_more_what_it_was_breaks_its_own_range_alone(self, place: SourceBench, how: str) -> None:
        for key in "ab":
            place.land(key, 3)
        place.open().source.assign_offsets(("p:a", "p:b"))
        getattr(place, how)("p:a", 1)
        source = place.open().source
        broken = source.find_broken({"p:a": (0, 3), "p:b": (0, 3)})
        assert broken.keys() == {"p:a"}
        assert isinstance(broken["p:a"], RotaError)
        assert not source.find_broken({"p:a": (2, 3)})
        rewritten = source.find_rewritten({"p:a": range(3), "p:b": range(3)})
        assert rewritten == {"p:a": (1,) if how == "change" else (), "p:b": ()}
        assert not source.explain_unsettled("p:a", rewritten["p:a"])
        assert source.assign_offsets(("p:a",)) == {"p:a": 3}, "it is not new"

    def test_what_is_read_again_counts_as_it_is_now_once_it_is_kept(self, place: SourceBench) -> None:
        place.land("a", 3)
        ports = place.open()
        ports.source.assign_offsets(("p:a",))
        if not ports.source.can_replay:
            return
        place.change("p:a", 0)
        place.change("p:a", 2)
        again = ports.reread({"p:a": (0, 1)})
        assert not again.source.find_broken({"p:a": (0, 1)})
        assert place.open().source.find_broken({"p:a": (0, 1)}), "nobody else sees it so yet"
        again.source.keep_identities(("p:a",))
        assert not place.open().source.find_broken({"p:a": (0, 2)})
        assert place.open().source.find_broken({"p:a": (2, 3)}), "it was not read again"
        assert place.open().source.read_assigned_ends(("p:a",)) == {"p:a": 3}

    def test_what_is_gone_cannot_be_read_again(self, place: SourceBench) -> None:
        place.land("a", 1)
        ports = place.open()
        ports.source.assign_offsets(("p:a",))
        place.lose("p:a", 0)
        assert ports.reread({"p:a": (0, 1)}).source.find_broken({"p:a": (0, 1)}).keys() == {"p:a"}


def names(source: Source, partition: str, end: int) -> list[str]:
    return [source.locate(partition, offset) for offset in range(end)]
