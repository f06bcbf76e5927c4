"""The laws of every job (`ports.Job`). A class with one fixture, `place`, tests an implementation."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pytest

from rota.dataplane.ports import FailedPartition, Job, WrittenFiles
from rota.ledger.values import Ranges


class JobBench(Protocol):
    """A job of pipeline `p` over a source with one record per offset. The transform fails on `p:poison`."""

    endpoint: str | None

    def open(self, counts: dict[str, int]) -> Job:
        """Return the job, after so many offsets of each partition landed and were assigned."""
        ...


class JobSuite:
    """The laws of `ports.Job`."""

    @pytest.fixture
    def place(self) -> JobBench:
        raise NotImplementedError

    def test_every_partition_comes_out_once_with_its_rows(self, place: JobBench) -> None:
        job = place.open({"p:a": 3, "p:b": 1, "p:c": 2})
        pieces = run(job, place, [{"p:a": (1, 3), "p:b": (0, 1)}, {"p:c": (0, 2)}])
        assert ranges(pieces) == {"p:a": (1, 3), "p:b": (0, 1), "p:c": (0, 2)}
        assert rows(pieces) == {"p:a": 2, "p:b": 1, "p:c": 2}
        assert [sorted(piece.ranges) for piece in pieces] == [["p:a", "p:b"], ["p:c"]], "a job a piece, in order"
        attempts = {piece.attempt for piece in pieces}
        assert len(attempts) == 2
        assert all(attempt.startswith("run-7") for attempt in attempts), "the files name their run"

    def test_a_failing_partition_fails_alone(self, place: JobBench) -> None:
        job = place.open({"p:a": 2, "p:poison": 1, "p:b": 2})
        pieces = run(job, place, [{"p:a": (0, 2), "p:poison": (0, 1), "p:b": (0, 2)}])
        assert [piece.partition for piece in pieces if isinstance(piece, FailedPartition)] == ["p:poison"]
        assert ranges(pieces) == {"p:a": (0, 2), "p:b": (0, 2)}

    def test_a_range_is_whole_or_fails_where_that_is_asked(self, place: JobBench) -> None:
        job = place.open({"p:a": 3})
        (piece,) = run(job, place, [{"p:a": (0, 3)}], whole=True)
        assert ranges([piece]) == {"p:a": (0, 3)}

    def test_what_is_to_be_done_is_asked_again_before_each_job(self, place: JobBench) -> None:
        job = place.open({"p:a": 1, "p:b": 1, "p:c": 1})
        asked: list[str] = []

        def recheck(of: Ranges) -> Ranges:
            asked.append(",".join(of))
            return {p: r for p, r in of.items() if p != "p:b"}

        jobs: list[Ranges] = [{"p:a": (0, 1), "p:b": (0, 1)}, {"p:c": (0, 1)}]
        seen = [
            (list(asked), sorted(piece.ranges))
            for piece in start(job, place, jobs, recheck=recheck)
            if isinstance(piece, WrittenFiles)
        ]
        assert seen == [(["p:a,p:b"], ["p:a"]), (["p:a,p:b", "p:c"], ["p:c"])]


def start(job: Job, place: JobBench, jobs: Sequence[Ranges], **more: Any) -> Iterable[WrittenFiles | FailedPartition]:
    return job.run(jobs, endpoint=place.endpoint, run_id="run-7", schema=None, **more)


def run(job: Job, place: JobBench, jobs: Sequence[Ranges], **more: Any) -> list[Any]:
    return list(start(job, place, jobs, **more))


def ranges(pieces: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """Return the result of each partition; two of one partition are a fault."""
    found = [(p, r) for piece in pieces if isinstance(piece, WrittenFiles) for p, r in piece.ranges.items()]
    assert len(dict(found)) == len(found)
    return dict(found)


def rows(pieces: Iterable[Any]) -> dict[str, int]:
    return {p: n for piece in pieces if isinstance(piece, WrittenFiles) for p, n in piece.count_rows().items()}
