"""What a person does on the page and by commands, on a line that goes on: materialize keys, replay ranges, purge what is
old; and what that leaves alone."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.face.line import Line, find_newest
from tests.waiting import LONG, wait_until

CHOSEN = ["a:k1", "a:k3"]  # not neighbours: Dagster makes a run for each stretch
KEYS = ("r1", "r2", "r3", "r4", "r5", "r6")
ALL = [f"c:{key}" for key in KEYS]


@dataclass(frozen=True)
class Asked:
    """Two backfills that were asked for, of some keys of `a`, and of all of `b` with its group's assignment. What the page
    showed before; the consuming runs of `c` that had ended before anything of this landed."""

    chosen: str
    all: str
    checkpoints: Mapping[str, Mapping[str, object]]
    epoch: Mapping[str, object]
    earlier: frozenset[str]


@pytest.fixture(scope="module")
def asked(line: Line) -> Asked:
    """What landed was consumed. Dagster looks at backfills twice a minute, so all go on while other things are done."""
    wait_until(lambda: all(r["endTime"] for r in line.dev.runs(rota__consume="c")), pause=1)
    earlier = frozenset(list_runs(line))
    for key in KEYS:
        line.land("c", key, 1, 2)
        line.land("c", key, 3)
    for key in ("k1", "k2", "k3"):
        line.land("a", key, 1)
    line.land("b", "all", 1, 2)
    line.holds("c", {key: [1, 2, 3] for key in KEYS})
    for pipeline, keys, files in (("a", ("k1", "k2", "k3"), 1), ("b", ("all",), 1), ("c", KEYS, 2)):
        wanted = {f"{pipeline}:{key}": files for key in keys}
        wait_until(lambda p=pipeline, wanted=wanted: is_reported(line, p, wanted), pause=1)
    at_rest = line.epoch_where(
        "day", lambda e: len(e.after) == 2 and max(e.after.values()) - min(e.after.values()) <= 1
    )
    wait_until(lambda: read_epoch(line)["epoch"] == at_rest.epoch, pause=1)  # the page has it later than the workers
    before, epoch = find_newest(line, "a", "checkpoints"), read_epoch(line)
    chosen = line.dev.backfill(list_assets("a"), CHOSEN)
    whole = line.dev.backfill([["day", "assignment"], *list_assets("b")], None)
    return Asked(chosen, whole, before, epoch, earlier)


def list_assets(pipeline: str) -> list[list[str]]:
    return [[pipeline, kind] for kind in ("ownership", "records", "checkpoints")]


def is_reported(line: Line, pipeline: str, offsets: Mapping[str, int]) -> bool:
    """Whether the page shows these offsets, so that no run has more to tell of these partitions."""
    shown = find_newest(line, pipeline, "checkpoints")
    return {partition: shown.get(partition, {}).get("offset") for partition in offsets} == offsets


def read_epoch(line: Line) -> dict[str, Any]:
    """The newest epoch of group `day` on the page."""
    shown = line.dev.materializations("day", "assignment")[0]["metadata"]
    return {name: shown[name] for name in ("epoch", "what happened", "partitions moved")}


def wait_ended(line: Line, backfill: str) -> str:
    """How the backfill ended."""
    return wait_until(lambda: (s := line.dev.backfill_status(backfill)) != "REQUESTED" and s, pause=2)


def list_runs(line: Line) -> dict[str, str]:
    """The consuming runs of `c`, and their statuses."""
    return {str(r["runId"]): str(r["status"]) for r in line.dev.runs(rota__consume="c")}


def find_shown(line: Line, kind: str) -> dict[str, dict[str, object]]:
    """What `find_newest` finds of these partitions."""
    return {partition: shown for partition, shown in find_newest(line, "c", kind).items() if partition in ALL}


def change(line: Line, key: str, name: int, *numbers: int) -> None:
    """The file of a key is corrected in place; its size is another then."""
    file = line.landing / "c" / key / f"{name:06d}.json"
    file.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))


def rota(line: Line, *words: str) -> str:
    """What a command prints that asks the page."""
    environ = {**os.environ, **line.environ, "ROTA_DAGSTER": line.dev.url}
    done = subprocess.run(
        [sys.executable, "-m", "rota", *words], env=environ, capture_output=True, text=True, timeout=LONG
    )
    return done.stdout or done.stderr


def is_synced(line: Line, partition: str) -> str:
    """Dagster's word for whether `below` follows its parent in this partition."""
    asked = "query S($k: [AssetKeyInput!], $p: String) { assetNodes(assetKeys: $k) { staleStatus(partition: $p) } }"
    (node,) = line.dev.query(asked, k=[{"path": ["below"]}], p=partition)["assetNodes"]
    return str(node["staleStatus"])


def test_what_changed_is_replayed_by_commands_launchpad_and_backfill_and_old_runs_are_purged(
    line: Line, asked: Asked
) -> None:
    dev = line.dev

    stretch = {"dagster/asset_partition_range_start": ALL[0], "dagster/asset_partition_range_end": ALL[-1]}
    made = dev.launch("__ASSET_JOB", assets=["below"], **stretch)
    wait_until(lambda: dev.find_status(made) == "SUCCESS", pause=0.5)
    assert {is_synced(line, p) for p in ALL} == {"FRESH"}

    change(line, "r5", 1, 31, 32)
    backfill = dev.backfill_job("c__replay", ["c:r5", "c:r6"])  # of r6 nothing changed; it goes on beside the rest
    for key in ("r1", "r2", "r3"):
        change(line, key, 1, 10, 20, 30)
    commands = (
        ("c:r1", "--changed"),
        ("c:r2", "--from", "0", "--to", "1"),
        ("c:r3", "--files", "r3/000001.json"),
    )
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(lambda words: rota(line, "replay", *words), commands))
    assert said == [f"c:{key}: 1 offset replayed\n" for key in ("r1", "r2", "r3")]
    line.holds("c", {**{key: [3, 10, 20, 30] for key in ("r1", "r2", "r3")}, "r4": [1, 2, 3]})
    assert [is_synced(line, p) for p in ALL[:4]] == ["STALE", "STALE", "STALE", "FRESH"]
    refused = rota(line, "replay", "c:r1", "--from", "0", "--to", "9")
    assert refused.startswith("c:r1 was not replayed: only offsets below 2 were consumed")
    assert len(refused.splitlines()) == 1

    early = {"ops": {"c__batch": {"config": {"partitions": ["c:r6"], "replay": {"from": 0, "to": 3}}}}}
    failed = dev.launch("c__replay", early)  # two were consumed

    change(line, "r1", 3, 11, 12, 13)
    assert yaml.safe_load(dev.open_launchpad("c__replay")) == {}, "the launchpad asks for nothing that needs no choice"
    filled = yaml.safe_load(dev.fill_in("c__replay", "c:r1", list_assets("c")))
    assert filled == {"ops": {"c__batch": {"config": {"replay": {"changed": True}}}}}
    run = dev.launch("c__replay", filled, dagster__partition="c:r1")
    assert wait_ended(line, backfill) == "COMPLETED_SUCCESS"
    wait_until(lambda: dev.find_status(run) == "SUCCESS", pause=0.5)
    line.holds("c", {"r1": [10, 11, 12, 13, 20, 30], "r2": [3, 10, 20, 30], "r5": [3, 31, 32], "r6": [1, 2, 3]})
    assert {find_shown(line, "checkpoints")[f"c:{key}"]["offset"] for key in ("r1", "r5")} == {2}, "nothing moved"
    assert is_synced(line, "c:r6") == "FRESH"

    first = list_runs(line).keys() - asked.earlier
    wait_until(lambda: {list_runs(line)[run] for run in first} == {"SUCCESS"}, pause=0.5)
    for key in KEYS:
        line.land("c", key, 50)
    wait_until(lambda: {m["offset"] for m in find_shown(line, "checkpoints").values()} == {3}, pause=0.5)
    assert dev.find_status(failed) == "FAILURE"
    again = dev.execute_again(failed)  # the third is there now
    wait_until(lambda: dev.find_status(again) == "SUCCESS", pause=0.5)
    line.holds("c", {"r6": [1, 2, 3, 50]})
    shown = {kind: find_shown(line, kind) for kind in ("ownership", "records", "checkpoints")}
    removed = int(rota(line, "purge", "--older-than", "0h").split()[0])
    assert removed >= len(first) > 0
    assert not first & list_runs(line).keys()
    assert {kind: find_shown(line, kind) for kind in shown} == shown


def test_a_backfill_of_any_keys_consumes_what_is_new_and_marks_those_with_nothing(line: Line, asked: Asked) -> None:
    before = asked.checkpoints
    assert wait_ended(line, asked.chosen) == "COMPLETED_SUCCESS"
    after = find_newest(line, "a", "checkpoints")
    assert {k for k in after if after[k]["run"] != before.get(k, {}).get("run")} == set(CHOSEN)
    assert [(k, v) for k, v in line.rows("a") if k in CHOSEN] == [("a:k1", 1), ("a:k3", 1)]
    assert after["a:k1"]["rows"] == before["a:k1"]["rows"] == 1


def test_materialize_all_in_a_steady_state_ends_green_and_keeps_the_last_numbers(line: Line, asked: Asked) -> None:
    assert wait_ended(line, asked.all) == "COMPLETED_SUCCESS"
    assert find_newest(line, "b", "records")["b:all"]["rows"] == 2
    assert read_epoch(line) == asked.epoch
