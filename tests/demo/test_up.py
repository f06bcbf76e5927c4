"""`rota up` as a person runs it and ends it with Ctrl-C: a file of theirs is in the table, and nothing stays behind."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path

import psutil
import pyarrow.parquet as pq
from deltalake import DeltaTable

from rota.machine import free_port
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
PIPELINE = """
from rota import Pipeline, delta, files
pipeline = Pipeline(
    source=files("${ROTA_LANDING}/mine", format="json", schema="n int", settle=0), table=delta("${ROTA_TABLES}/mine")
)
"""


def read_rows(main: Path) -> list[int]:
    """What the table holds; read past all of rota."""
    if not DeltaTable.is_deltatable(str(main)):
        return []
    return sorted(n for file in DeltaTable(str(main)).file_uris() for n in pq.ParquetFile(file).read()["n"].to_pylist())


def list_carrying(mark: str) -> list[psutil.Process]:
    """Every process that inherited the mark, also with another parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("UP_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_what_lands_is_consumed_whatever_of_dagster_dies_until_ctrl_c_and_then_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "mine.py").write_text(PIPELINE)
    mark, port = uuid.uuid4().hex, free_port()
    env = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
    bare = {**env, "PYTHONPATH": str(ROOT)}
    env |= {"PYTHONPATH": str(ROOT), "ROTA_PIPELINES": str(tmp_path / "pipelines"), "UP_TEST": mark}
    state = tmp_path / ".rota"
    command = [
        sys.executable,
        "-m",
        "rota",
        "up",
        "--workers",
        "1",
        "--port",
        str(port),
        "--state",
        str(state),
        "--no-land",
    ]
    log = tmp_path / "log"
    with log.open("wb") as out:
        up = subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=out, stderr=out,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )  # fmt: skip

    def has_said(words: str) -> bool:
        assert up.poll() is None, log.read_text()
        return words in log.read_text()

    try:
        folder = state / "landing" / "mine" / "x"
        folder.mkdir(parents=True)
        (folder / "0.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in (1, 2, 3)))
        wait_until(lambda: has_said(f"Dagster's page is at http://127.0.0.1:{port}"), pause=0.2)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=LONG) as page:
            assert page.status == 200
        wait_until(lambda: has_said("") and read_rows(state / "tables" / "mine" / "main") == [1, 2, 3], pause=0.5)
        looked = subprocess.run(
            [sys.executable, "-m", "rota", "status", "--json"], env=bare, cwd=tmp_path,
            capture_output=True, text=True, timeout=LONG, check=False,
        )  # fmt: skip
        assert [one["id"] for one in json.loads(looked.stdout)["partitions"]] == ["mine:x"], looked.stderr
        assert len(list_carrying(mark)) > 4  # rota up, ZooKeeper, a worker and its Spark, Dagster
        # a daemon that died ended all of it within 27 s
        parts = [
            p for p in list_carrying(mark) if {"dagster._daemon", "dagster_webserver", "code-server"} & {*p.cmdline()}
        ]
        assert len(parts) == 3
        for part in parts:
            part.kill()
        (folder / "1.json").write_text(json.dumps({"n": 4}) + "\n")
        wait_until(lambda: has_said("") and read_rows(state / "tables" / "mine" / "main") == [1, 2, 3, 4], pause=0.5)
        assert log.read_text().count("was killed by SIGKILL; it is started again") == 3
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=LONG) as page:
            assert page.status == 200
        up.send_signal(signal.SIGINT)
        assert up.wait(LONG) == 0, log.read_text()
        wait_until(lambda: not list_carrying(mark), pause=0.5)
    finally:
        up.kill()
        for process in list_carrying(mark):
            process.kill()
