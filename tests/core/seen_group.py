"""A healthy group as one observation finds it, and the same with changes: the input of `find_needs`."""

from dataclasses import replace

import pytest

from rota.coordination.records import Checkpoint, Live, Parked
from rota.coordination.store import Node
from rota.coordination.views import OwnView, Read, RunView
from rota.core.values import Worker
from rota.dataplane.ports import Withheld
from rota.face.causes import BEHIND, CAUSES, IDLE, SETTLE
from rota.face.dagster_state import DagsterSeen, FailedRuns, SensorSeen
from rota.face.need import Need
from rota.face.needs import find_needs
from rota.face.seen import OPEN, PipelineSeen, Seen
from rota.ledger.values import Position
from rota.run.eligibility import Facts

W1, W2, OLD = "w1@0000000000000001", "w2@0000000000000002", "w9@0000000000000009"
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


def observe_over(seen: Seen, *after: float) -> tuple[Need, ...]:
    """The needs of the last of many observations of the same group, a minute apart, and so many seconds after the first."""
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


def settle_within(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a cause that may heal within `SETTLE` seconds has these seconds instead."""
    for row, cause in CAUSES.items():
        if cause.patience == SETTLE:
            monkeypatch.setitem(CAUSES, row, replace(cause, patience=seconds))


RUN = RunView("n", "r", 1, W1, ("p:a",), 5)
GONE = {"owns": {**FACTS.owns, "p:b": OwnView(OLD, 1, 8)}, "lives": {W1: Live()}}
FREE = {"owns": {**FACTS.owns, "p:b": OwnView(None, 2, 8)}}
ALONE = (Worker("w1", W1),)
DRAINED = tuple(Worker(w.id, w.incarnation, state="draining") for w in WELL.workers)
FAILED = Parked(reason="the disk is full", failures=1, since=990.0, retry_at=1010.0, offset=5)

UNBALANCED = DagsterSeen(rebalances={"default": FailedRuns(3, "boom")})
NEEDS = {
    "no worker": (replace(facts(lives={}), workers=()), SETTLE, "workers", "rota worker"),
    "the owner is gone and no rebalance assigns it": (
        replace(facts(**GONE), workers=ALONE), SETTLE, "unowned", "no rebalance gave it",
    ),
    "the owner and its target are gone, the rest is full": (
        replace(facts(**GONE), workers=(Worker("w1", W1, max_partitions=1),)), SETTLE, "unplaceable", "at its cap",
    ),
    "alone, no worker takes it": (
        replace(facts(**GONE), workers=ALONE, protocol="claim", joined_under={}), SETTLE, "unowned", "no worker takes it",
    ),
    "by ordinals, no worker takes it": (
        replace(facts(**GONE), workers=ALONE, protocol="ordinal", joined_under={}), SETTLE, "unowned", "ordinal is missing",
    ),
    "its taker does not take it": (facts(**FREE), SETTLE, "unowned", "w2 does not take it"),
    "all drained": (replace(facts(**FREE), workers=DRAINED), SETTLE, "unplaceable", "draining"),
    "pinned away": (replace(facts(**FREE), pins={"p:b": "w7"}), SETTLE, "unplaceable", "--clear"),
    "no label": (replace(facts(**FREE), labels={"p": {"gpu": "yes"}}), SETTLE, "unplaceable", "no worker has gpu=yes"),
    "an owner that never lets go": (
        facts(targets={"w1": frozenset({"p:a", "p:b"}), "w2": frozenset()}), 165.0, "handover", "w2 does not release it",
    ),
    "parked": (facts(parked={"p:a": FAILED.model_copy(update={"retry_at": None})}), 0.0, "parked", "rota retry p:a"),
    "failed three times": (facts(parked={"p:a": FAILED.model_copy(update={"failures": 3})}), 0.0, "parked", "failed 3x"),
    "a typo": (facts(parked={"p:a": FAILED.model_copy(update={"person": True})}), 0.0, "parked", "disk is full"),
    "unreadable own": (facts(unreadable={"p:a": "its record cannot be read. rota repair"}), 0.0, "record", "rota repair"),
    "unreadable target": (replace(WELL, records={"/rota/g/assign/w1": "bad. rota repair"}), SETTLE, "record", "rota repair"),
    "unreadable overrides": (replace(WELL, records={"/rota/g/overrides": "bad. rota repair"}), 0.0, "record", "rota repair"),
    "another protocol": (
        replace(WELL, protocol="race", joined_under={"w1": "claim", "w2": "race"}), SETTLE, "protocol", "start it again",
    ),
    "a frozen Spark": (replace(WELL, silent={"w1": "no answer"}), SETTLE, "spark", "the worker's log"),
    "a Spark without executors": (replace(WELL, unable={"w1": "no executor"}), SETTLE, "unable", "give its Spark room"),
    "an id twice": (replace(WELL, twice=("w1",)), SETTLE, "twice", "another --id"),
    "a refused file": (replace(WELL, refused={"x.py": "it raised. Mend it"}), 0.0, "refused", "Mend it"),
    "a job that Dagster does not load": (
        dagster(refused={"x.py": "its job is left out. Mend it"}), 0.0, "refused", "x.py: its job is left out",
    ),
    "no source": (pipeline(fault="no folder. Check it"), SETTLE, "source", "no folder"),
    "a foreign table": (pipeline(refusal="another group's. rota adopt", foreign=True), 0.0, "table", "rota adopt"),
    "a table that cannot be read": (pipeline(refusal="disk"), SETTLE, "table", "disk"),
    "no room": (pipeline(room="too many"), 0.0, "room", "too many"),
    "partitions that no sensor finds": (pipeline(waiting=("p:c",)), SETTLE, "new", "sensor"),
    "rewritten": (pipeline(rewritten={"p:a": "a file changed"}), 0.0, "rewritten", "rota replay p:a --changed"),
    "left out": (pipeline(left_out={"x": "a link"}), 0.0, "left out", "x is not read: a link"),
    "a stale commit": (pipeline(stale={"p:a": "version 3"}), 0.0, "stale", "version 3"),
    "a gap": (pipeline(gaps={"p:a": "version 4"}), 0.0, "gap", "version 4"),
    "an open transaction": (pipeline(withheld={"p:a": Withheld(62, "open since 62")}), OPEN, "withheld", "abort it"),
    "an older table": (pipeline(positions={"p:a": Position(3, 7, "t")}), SETTLE, "restored", "rota adopt"),
    "no table": (pipeline(positions={"p:a": Position(None, None, None)}), SETTLE, "restored", "there is no table"),
    "another table": (pipeline(positions={"p:a": Position(5, 7, "u")}), SETTLE, "restored", "not the table"),
    "an older ZooKeeper": (pipeline(positions={"p:a": Position(5, 99, "t")}), SETTLE, "restored", "ZooKeeper was restored"),
    "nothing runs": (pipeline(ends={"p:a": (5, 9)}), IDLE, "idle", "no run works"),
    "a run that hangs": (
        replace(facts(runs=(RUN,)), pipelines=(replace(P, ends={"p:a": (5, 9)}),)), BEHIND, "still", "look at its runs",
    ),
    "no Dagster": (replace(WELL, dagster=DagsterSeen("does not answer")), SETTLE, "silent", "ROTA_DAGSTER"),
    "a broken location": (dagster(locations={"here": "it is not loaded"}), SETTLE, "location", "reload"),
    "a frozen code server": (dagster(lost={"here": 1.0}), SETTLE, "location", "code server does not answer"),
    "a sensor that is off": (dagster(sensors=(SensorSeen("p__backlog", on=False),)), 0.0, "off", "turn it on"),
    "a sensor that fails": (dagster(sensors=(SensorSeen("p__backlog", failing=80.0, why="x"),)), 0.0, "fails", "x"),
    "a daemon that does not tick": (dagster(sensors=(SensorSeen("p__backlog", quiet=80.0),)), 0.0, "daemon", "daemon"),
    "an unserved pipeline": (dagster(unserved=("p",)), SETTLE, "unserved", "reload"),
    "a pipeline without a file": (
        replace(dagster(unserved=("old",)), undeclared=("old",)), SETTLE, "unserved", "rota forget --pipeline old",
    ),
    "rebalances that fail": (
        replace(facts(**FREE), facts=replace(facts(**FREE).facts, targets={}), dagster=UNBALANCED),
        0.0, "runs", "group default: 3 of its rebalances failed in a row: boom",
    ),
    "runs that fail": (dagster(failed={"p": [FailedRuns(3, "boom")]}), 0.0, "runs", "boom"),
}  # fmt: skip
