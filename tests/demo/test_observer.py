"""What a command reads again at each observation: what changed, and nothing else."""

from pathlib import Path

import pytest

from rota.catalog import load
from rota.cli.observer import Findings, GroupObserver
from rota.coordination.group_state import GroupState
from rota.dataplane.delta.tables import PipelineTables
from rota.dataplane.ports import ASSIGN
from rota.face.dagster_state import DagsterSeen
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch
from rota.pipeline import Pipeline
from rota.registry import open_source
from simulator.memory_store import MemoryServer

FILE = """
from rota import Pipeline, delta, files
from tests.dataplane.landing_folders import open_files
pipeline = Pipeline(
    source=files("{folder}/land/{name}", format="json", schema="n int", settle=0), table=delta("{folder}/table/{name}")
)
"""


def declare(folder: Path, name: str) -> Pipeline:
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / f"{name}.py").write_text(FILE.format(folder=folder, name=name))
    return load(folder / "pipelines").pipelines[name]


def land(folder: Path, name: str, number: int) -> None:
    file = folder / "land" / name / "a" / f"{number}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"n": 1}\n')


def commit(pipeline: Pipeline, tree: GroupState, start: int, bad: int) -> None:
    (partition,) = open_source(pipeline).observe((pipeline.partition("a"),), ASSIGN).ends
    main = PipelineTables.of(pipeline, tree.group, tree.meta().id).main
    claimed = main.claim({partition: 1}, {partition: 0})
    main.commit(claimed, Batch(f"c{start}", "r", "w", "a", 1, {partition: (start, start + 1)}, bad={partition: bad}))


def read_lags(found: Findings) -> dict[str, int]:
    return {p: end - at for p, (at, end) in found.ends.items()}


def test_a_look_reads_files_and_logs_again_only_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_PIPELINES", str(tmp_path / "pipelines"))
    read: list[str] = []
    real_load, real_log = load, Ledger.read_recent_log
    monkeypatch.setattr("rota.catalog.load", lambda folder: (read.append("files"), real_load(folder))[1])
    monkeypatch.setattr(Ledger, "read_recent_log", lambda main: (read.append(main.pipeline), real_log(main))[1])
    tree = GroupState(MemoryServer().connect(), "default")
    tree.found()
    for name in ("p", "q"):
        land(tmp_path, name, 0)
        tree.grow(name, ["a"])
    p = declare(tmp_path, "p")
    commit(p, tree, 0, 2)
    observer = GroupObserver(tree)
    first = observer.observe()
    assert (read_lags(first), first.bad, first.rewritten) == ({"p:a": 1}, {"p:a": 2}, {})
    assert read == ["files", "p"]
    land(tmp_path, "p", 1)
    assert read_lags(observer.observe()) == {"p:a": 2}, "folders are listed each time"
    assert read == ["files", "p"]
    commit(p, tree, 1, 3)
    assert observer.observe().bad == {"p:a": 5}
    assert read == ["files", "p", "p"]
    declare(tmp_path, "q")
    assert read_lags(observer.observe()) == {"p:a": 2, "q:a": 1}
    assert "files" in read[3:]
    (tmp_path / "pipelines" / "p.py").unlink()
    assert read_lags(observer.observe()) == {"q:a": 1}


def test_a_pipeline_whose_file_was_removed_needs_an_operator_to_forget_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partitions stayed assigned, no run consumed them, and `rota status --check` exited with 0."""
    monkeypatch.setenv("ROTA_PIPELINES", str(tmp_path / "pipelines"))
    served = {"p"}

    def read_dagster(_: object, pipelines: list[str], groups: list[str]) -> DagsterSeen:
        return DagsterSeen(unserved=[name for name in pipelines if name not in served])

    monkeypatch.setattr("rota.cli.observer.read_dagster", read_dagster)
    monkeypatch.setattr("rota.cli.observer.CACHED_FOR", 0.0)
    tree = GroupState(MemoryServer().connect(), "default")
    tree.found()
    for name in ("p", "q", "old"):
        tree.grow(name, ["a"])
    declare(tmp_path, "p")
    (tmp_path / "pipelines" / "q.py").write_text("raise ValueError")

    def find() -> list[tuple[str, str]]:
        return [(one.name, one.sentence) for one in GroupObserver(tree).observe().needs if one.cause == "unserved"]

    step = "no file declares it, and Dagster does not serve it: put its file back, or `rota forget --pipeline {}`"
    assert find() == [("old", step.format("old"))], "the need of q's file states why q is not served"
    served.clear()
    assert [name for name, _ in find()] == ["p", "old"]
    (tmp_path / "pipelines").rename(tmp_path / "gone")
    assert find() == [], "the declarations of the files are unknown"
