"""What was consumed is read again, and what is old goes: by the commands and by the page, on a line that goes on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from tests.face.line import PIPELINE, Line, find_newest
from tests.waiting import wait_until

BELOW = """
import dagster as dg


@dg.asset(
    deps=[["again", "records"]],
    partitions_def=dg.DynamicPartitionsDefinition(name="again/partitions"),
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def below() -> None: ...
"""
KEYS = ("k1", "k2", "k3", "k4")
ALL = [f"again:{key}" for key in KEYS]


@pytest.fixture
def again(line: Line) -> Iterator[Line]:
    """Pipeline `again` with an asset below it: each partition has two files, of offsets 0 and 1, and was consumed."""
    (line.pipelines / "again.py").write_text(PIPELINE.format(name="again", group="night") + BELOW)
    line.dev.reload()
    for key in KEYS:
        line.land("again", key, 1, 2)
        line.land("again", key, 3)
    line.holds("again", {key: [1, 2, 3] for key in KEYS}, 150)
    wait_until(lambda: set(find_newest(line, "again", "checkpoints")) == set(ALL), 60, pause=0.5)
    yield line
    (line.pipelines / "again.py").unlink()  # the next reload takes it away


def change(line: Line, key: str, name: int, *numbers: int) -> None:
    """The file of a key is corrected in place; its size is another then."""
    file = line.landing / "again" / key / f"{name:06d}.json"
    file.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))


def rota(line: Line, *words: str) -> str:
    """What a command prints that asks the page."""
    environ = {**os.environ, **line.environ, "ROTA_DAGSTER": line.dev.url}
    done = subprocess.run(
        [sys.executable, "-m", "rota", *words], env=environ, capture_output=True, text=True, timeout=150
    )
    return done.stdout or done.stderr


def is_synced(line: Line, partition: str) -> str:
    """Dagster's word for whether `below` follows its parent in this partition."""
    asked = "query S($k: [AssetKeyInput!], $p: String) { assetNodes(assetKeys: $k) { staleStatus(partition: $p) } }"
    (node,) = line.dev.query(asked, k=[{"path": ["below"]}], p=partition)["assetNodes"]
    return str(node["staleStatus"])


def test_what_changed_is_replayed_by_commands_launchpad_and_backfill_and_old_runs_are_purged(again: Line) -> None:
    line, dev = again, again.dev

    stretch = {"dagster/asset_partition_range_start": ALL[0], "dagster/asset_partition_range_end": ALL[-1]}
    made = dev.launch("__ASSET_JOB", assets=["below"], **stretch)
    wait_until(lambda: dev.find_status(made) == "SUCCESS", 60, pause=0.5)
    assert {is_synced(line, p) for p in ALL} == {"FRESH"}

    for key in ("k1", "k2", "k3"):
        change(line, key, 1, 10, 20, 30)
    asked = (
        ("again:k1", "--changed"),
        ("again:k2", "--from", "0", "--to", "1"),
        ("again:k3", "--files", "k3/000001.json"),
    )
    with ThreadPoolExecutor() as pool:
        said = list(pool.map(lambda words: rota(line, "replay", *words), asked))
    assert said == [f"again:{key}: 1 offsets replayed\n" for key in ("k1", "k2", "k3")]
    line.holds("again", {**{key: [3, 10, 20, 30] for key in ("k1", "k2", "k3")}, "k4": [1, 2, 3]})
    assert [is_synced(line, p) for p in ALL] == ["STALE", "STALE", "STALE", "FRESH"]
    refused = rota(line, "replay", "again:k1", "--from", "0", "--to", "9")
    assert refused.startswith("again:k1 was not replayed: only offsets below 2 were consumed")
    assert len(refused.splitlines()) == 1

    change(line, "k4", 1, 11, 12, 13)
    assets = [["again", kind] for kind in ("ownership", "records", "checkpoints")]
    filled = yaml.safe_load(dev.fill_in("again__replay", "again:k4", assets))
    assert filled == {"ops": {"again__batch": {"config": {"replay": {"changed": True}}}}}
    run = dev.launch("again__replay", filled, dagster__partition="again:k4")
    change(line, "k1", 3, 31, 32)
    backfill = dev.backfill_job("again__replay", ["again:k1", "again:k2"])  # of k2 nothing changed since
    wait_until(lambda: dev.backfill_status(backfill) != "REQUESTED", 150, pause=0.5)
    assert dev.backfill_status(backfill) == "COMPLETED_SUCCESS"
    wait_until(lambda: dev.find_status(run) == "SUCCESS", 90, pause=0.5)
    line.holds("again", {"k1": [10, 20, 30, 31, 32], "k2": [3, 10, 20, 30], "k4": [3, 11, 12, 13]})
    assert find_newest(line, "again", "checkpoints")["again:k1"]["offset"] == 2, "nothing moved"

    first = {str(r["runId"]) for r in dev.runs(rota__consume="again")}
    wait_until(lambda: {r["status"] for r in dev.runs(rota__consume="again")} <= {"SUCCESS"}, 60, pause=0.5)
    for key in KEYS:
        line.land("again", key, 50)
    wait_until(lambda: {m["offset"] for m in find_newest(line, "again", "checkpoints").values()} == {3}, 90, pause=0.5)
    before = {kind: find_newest(line, "again", kind) for kind in ("ownership", "records", "checkpoints")}
    removed = int(rota(line, "purge", "--older-than", "0h").split()[0])
    assert removed >= len(first) > 0
    assert not first & {str(r["runId"]) for r in dev.runs(rota__consume="again")}
    assert {kind: find_newest(line, "again", kind) for kind in before} == before
