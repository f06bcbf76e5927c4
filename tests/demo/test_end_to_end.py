"""`rota demo --json` as a person runs it, on real parts, with two workers to begin with: the same play, one JVM less."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from rota.deltalog.delta_log import DeltaLog
from rota.ledger.totals import count_commits
from tests.demo.json_keys import documented, held

ROOT = Path(__file__).parents[2]


def test_a_worker_dies_one_joins_a_zombie_is_refused_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "rota", "demo", "--json", "--workers", "2", "--state", str(tmp_path / "demo")]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    said = documented("demo")
    assert set(held(figures, said)) == said
    year = list((tmp_path / "demo" / "landing" / "flights").glob("*/2013-*.csv"))
    rows = sum(file.read_bytes().count(b"\n") - 1 for file in year)  # but for the header
    assert figures["rows_read"] == figures["rows_written"] == rows == 336_776
    (main,) = (tmp_path / "demo" / "tables").glob("*/main")
    totals = count_commits(DeltaLog(str(main)).open())
    assert (totals.rows, totals.commits) == (rows, figures["launches"]["commits"]), "what `rota export` counts"
    assert figures["files"] == len(year) == 185
    assert [figures[k] for k in ("missing", "duplicates", "gaps", "overlaps", "quarantined")] == [0] * 5
    assert figures["right"]
    assert figures["broken"] == []
    kill, join, zombie = figures["kill"], figures["join"], figures["zombie"]
    assert kill["taken_by"] != kill["worker"]
    assert abs(sum(kill["legs"].values()) - kill["seconds"]) < 0.5
    first, dead, heir, last = (int(name[1:]) for name in ("w2", kill["worker"], kill["taken_by"], join["worker"]))
    assert last > max(first, dead, heir), "it is newer than all that were there"
    assert zombie["overtaken_by"] != zombie["worker"]
    assert figures["refused"] >= len(zombie["refused"]) >= 1
    assert figures["launches"]["by_sensor"] == figures["launches"]["runs"] > 0
    assert sum(e["unavoidable_moves"] for e in figures["epochs"]) >= len(kill["partitions"])
    assert (tmp_path / "demo" / "history.png").read_bytes().startswith(b"\x89PNG")
    left = [
        p for p in psutil.process_iter(["cmdline"]) if any(str(tmp_path) in part for part in p.info["cmdline"] or ())
    ]
    assert left == []
