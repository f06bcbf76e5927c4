"""`rota status`, `rota why` and `rota history`: what people read first at night."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.catalog import load
from rota.coordination import overrides
from rota.coordination.parking import park, unpark
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN
from rota.errors import ConfigError, RotaError
from rota.face.dagster_state import DagsterSeen
from rota.ledger.values import Batch
from tests.claiming import claim_one, release_one
from tests.core.seen_group import settle_within
from tests.dataplane.landing_folders import open_files
from tests.demo.small_group import Group, Run, open_small_group
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
UP = "\x1b[1A"  # the cursor goes up a line


def test_status_shows_owner_and_offset_of_each_partition(group: Group, run: Run) -> None:
    seen = run.json("status")
    assert seen["epoch"] == 2
    assert seen["sentence"].startswith("Epoch 2: w2 joined")
    workers = {w["id"]: w for w in seen["workers"]}
    assert (workers["w1"]["owned"], workers["w1"]["target"], workers["w1"]["incarnation"]) == (2, 2, group.w1)
    partitions = {p["id"]: p for p in seen["partitions"]}
    ua = partitions["flights:UA"]
    assert (ua["owner"], ua["incarnation"], ua["offset"]) == ("w2", group.w2, 3)
    assert "ValueError" in partitions["flights:B6"]["parked"]
    table = run("status").output
    assert "flights:UA" in table
    assert "w2" in table


def commit_and_change(group: Group, folder: Path) -> None:
    """UA committed one row and one bad one; then its file grew."""
    (folder / "flights.py").write_text(
        "from rota import Pipeline, delta, files\n"
        f"source = files({str(folder / 'land')!r}, format='json', schema='n int', settle=0.0)\n"
        f"pipeline = Pipeline(source=source, table=delta({str(folder / 'table')!r}))\n"
    )
    file = folder / "land" / "UA" / "1.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"n": 1}\n')
    pipeline = load(folder).pipelines["flights"]
    open_files(pipeline).observe(("flights:UA",), ASSIGN)
    main = PipelineTables.of(pipeline, "default", group.tree.meta().id).main
    claimed = main.claim({"flights:UA": 1}, {"flights:UA": 0})
    main.commit(claimed, Batch("c", "r", "w", "a", 1, {"flights:UA": (0, 1)}, bad={"flights:UA": 2}))
    file.write_text('{"n": 1}\n{"n": 2}\n')


def test_why_and_status_tell_of_a_file_that_grew_after_it_was_consumed(group: Group, run: Run, tmp_path: Path) -> None:
    assert run.json("why", "flights:UA")["rewritten"] is None
    commit_and_change(group, tmp_path)
    assert "UA/1.json (offset 0) changed after being consumed" in str(run.json("why", "flights:UA")["rewritten"])
    assert run.json("why", "flights:AA")["rewritten"] is None
    ua = next(p for p in run.json("status")["partitions"] if p["id"] == "flights:UA")
    assert "UA/1.json (offset 0) changed after being consumed" in ua["rewritten"]
    assert ua["quarantined"] == 2
    assert "replay" in ua["needs"]


SPARE = """
import atexit, sys
atexit.register(lambda: print("\\n" + " ".join(sys.modules)))
sys.argv = ["rota", *sys.argv[1:]]
from rota.cli import main
from tests.core.seen_group import settle_within
main()
"""
HEAVY = {"dagster", "grpc", "matplotlib", "ortools", "pika", "psutil", "pyspark"}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["status"], "flights:UA w2 w2"),
        (["why", "flights:UA"], "changed after being consumed"),
        (["history"], "by run r"),
    ],
)
def test_a_reader_imports_nothing_heavy_though_it_reads_sources_and_tables(
    group: Group, tmp_path: Path, words: list[str], shown: str
) -> None:
    """A command answers within a second; each of these takes a tenth to two seconds. pandas comes with pyarrow, Dagster
    with a file that imports it."""
    commit_and_change(group, tmp_path)
    environ = {
        "PYTHONPATH": str(ROOT),
        "ROTA_ZOOKEEPER": group.hosts,
        "ROTA_PIPELINES": str(tmp_path),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-c", SPARE, *words]
    said = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=True).stdout
    *lines, modules = said.splitlines()
    assert shown in " ".join("\n".join(lines).split())
    assert "pyarrow" in modules.split(), "the table was read"
    assert sorted({name.split(".")[0] for name in modules.split()} & HEAVY) == []


def test_a_pipeline_file_that_wants_pandas_has_it(group: Group, tmp_path: Path) -> None:
    commit_and_change(group, tmp_path)
    file = tmp_path / "flights.py"
    file.write_text(f"import pandas\n\n\n{file.read_text()}")
    environ = {"PYTHONPATH": str(ROOT), "ROTA_ZOOKEEPER": group.hosts, "ROTA_PIPELINES": str(tmp_path)}
    command = [sys.executable, "-c", SPARE, "status", "--json"]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    assert all(need["cause"] != "refused" for need in json.loads(done.stdout)["needs"])
    assert "pandas.core" in done.stderr.splitlines()[-1].split()


def test_status_filters_by_pipeline_worker_and_trouble(group: Group, run: Run) -> None:
    def ids(*words: str) -> list[str]:
        return [p["id"] for p in run.json("status", *words)["partitions"]]

    assert ids("--pipeline", "flights") == ["flights:AA", "flights:B6", "flights:UA"]
    with pytest.raises(RotaError, match=r"Unknown pipeline 'flight'\. Known: flights\. Did you mean flights\?"):
        ids("--pipeline", "flight")
    assert ids("--worker", "w2") == ["flights:UA"]
    assert [w["id"] for w in run.json("status", "--worker", "w2")["workers"]] == ["w2"]
    with pytest.raises(RotaError, match=r"Unknown worker 'w7'\. Known: w1, w2\.$"):
        ids("--worker", "w7", "--check")
    assert ids("--trouble") == ["flights:B6"], "it is parked"


@pytest.fixture
def well(group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All that a command asks beside ZooKeeper is well: Dagster, the workers' Sparks, a source with the three keys."""
    for key in ("AA", "B6", "UA"):
        (tmp_path / "land" / key).mkdir(parents=True)
    (tmp_path / "flights.py").write_text(
        "from rota import Pipeline, delta, files\n"
        f"source = files({str(tmp_path / 'land')!r}, format='json', schema='n int', settle=0.0)\n"
        f"pipeline = Pipeline(source=source, table=delta({str(tmp_path / 'table')!r}))\n"
    )
    monkeypatch.setattr("rota.cli.observer.read_dagster", lambda *_: DagsterSeen())
    monkeypatch.setattr("rota.face.health.explain_silence", lambda *_: "")
    settle_within(0.5, monkeypatch)
    path, store = group.tree.paths.checkpoint("flights:UA"), group.tree.store
    done = store.get(path)
    assert done is not None
    store.delete(path)  # nothing was consumed
    yield
    store.create(path, done.data)


@pytest.mark.usefixtures("well")
def test_status_check_exits_1_when_a_person_is_needed_and_names_the_step(group: Group, run: Run) -> None:
    seen = run("status", "--check", "--trouble")
    assert seen.exit_code == 1
    assert "rota retry flights:B6" in " ".join(seen.output.split())
    unpark(group.tree, "flights:B6")
    seen = run("status", "--check")
    assert seen.exit_code == 0, seen.output
    overrides.pin(group.tree, "flights:AA", "w9")
    assert run("status", "--check").exit_code == 0, "its owner still has it, and no rebalance was"
    (own,) = group.tree.owned(["flights:AA"]).values()
    release_one(group.tree, group.w1, "flights:AA", own.version)
    said = run("status", "--check", "--pipeline", "flights")
    assert said.exit_code == 1
    assert "pinned to w9, which is not among the workers" in " ".join(said.output.split())
    overrides.pin(group.tree, "flights:AA", None)
    claim_one(group.tree, group.w1, "flights:AA", own.version + 1)
    park(group.tree, "flights:B6", "the disk is full", retry_after=3600.0)
    assert run("status", "--check").exit_code == 0, "it is tried again by itself"
    for _ in range(2):
        park(group.tree, "flights:B6", "the disk is full", retry_after=3600.0)
    assert run("status", "--check").exit_code == 1, "three times at one offset"


@pytest.mark.usefixtures("well")
def test_what_cannot_be_asked_is_a_need(group: Group, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    unpark(group.tree, "flights:B6")
    monkeypatch.setenv("ROTA_PIPELINES", "/nowhere")
    said = run("status", "--check")
    assert (said.exit_code, "No folder '/nowhere'" in said.output) == (1, True)
    monkeypatch.setenv("ROTA_ZOOKEEPER", "127.0.0.1:1")
    assert run("status", "--check").exit_code == 1
    with pytest.raises(RotaError):
        run("status")


def test_watch_draws_in_place_and_goes_on_after_an_outage(tmp_path: Path) -> None:
    with open_small_group(tmp_path / "zookeeper") as group:
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "ROTA_ZOOKEEPER": group.hosts,
            "ROTA_PIPELINES": str(tmp_path),
        }
        terminal, inner = pty.openpty()
        watch = subprocess.Popen(
            [sys.executable, "-m", "rota", "status", "--watch"],
            env=environ,
            stdout=inner,
            # A shell's background job inherits "ignore", and Python then leaves it so.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        os.close(inner)
        shown: list[str] = []
        reader = threading.Thread(target=collect, args=(terminal, shown), daemon=True)
        reader.start()
        try:
            wait_until(lambda: "flights:UA" in "".join(shown))
            overrides.pin(group.tree, "flights:AA", "w1")
            wait_until(lambda: "pinned to w1" in "".join(shown))
            assert UP in "".join(shown), "a second observation is drawn over the first"
            group.server.kill()
            wait_until(lambda: "did not answer" in "".join(shown))
            shown.clear()
            group.server.start()
            wait_until(lambda: "flights:UA" in "".join(shown))
        finally:
            watch.send_signal(signal.SIGINT)
            assert watch.wait(LONG) in (0, 1, 130)
            os.close(terminal)


def collect(terminal: int, shown: list[str]) -> None:
    """Adds what a process writes to its terminal, until it ends."""
    with contextlib.suppress(OSError):
        while written := os.read(terminal, 65_536):
            shown.append(written.decode(errors="replace"))


def test_history_lists_the_epochs_and_draws_them(run: Run, tmp_path: Path) -> None:
    seen = run.json("history")
    assert [(e["epoch"], e["moved"]) for e in seen["epochs"]] == [(1, 3), (2, 1)]
    assert [(r["partition"], r["run_id"]) for r in seen["refused"]] == [("flights:UA", "run-6")]
    shown = run("history", "--png", str(tmp_path / "h.png")).output
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert any(line.endswith("refused a write of flights:UA by run run-6") for line in lines)
    assert (tmp_path / "h.png").read_bytes().startswith(b"\x89PNG")
    moves = rota.read_moves("default")
    assert moves["partition"].tolist() == ["flights:AA", "flights:B6", "flights:UA", "flights:UA"]
    assert moves.iloc[-1]["reason"] == "w1 was 1 over its quota of 2"


def test_what_a_restored_table_lacks_hides_no_lag(run: Run, tmp_path: Path) -> None:
    """The total of two partitions that are one behind, and one whose checkpoint is two ahead, was 0."""
    source = f"files({str(tmp_path / 'landing')!r}, format='csv', schema='a int', settle=0)"
    declared = f"pipeline = Pipeline(source={source}, table=delta({str(tmp_path / 'table')!r}))\n"
    (tmp_path / "flights.py").write_text(f"from rota import Pipeline, delta, files\n{declared}")
    for key in ("AA", "B6", "UA"):
        (tmp_path / "landing" / key).mkdir(parents=True)
        (tmp_path / "landing" / key / "0.csv").write_text("1\n")
    assert [p["lag"] for p in run.json("status")["partitions"]] == [1, 1, -2]
    totals = next(line.split() for line in run("status").output.splitlines() if line.startswith("flights "))
    assert totals == ["flights", "3", "3", "2", "0"]


def test_history_of_one_partition(run: Run, tmp_path: Path) -> None:
    seen = run.json("history", "flights:UA")
    assert [(e["epoch"], [m["to"] for m in e["moves"]]) for e in seen["epochs"]] == [(1, ["w1"]), (2, ["w2"])]
    assert [r["partition"] for r in seen["refused"]] == ["flights:UA"]
    assert [e["epoch"] for e in run.json("history", "flights:AA")["epochs"]] == [1]
    shown = " ".join(run("history", "flights:UA").output.split())
    assert "Epoch 2: w1 -> w2 (w1 was 1 over its quota of 2)" in shown
    with pytest.raises(RotaError, match=r"Unknown partition 'UA'.*Did you mean flights:UA\?"):
        run("history", "UA")


def test_a_picture_into_a_folder_that_is_not_there_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    """It was a traceback, after all else was done."""
    with pytest.raises(ConfigError, match=rf"{tmp_path}/none is not a folder\. Create it, or name another file"):
        run("history", "--png", str(tmp_path / "none" / "h.png"))
    (tmp_path / "taken").mkdir()
    assert "is a directory" in run("history", "--png", str(tmp_path / "taken")).output
