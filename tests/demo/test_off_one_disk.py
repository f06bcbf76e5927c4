"""`rota demo` in a bucket and on a cluster, as a person runs it; without faults, which tests of their own play.

The push tier has executors that share no disk with the worker (`cluster/test_executors_elsewhere.py`), runs from and into
a bucket (`dataplane/test_tables_in_a_bucket.py`), and the demo on one disk (`test_end_to_end.py`).
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
def test_workers_without_a_shared_disk_lose_and_double_no_row(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ROTA_", "AWS_"))} | {"PYTHONPATH": str(ROOT)}
    words = ["--json", "--no-faults", "--workers", "2", "--store", "s3", "--spark", "cluster"]
    command = [sys.executable, "-m", "rota", "demo", *words, "--state", str(tmp_path / "demo")]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout)
    assert (figures["rows_read"], figures["rows_written"], figures["files"]) == (336_776, 336_776, 185)
    assert (figures["right"], figures["broken"]) == (True, [])
    state = tmp_path / "demo"
    assert not any([*(state / "landing").iterdir(), *(state / "tables").iterdir()]), "all of it is in the bucket"
    assert not list((state / "cluster").rglob("*.parquet")), "nothing of a table was written where an executor works"
    left = [
        p for p in psutil.process_iter(["cmdline"]) if any(str(tmp_path) in part for part in p.info["cmdline"] or ())
    ]
    assert left == []
