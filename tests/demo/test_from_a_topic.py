"""`rota demo --source kafka` as a user runs it: the demo's whole play, from a topic of 16 partitions.

The push tier has the same play from files (`test_end_to_end.py`) and faults of runs from a topic (`kafka/test_faults.py`).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.release
def test_a_worker_dies_one_joins_a_zombie_is_refused_and_each_record_is_there_once(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")} | {"PYTHONPATH": str(ROOT)}
    words = ["--json", "--workers", "2", "--source", "kafka", "--state", str(tmp_path / "demo")]
    command = [sys.executable, "-m", "rota", "demo", *words]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert [figures[k] for k in ("rows_read", "rows_written", "files", "partitions")] == [*[336_776] * 3, 16]
    assert (figures["right"], figures["broken"]) == (True, [])
    assert figures["kill"]["taken_by"] != figures["kill"]["worker"]
    assert figures["refused"] >= len(figures["zombie"]["refused"]) >= 1
    assert not list((tmp_path / "demo" / "landing").iterdir()), "all of it is in the topic"
    left = [
        p for p in psutil.process_iter(["cmdline"]) if any(str(tmp_path) in part for part in p.info["cmdline"] or ())
    ]
    assert left == [], "the broker too has ended"
