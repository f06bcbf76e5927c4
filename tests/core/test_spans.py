"""What a replay takes: only what was consumed, each offset once, nothing that was skipped."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.ports import Ports, SourceFile, Tidied
from rota.errors import ConfigError
from rota.ledger.values import Spans
from rota.run.rewritten import explain_rewritten
from rota.run.spans import Choice, choose_spans, find_consumed, join_offsets, list_rounds
from simulator.source import MemorySource


@dataclass(frozen=True)
class Commit:
    at: float
    ranges: dict[str, tuple[int, int]]
    op: str = "commit"


LOG = [
    Commit(50.0, {"p:a": (4, 6)}),
    Commit(40.0, {"p:a": (0, 2)}, op="replay"),
    Commit(30.0, {"p:a": (3, 4)}, op="skip"),
    Commit(20.0, {"p:a": (1, 3), "p:b": (0, 1)}),
    Commit(10.0, {"p:a": (0, 1)}),
]


def test_what_was_skipped_or_replayed_was_not_consumed_then() -> None:
    assert find_consumed(LOG, ("p:a", "p:b", "p:c")) == {"p:a": [(0, 3), (4, 6)], "p:b": [(0, 1)]}
    assert find_consumed(LOG, ("p:b",)) == {"p:b": [(0, 1)]}


def test_a_time_holds_its_beginning_and_not_its_end() -> None:
    assert find_consumed(LOG, ("p:a",), (10.0, 20.0)) == {"p:a": [(0, 1)]}
    assert find_consumed(LOG, ("p:a",), (20.0, 60.0)) == {"p:a": [(1, 3), (4, 6)]}


def test_what_cannot_change_is_not_enumerated() -> None:
    """Of queues and streams each message was listed, by `rota check`, `rota why` and a replay of a time."""
    long = [Commit(30.0, {"p:a": (1 << 40, 1 << 50)}), Commit(20.0, {"p:a": (0, 1 << 40)})]
    assert find_consumed(long, ("p:a",), (0.0, 40.0)) == {"p:a": [(0, 1 << 50)]}
    for most in (1000, None):
        assert explain_rewritten(MEMORY, long, most=most) == {}
    ports = make_ports(MEMORY, long)
    assert choose_spans(ports, ("p:a",), Choice(time=(0.0, 25.0))) == {"p:a": [(0, 1 << 40)]}


@pytest.mark.parametrize(
    ("choice", "line"),
    [
        (Choice(changed=True), "Nothing of p:a changes once it is there. Say which offsets to replay, from and to"),
        (Choice(files=("a",)), "p:a has no files. Say which offsets to replay, from and to"),
    ],
)
def test_a_choice_that_the_source_does_not_offer_is_refused_with_the_next_step(choice: Choice, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        choose_spans(make_ports(MEMORY, LOG), ("p:a",), choice)


MEMORY = MemorySource(lambda _: 1 << 50, lambda _: 1)


def make_ports(source: object, log: list[Commit]) -> Ports:
    table = SimpleNamespace(read_log=lambda: log)
    return SimpleNamespace(source=source, main=table)  # type: ignore[return-value]


def test_the_newest_consumed_offsets_are_looked_at() -> None:
    class Seen(MemorySource):
        def list_files(self, spans: Spans, *, compare: bool = False) -> Iterator[SourceFile]:
            assert compare
            seen.update(spans)
            return iter(())

        def tidy(self, find_consumed: Callable[[str], Spans]) -> Tidied:
            raise AssertionError

    wanted = {3: {"p:a": [(2, 3), (4, 6)]}, None: {"p:a": [(0, 1), (1, 3), (4, 6)], "p:b": [(0, 1)]}}
    for most, spans in wanted.items():
        seen: dict[str, Sequence[tuple[int, int]]] = {}
        explain_rewritten(Seen(lambda _: 6, lambda _: 1), LOG, most=most)
        assert seen == spans


@given(st.sets(st.integers(0, 60)))
def test_spans_hold_each_offset_once_and_no_other(offsets: set[int]) -> None:
    spans = list(join_offsets(sorted(offsets)))
    assert [o for span in spans for o in range(*span)] == sorted(offsets)
    assert all(end < start for (_, end), (start, _) in pairwise(spans))


def test_each_round_has_one_span_of_a_partition() -> None:
    spans = {"p:a": [(0, 3), (4, 6)], "p:b": [(0, 1)]}
    assert list(list_rounds(spans)) == [{"p:a": (0, 3), "p:b": (0, 1)}, {"p:a": (4, 6)}]
    assert list(list_rounds({})) == []


@pytest.mark.parametrize(
    "given", [{}, {"range": (0, 1), "changed": True}, {"files": ("a",), "time": (0.0, 1.0)}], ids=str
)
def test_one_thing_is_said_and_not_two(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="One of them"):
        Choice(**given)  # type: ignore[arg-type]
