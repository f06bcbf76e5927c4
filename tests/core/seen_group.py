"""A healthy group as a look sees it, and the same with changes: the input of `find_needs`."""

from dataclasses import replace

from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.store import Node
from rota.coordination.views import OwnView, Read, RunView
from rota.core.values import Worker
from rota.face.needs import (
    Need,
    find_needs,
)
from rota.face.seen import DagsterSeen, PipelineSeen, Seen, SensorSeen
from rota.ledger.values import Position
from rota.run.eligibility import Facts

W1, W2, OLD = "w1@0000000000000001", "w2@0000000000000002", "w9@0000000000000009"
NODE = Node(b"", 0, 1, 1, 0)
SENSORS = tuple(SensorSeen(name, quiet=5.0) for name in ("default__membership", "p__backlog", "p__checks"))


def commit_to(offset: int, table: str = "t", mzxid: int = 1) -> Read[Checkpoint]:
    return Read(Checkpoint(offset=offset, token=7, run_id="r", table=table), Node(b"", 0, mzxid, mzxid, 0))


FACTS = Facts(
    partitions=("p:a", "p:b"),
    owns={"p:a": OwnView(W1, 1, 7), "p:b": OwnView(W2, 1, 8)},
    epoch=3,
    targets={"w1": frozenset({"p:a"}), "w2": frozenset({"p:b"})},
    lives={W1: Live(), W2: Live()},
    runs=(),
    parked={},
    now=1000.0,
    checkpoints={"p:a": commit_to(5), "p:b": commit_to(6)},
    unreadable={},
)
WELL = Seen(
    "default",
    1000.0,
    FACTS,
    workers=(Worker("w1", W1), Worker("w2", W2)),
    joined_under={"w1": "assigned", "w2": "assigned"},
    pipelines=(
        PipelineSeen("p", {"p:a": (5, 5), "p:b": (6, 6)}, {"p:a": Position(5, 7, "t"), "p:b": Position(6, 8, "t")}),
    ),
    dagster=DagsterSeen(sensors=SENSORS),
)
P = WELL.pipelines[0]


def look(seen: Seen, *after: float) -> tuple[Need, ...]:
    """The needs of the last of many looks at the same thing, a minute apart, and so many seconds after the first."""
    needs, memory = find_needs(seen)
    for seconds in sorted({*after, *range(60, int(max(after, default=0)), 60)}):
        now = WELL.now + seconds
        needs, memory = find_needs(replace(seen, now=now, facts=replace(seen.facts, now=now)), memory)
    return needs


def facts(**changes: object) -> Seen:
    return replace(WELL, facts=replace(FACTS, **changes))  # type: ignore[arg-type]


def pipeline(**changes: object) -> Seen:
    return replace(WELL, pipelines=(replace(P, **changes),))  # type: ignore[arg-type]


def dagster(**changes: object) -> Seen:
    return replace(WELL, dagster=replace(WELL.dagster, **changes))  # type: ignore[type-var]


RUN = RunView("n", "r", 1, W1, ("p:a",), 5)
GONE = {"owns": {**FACTS.owns, "p:b": OwnView(OLD, 1, 8)}, "lives": {W1: Live()}}
FREE = {"owns": {**FACTS.owns, "p:b": OwnView(None, 2, 8)}}
ALONE = (Worker("w1", W1),)
DRAINED = tuple(Worker(w.id, w.incarnation, state="draining") for w in WELL.workers)
FAILED = Parked(reason="the disk is full", failures=1, since=990.0, retry_at=1010.0, offset=5)
