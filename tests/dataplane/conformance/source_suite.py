"""The laws of every source (`ports.Source`). One line tests an implementation:

    class TestMySource(SourceSuite):
        bench = MyBench  # makes sources in a folder of the test's own

A source is also tested by the suite of each protocol that it has (`ReplayingSuite`, `HoldingSuite`, `FilingSuite`,
`TimingSuite`), and of each fact that it can observe: `AssigningSuite` if it assigns the offsets itself,
`LosingSuite` if it can lose assigned offsets, `WaitingSuite` if one partition alone may be unreadable, `LeavingSuite` if
something in it is never read, `SharingSuite` if several runs may read it at once, `StartingSuite` if its declaration
states where a partition starts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Protocol

import pytest

from rota.dataplane.ports import (
    ASSIGN,
    ENDS,
    INSPECT,
    Consumed,
    HasFiles,
    HasTimes,
    Holds,
    Ports,
    Query,
    Replays,
    Source,
)
from rota.errors import RotaError
from rota.ledger.values import Position
from rota.pipeline import Pipeline
from rota.registry import open_source, rename_offsets

PROTOCOLS = (Holds, Replays, HasTimes, HasFiles)


class SourceBench(Protocol):
    """A place with one source of pipeline `p`, whose partition of key `a` is `p:a`."""

    def open(self, start: str | int = "earliest", most: int = 1000) -> Ports:
        """Open the source again, and return ports over it. `most` offsets are a batch."""
        ...

    def land(self, key: str, count: int = 1) -> None:
        """Land new data of this key for so many offsets."""
        ...


class ChangingBench(SourceBench, Protocol):
    """A bench whose data can change or vanish."""

    def change(self, partition: str, offset: int) -> None:
        """Change the data of the offset."""
        ...

    def lose(self, partition: str, offset: int) -> None:
        """Delete the data of the offset."""
        ...


class BlindBench(SourceBench, Protocol):
    """A bench in which one partition can be unreadable for a while."""

    def blind(self, key: str) -> None:
        """Make the partition of this key unreadable."""
        ...

    def mend(self, key: str) -> None:
        """Make it readable again, unchanged."""
        ...


class LitteredBench(SourceBench, Protocol):
    """A bench that can have data that are never read."""

    def litter(self) -> str:
        """Add such data. Return the name."""
        ...


class StampedBench(SourceBench, Protocol):
    """A bench whose records have timestamps."""

    def stamp(self, key: str, stamps: Sequence[float]) -> None:
        """Land a record of this key for each of these seconds since 1970, in this order."""
        ...


class RenamedBench(SourceBench, Protocol):
    """A bench whose pipeline can be renamed."""

    def declare(self, pipeline: str) -> Pipeline:
        """Return the pipeline of this name, whose partition of key `a` is `<name>:a`."""
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

    @pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda one: one.__name__)
    def test_a_source_has_all_members_of_a_protocol_or_none(self, place: SourceBench, protocol: type) -> None:
        source = place.open().source
        members = [name for name in vars(protocol) if not name.startswith("_")]
        had = [name for name in members if hasattr(source, name)]
        assert had == (members if isinstance(source, protocol) else [])

    # --- offsets ---

    def test_an_offset_means_the_same_for_ever(self, place: SourceBench) -> None:
        place.land("a", 2)
        place.land("b")
        assert place.open().source.observe(("p:a", "p:b"), ASSIGN).ends == {"p:a": 2, "p:b": 1}
        first = names(place.open().source, "p:a", 2)
        place.land("a", 3)
        assert place.open().source.observe(("p:a",)).ends == {"p:a": 5}
        assert place.open().source.observe(("p:a",), ASSIGN).ends == {"p:a": 5}
        assert place.open().source.observe(("p:a",), ASSIGN).ends == {"p:a": 5}
        assert names(place.open().source, "p:a", 5)[:2] == first
        assert len(set(names(place.open().source, "p:a", 5))) == 5

    # --- jobs ---

    def test_what_is_new_is_in_one_job_in_order_and_within_its_largest_batch(self, place: SourceBench) -> None:
        sizes = {"a": 5, "b": 0, "c": 2, "d": 1}
        for key, count in sizes.items():
            place.land(key, count)
        source = place.open(most=3).source
        ends = source.observe(tuple(f"p:{key}" for key in sizes), ASSIGN).ends
        starts = {"p:d": 0, "p:c": 2, "p:b": 0, "p:a": 1}
        jobs = source.plan_jobs(starts, ends)
        assert [p for ranges in jobs for p in ranges] == ["p:d", "p:a"], "c is consumed, b has nothing"
        for p, (start, end) in ((p, r) for ranges in jobs for p, r in ranges.items()):
            assert start == starts[p]
            assert start < end <= min(ends[p], start + 3)
        assert source.plan_jobs(ends, ends) == ()

    # --- data that changed ---

    def test_what_is_whole_is_not_broken_and_what_was_never_there_is(self, place: SourceBench) -> None:
        place.land("a", 2)
        source = place.open().source
        source.observe(("p:a",), ASSIGN)
        assert not source.find_broken({"p:a": (0, 2)})
        assert source.find_broken({"p:a": (0, 3)}).keys() == {"p:a"}
        assert not source.observe(("p:a",)).unreadable


class LosingSuite(Benched):
    """For a source that can lose offsets that it assigned."""

    def test_a_loss_is_explained_and_gives_no_offset(self, place: SourceBench) -> None:
        place.land("a", 2)
        place.open().source.observe(("p:a",), ASSIGN)
        source, consumed = place.open().source, Beyond({"p:a": Position(9, 1, "table")})
        assert source.observe(("p:a", "p:none"), Query(consumed=consumed)).assigned == {"p:a": 2, "p:none": 0}
        place.land("a")
        seen = source.observe(("p:a", "p:none"), Query(assign=True, consumed=consumed))
        assert seen.lost.keys() == {"p:a"}
        assert seen.ends["p:none"] == 0
        if isinstance(source, HasFiles):
            assert source.observe(("p:a",)).assigned == {"p:a": 2}, "no file got an offset"


class Beyond(Consumed):
    """Let the table have more offsets of p:a than the source has assigned."""

    def find_beyond(self, ends: Mapping[str, int]) -> set[str]:
        return ends.keys() & {"p:a"}


class ReplayingSuite(Benched):
    """For a source that `Replays`."""

    def test_what_was_read_is_read_again_by_a_reader_of_its_own(self, place: SourceBench) -> None:
        place.land("a", 5)
        ports = place.open(most=2)
        ends = ports.source.observe(("p:a",), ASSIGN).ends
        (job,) = ports.source.plan_jobs({"p:a": 0}, ends)
        assert not ports.source.find_broken(job)
        assert isinstance(ports.source, Replays)
        again = ports.source.reread({"p:a": (0, 5)})
        assert isinstance(again, type(ports.source))
        assert not again.find_broken({"p:a": (0, 5)}), "a replay is not cut by the caps of a run"
        assert again.find_broken({"p:a": (4, 6)}).keys() == {"p:a"}, "it is not more than there is"
        assert names(again, "p:a", 5) == names(ports.source, "p:a", 5)
        finish(again)


class HoldingSuite(Benched):
    """For a source that `Holds`."""

    def test_what_was_not_acknowledged_comes_again_once_it_was_given_back(self, place: SourceBench) -> None:
        place.land("a", 3)
        source = place.open().source
        assert isinstance(source, Holds)
        for _ in range(2):
            assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 3}
            assert not source.find_broken({"p:a": (0, 3)})
            source.close()
        source.close()


class SharingSuite(Benched):
    """For a source that several runs may read at once."""

    def test_in_any_race_each_record_has_one_offset(self, place: SourceBench) -> None:
        for key in "ab":
            place.land(key, 5)
        partitions = ("p:a", "p:b")
        sources = [place.open().source for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda source: source.observe(partitions, ASSIGN).ends, sources))
        assert found == [{"p:a": 5, "p:b": 5}] * 4
        for p in partitions:
            assert len(set(names(place.open().source, p, 5))) == 5


class AssigningSuite(Benched):
    """For a source that assigns the offsets itself."""

    def test_looking_assigns_nothing(self, place: SourceBench) -> None:
        place.land("a", 2)
        source = place.open().source
        for _ in range(2):
            seen = source.observe(("p:a", "p:none"))
            assert (seen.ends, seen.assigned) == ({"p:a": 2, "p:none": 0}, {"p:a": 0, "p:none": 0})


class StartingSuite(Benched):
    """For a source whose declaration states where a partition starts."""

    @pytest.mark.parametrize(("start", "at", "later"), [("earliest", 0, 0), ("latest", 7, 0), (3, 3, 3)])
    def test_where_a_partition_starts(self, place: SourceBench, start: str | int, at: int, later: int) -> None:
        for key in "ab":
            place.land(key, 7)
        query = Query(starts=("p:a", "p:b"), founding=("p:a",))
        assert place.open(start).source.observe(("p:a", "p:b"), query).starts == {"p:a": at, "p:b": later}


class FilingSuite(Benched):
    """For a source that `HasFiles`: its files have names, and can change or vanish."""

    def test_each_offset_of_the_spans_has_the_name_at_which_it_is_found(self, place: ChangingBench) -> None:
        for key in "ab":
            place.land(key, 6)
        source = place.open().source
        source.observe(("p:a", "p:b"), ASSIGN)
        assert isinstance(source, HasFiles)
        found = list(source.list_files({"p:a": [(0, 2), (4, 5)], "p:b": [(5, 6)], "p:c": []}))
        assert [(one.partition, one.offset) for one in found] == [("p:a", 0), ("p:a", 1), ("p:a", 4), ("p:b", 5)]
        assert all((one.name, one.state) == (source.locate(one.partition, one.offset), "") for one in found)

    @pytest.mark.parametrize("how", ["change", "lose"])
    def test_what_is_no_more_what_it_was_breaks_its_own_range_alone(self, place: ChangingBench, how: str) -> None:
        for key in "ab":
            place.land(key, 3)
        place.open().source.observe(("p:a", "p:b"), ASSIGN)
        getattr(place, how)("p:a", 1)
        source = place.open().source
        broken = source.find_broken({"p:a": (0, 3), "p:b": (0, 3)})
        assert broken.keys() == {"p:a"}
        assert isinstance(broken["p:a"], RotaError)
        assert not source.find_broken({"p:a": (2, 3)})
        assert isinstance(source, HasFiles)
        found = source.list_files({"p:a": [(0, 1), (1, 3)], "p:b": [(0, 9)]}, compare=True)
        changed = [one.state for one in found if (one.partition, one.offset) == ("p:a", 1) or one.state != "same"]
        assert changed == ["changed" if how == "change" else "same"]
        assert source.observe(("p:a",), ASSIGN).ends == {"p:a": 3}, "it is not new"

    def test_what_is_read_again_counts_as_it_is_now_once_it_is_kept(self, place: ChangingBench) -> None:
        place.land("a", 3)
        ports = place.open()
        ports.source.observe(("p:a",), ASSIGN)
        place.change("p:a", 0)
        place.change("p:a", 2)
        again = ports.reread({"p:a": (0, 1)})
        assert not again.source.find_broken({"p:a": (0, 1)})
        assert place.open().source.find_broken({"p:a": (0, 1)}), "another reader sees the change"
        assert again.source.observe(("p:a",), ASSIGN).ends == {"p:a": 3}
        assert not place.open().source.find_broken({"p:a": (0, 2)})
        assert place.open().source.find_broken({"p:a": (2, 3)}), "it was not read again"

    def test_what_is_gone_cannot_be_read_again(self, place: ChangingBench) -> None:
        place.land("a", 1)
        ports = place.open()
        ports.source.observe(("p:a",), ASSIGN)
        place.lose("p:a", 0)
        assert ports.reread({"p:a": (0, 1)}).source.find_broken({"p:a": (0, 1)}).keys() == {"p:a"}


class WaitingSuite(Benched):
    """For a source in which one partition alone may be unreadable."""

    def test_what_cannot_be_looked_at_is_left_out_alone_until_it_can_be(self, place: BlindBench) -> None:
        both = ("p:a", "p:b")
        for key in "ab":
            place.land(key, 2)
        place.open().source.observe(both, ASSIGN)
        place.blind("a")
        source = place.open().source
        for query in (ENDS, ASSIGN):
            seen = source.observe(both, query)
            assert (seen.ends, list(seen.unreadable)) == ({"p:b": 2}, ["p:a"])
            assert seen.unreadable["p:a"]
        place.mend("a")
        seen = place.open().source.observe(both, ASSIGN)
        assert (seen.ends, seen.unreadable) == ({"p:a": 2, "p:b": 2}, {})


class TimingSuite(Benched):
    """For a source that `HasTimes`."""

    def test_a_time_holds_what_lies_between_the_first_of_its_beginning_and_the_first_of_its_end(
        self, place: StampedBench
    ) -> None:
        at = float(round(time.time()) - 3600)  # a retention would delete older records
        place.stamp("a", (at, at + 10, at + 5, at + 20))  # one came late
        place.stamp("b", (at,))
        source = place.open().source
        assert isinstance(source, HasTimes)
        found = {
            (since, until): source.find_offsets(("p:a", "p:b"), since, until)
            for since, until in ((0.0, inf), (at + 1, at + 20), (at + 9.9995, at + 10.0005), (at + 21, inf))
        }
        assert [{p: (start, min(end, 4)) for p, (start, end) in of.items()} for of in found.values()] == [
            {"p:a": (0, 4), "p:b": (0, 4)},
            {"p:a": (1, 3)},
            {"p:a": (1, 3)},
            {},
        ]


class LeavingSuite(Benched):
    """For a source that may have data that are never read."""

    def test_what_is_never_read_is_named_with_the_reason_and_is_no_offset(self, place: LitteredBench) -> None:
        place.land("a")
        assert not place.open().source.observe((), INSPECT).ignored
        name = place.litter()
        source = place.open().source
        ((found, why),) = source.observe((), INSPECT).ignored.items()
        assert (found, bool(why)) == (name, True)
        assert (source.list_keys(), source.observe(("p:a",), ASSIGN).ends) == (("a",), {"p:a": 1})


class RenamingSuite(Benched):
    """For a source that keeps its offsets under the pipeline's name (`registry.RENAMES`)."""

    def test_its_offsets_are_those_of_the_new_name_once_for_each_rename(self, place: RenamedBench) -> None:
        place.land("a", 2)
        before = place.open().source
        before.observe(("p:a",), ASSIGN)
        known = names(before, "p:a", 2)
        pipeline = place.declare("q")
        source = open_source(pipeline)
        assert source.observe(("q:a",)).assigned == {"q:a": 0}
        rename_offsets(pipeline, "p", 1)
        assert source.observe(("p:a", "q:a")).assigned == {"p:a": 0, "q:a": 2}
        assert names(source, "q:a", 2) == known
        place.land("a")
        assert source.observe(("q:a",), ASSIGN).ends == {"q:a": 3}
        rename_offsets(pipeline, "p", 1)
        assert open_source(pipeline).observe(("q:a",), ASSIGN).ends == {"q:a": 3}, "typed again, it does nothing"


def finish(source: Source) -> None:
    if isinstance(source, Holds):
        source.close()


def names(source: Source, partition: str, end: int) -> list[str]:
    return [source.locate(partition, offset) for offset in range(end)]
