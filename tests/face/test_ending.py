"""Which run makes room for which, and a file that changes under a run."""

import heapq
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin

from rota.catalog import load
from rota.dagster.assets import ending
from rota.dagster.assets.ending import QUEUE_INTERVAL, WAITS, Seen, find_waiting, make_ending, makes_room
from rota.dagster.assets.names import CONSUME, INCARNATION
from rota.ids import REBALANCE_TAG
from rota.pipeline import Pipeline, delta, files

MAX_RUN, LINGER, LAUNCH, BATCH, SLOTS = 300.0, 30.0, 4.0, 2.5, 8
SERVES = LINGER / 3


def test_as_many_as_wait_make_room_those_that_ran_longest() -> None:
    lasting = [Seen(f"r{n}", f"w{n}", float(n)) for n in range(8)]
    waiting = [Seen("a", "w8", 90.0), Seen("b", None, 91.0)]
    assert [one.run_id for one in lasting if makes_room(one.run_id, waiting, lasting)] == ["r0", "r1"]
    assert not any(makes_room(one.run_id, [], lasting) for one in lasting)
    same = [Seen("c", "w7", 92.0)]
    assert makes_room("r7", same, lasting) == "run c waits for its worker"


def play(
    seconds: float, *, makes: bool = True, workers: int = 10, pipelines: int = 3, slots: int = SLOTS
) -> dict[str, list[float]]:
    """Always something to do, and few slots: worker/pipeline -> how long each of its runs waited in the queue. `makes`:
    whether a run makes room."""
    waited: dict[str, list[float]] = defaultdict(list)
    queue: list[tuple[float, str, str]] = [(0.0, f"w{w}", f"p{p}") for p in range(pipelines) for w in range(workers)]
    going: dict[str, tuple[float, str]] = {}  # run -> since, worker/pipeline
    events: list[tuple[float, int, str]] = []
    number = 0
    now = 0.0
    while now < seconds:
        while queue and len(going) < slots:
            since, worker, pipeline = queue.pop(0)
            number += 1
            waited[f"{worker}/{pipeline}"].append(now - since)
            going[f"r{number}"] = (now, f"{worker}/{pipeline}")
            heapq.heappush(events, (now + LAUNCH + BATCH, number, f"r{number}"))
        now, order, run = heapq.heappop(events)
        since, whose = going[run]
        served = now - since - LAUNCH
        waiting = [Seen(p, w, at) for at, w, p in queue if now - at > WAITS]
        lasting = [Seen(r, w.partition("/")[0], at) for r, (at, w) in going.items()]
        asked = makes and served >= SERVES and (served - SERVES) % QUEUE_INTERVAL < BATCH
        if served >= MAX_RUN or (asked and makes_room(run, waiting, lasting)):
            del going[run]
            worker, _, pipeline = whose.partition("/")
            queue.append((now + 1.0, worker, pipeline))
        else:
            heapq.heappush(events, (now + BATCH, order, run))
    for at, worker, pipeline in queue:
        waited[f"{worker}/{pipeline}"].append(now - at)
    return waited


def test_with_fewer_slots_than_workers_no_run_waits_longer_than_one_max_run_and_all_have_their_turn() -> None:
    waited = play(3600)
    assert len(waited) == 30
    assert max(seconds for each in waited.values() for seconds in each) <= MAX_RUN
    assert min(map(len, waited.values())) >= 0.8 * max(map(len, waited.values()))
    alone = play(3600, makes=False)
    assert max(seconds for each in alone.values() for seconds in each) > MAX_RUN, "else making room is idle"


@pytest.mark.parametrize(
    ("workers", "pipelines", "slots", "longest"),
    [(3, 1, 1, 30), (1, 5, 1, 60), (3, 5, 1, 200), (1, 5, 2, 30), (3, 5, 3, 60)],
)
def test_one_slot_or_few_serve_all_workers_and_pipelines_in_turn(
    workers: int, pipelines: int, slots: int, longest: float
) -> None:
    waited = play(3600, workers=workers, pipelines=pipelines, slots=slots)
    assert len(waited) == workers * pipelines
    assert max(seconds for each in waited.values() for seconds in each) <= longest
    assert min(map(len, waited.values())) >= 0.8 * max(map(len, waited.values()))


LIMITS = [{"max_concurrent_runs": 3}, {"tag_concurrency_limits": [{"key": CONSUME, "limit": 2}]}]


@pytest.mark.parametrize("limits", LIMITS)
def test_a_run_that_waits_for_a_slot_is_found_in_the_run_storage(
    limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a slot free it waits for a slow daemon, and a run ended early for nothing."""
    here = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "r")
    graph = dg.Definitions(assets=[dg.AssetSpec("a")]).resolve_asset_graph()
    job = dg.define_asset_job("j").resolve(asset_graph=graph)
    queue = {"module": "rota.dagster.run_queue", "class": "RunQueue"}
    with dg.DagsterInstance.local_temp(
        str(tmp_path), overrides={"run_coordinator": queue, "concurrency": {"runs": limits}}
    ) as instance:

        def run(status: dg.DagsterRunStatus, incarnation: str) -> str:
            given = {CONSUME: "p", INCARNATION: incarnation} if incarnation else {}
            origin = here.get_job_origin("j")
            return instance.create_run_for_job(job, status=status, tags=given, remote_job_origin=origin).run_id

        mine = run(dg.DagsterRunStatus.STARTED, "w1@1")
        run(dg.DagsterRunStatus.QUEUED, "w3@3")
        run(dg.DagsterRunStatus.STARTED, "")
        monkeypatch.setattr(ending, "WAITS", -1.0)
        assert not find_waiting(instance, mine), "a slot is free"
        other = run(dg.DagsterRunStatus.STARTED, "w2@2")
        assert sorted(bool(find_waiting(instance, one)) for one in (mine, other)) == [False, True]
        monkeypatch.setattr(ending, "WAITS", 1e9)
        assert not find_waiting(instance, mine), "it is about to start"


@pytest.mark.parametrize("limit", ["slots", "another tag's", "both"])
def test_room_is_made_for_a_run_of_any_job_where_that_helps(
    limit: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A rebalance without a slot waited until a run was over, five minutes, and a new worker had nothing meanwhile."""
    here = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "r")
    job = dg.define_asset_job("j").resolve(asset_graph=dg.Definitions(assets=[dg.AssetSpec("a")]).resolve_asset_graph())
    limits = {
        "max_concurrent_runs": 9 if limit == "another tag's" else 1,
        "tag_concurrency_limits": [] if limit == "slots" else [{"key": "rota/rebalance", "limit": 0}],
    }
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={"concurrency": {"runs": limits}}) as instance:

        def run(status: dg.DagsterRunStatus, tags: Mapping[str, str]) -> str:
            origin = here.get_job_origin("j")
            return instance.create_run_for_job(job, status=status, tags=tags, remote_job_origin=origin).run_id

        mine = run(dg.DagsterRunStatus.STARTED, {CONSUME: "p", INCARNATION: "w1@1"})
        waits = run(dg.DagsterRunStatus.QUEUED, {REBALANCE_TAG: "g"})
        monkeypatch.setattr(ending, "WAITS", -1.0)
        assert find_waiting(instance, mine) == (f"run {waits} waits for a slot" if limit == "slots" else "")


def test_a_run_ends_when_its_pipelines_file_changes_or_is_gone_and_asks_the_queue_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked, alive = [0.0], [], [True]
    monkeypatch.setattr(ending, "find_waiting", lambda *_: asked.append(now[0]) or "another run waits")
    file = tmp_path / "p.py"
    declared = "pipeline = Pipeline(files('x', format='csv', schema='a int'), delta('y'))"
    text = f"from rota import Pipeline, delta, files\n{declared}\n"
    file.write_text(text)
    pipeline = load(tmp_path).pipelines["p"]
    with dg.DagsterInstance.ephemeral() as instance:
        find_reason = make_ending(instance, "r", pipeline, LINGER, lambda: now[0], lambda: alive[0])
        assert not find_reason()
        alive[0] = False
        assert "counts as dead" in find_reason()
        alive[0] = True
        now[0] = SERVES
        assert find_reason() == "another run waits"
        assert not find_reason()
        assert asked == [SERVES]
        file.write_text(text + "\n")
        assert find_reason() == "the file of pipeline p changed"
        file.unlink()
        assert find_reason() == "the file of pipeline p changed"
        made = Pipeline(files("x", format="csv", schema="a int"), delta("y"))
        assert not make_ending(instance, "r", made, LINGER, lambda: 0.0, lambda: True)(), "one that no file declares"
