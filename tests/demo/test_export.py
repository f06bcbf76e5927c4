"""`rota export` over a real ZooKeeper and a real table: what was committed is counted, whichever run was killed."""

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families

from rota.cli.export import GroupCollector
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.errors import ConfigError, RotaError
from rota.face.dagster_state import DagsterSeen
from rota.machine import free_port
from tests.demo.small_group import Group, Run, open_small_group
from tests.demo.small_line import Line, open_line
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster and the workers' Sparks answer."""
    monkeypatch.setattr("rota.cli.observer.read_dagster", lambda *_: DagsterSeen())
    monkeypatch.setattr("rota.face.health.explain_silence", lambda *_: "")


@pytest.fixture
def line(group: Group, run: Run, well: None, tmp_path: Path) -> Iterator[Line]:
    with open_line(group, tmp_path) as made:
        yield made


def read(text: str) -> dict[str, float]:
    """Each sample: `name{label="value",...}` without the group -> value."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(one.labels.items()) if k != "group")
            found[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return found


def test_the_rows_are_those_of_the_table_also_after_each_run_was_killed(line: Line, run: Run) -> None:
    for rows, killed in ((3, True), (5, False), (7, True), (11, True)):
        line.land("AA", rows)
        line.consume(killed)
    line.land("AA", 2)  # not consumed yet
    found = read(run("export", "--once").output)
    table = DeltaTable(line.folder / "table" / "main")
    assert found["rota_rows_total{pipeline=flights}"] == table.to_pyarrow_table().num_rows == 26
    assert found["rota_commits_total{pipeline=flights}"] == 4
    assert found["rota_quarantined_rows_total{pipeline=flights}"] == 0
    assert found["rota_export_up"] == 1
    status = run.json("status")
    lags = {p["id"]: p["lag"] for p in status["partitions"]}  # type: ignore[attr-defined]
    assert {p: found[f"rota_lag_offsets{{partition={p},pipeline=flights}}"] for p in lags if lags[p] is not None} == {
        p: max(0, lag) for p, lag in lags.items() if lag is not None
    }
    assert found["rota_epoch"] == status["epoch"] == 2
    assert found["rota_workers{state=active}"] == 2
    assert found["rota_needs{cause=parked,kind=partition,person=true}"] == 1
    assert found["rota_partitions{pipeline=flights,state=parked}"] == 1


@pytest.mark.usefixtures("well")
def test_after_an_outage_scrapes_succeed_and_counters_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rota.face.shared.SHARED", -1.0)
    monkeypatch.setenv("ROTA_PIPELINES", str(tmp_path))
    with open_small_group(tmp_path / "zookeeper") as group, connect(group.hosts, 60, call_timeout=1.0) as store:
        line = Line(group, tmp_path)
        line.land("AA", 4)
        line.consume()
        collector = GroupCollector(GroupState(store, "default"))

        def scrape() -> dict[str, float]:
            samples = [one for family in collector.collect() for one in family.samples]
            return {one.name: one.value for one in samples if one.labels.get("pipeline", "flights") == "flights"}

        assert (scrape()["rota_export_up"], scrape()["rota_rows_total"]) == (1, 4)
        last = scrape()["rota_export_last_success_timestamp_seconds"]
        group.server.kill()
        try:
            down = scrape()
            assert (down["rota_export_up"], "rota_needs" in down, "rota_rows_total" in down) == (0, False, False)
            assert down["rota_export_last_success_timestamp_seconds"] >= last > 0
            scrape()
            assert capsys.readouterr().err.count("did not answer within 1 s") == 1, "a line, once"
        finally:
            group.server.start()
        assert wait_until(lambda: scrape()["rota_export_up"])
        line.land("AA", 5)
        line.consume()
        assert scrape()["rota_rows_total"] == 9


def test_a_fault_of_rota_is_no_answer_and_ends_nothing(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("rota.cli.meter.follow_events", fail)
    collector = GroupCollector(line.group.tree)
    names = {family.name for family in collector.collect()}
    assert (collector.up, "rota_needs" in names) == (False, False)


def test_a_table_of_another_pipeline_counts_nothing(line: Line, run: Run) -> None:
    line.land("AA", 4)
    line.consume()
    (line.folder / "flights.py").rename(line.folder / "other.py")
    found = read(run("export", "--once").output)
    assert "rota_rows_total{pipeline=other}" not in found
    assert found["rota_needs{cause=table,kind=pipeline,person=true}"] == 1


def test_what_cannot_be_exported_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RotaError, match=r"No group 'absent'.*Known: default"):
        run("export", "--group", "absent")
    monkeypatch.setenv("ROTA_ZOOKEEPER", "127.0.0.1:1")
    with pytest.raises(RotaError, match=r"No ZooKeeper at 127\.0\.0\.1:1"):
        run("export")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'rota\[metrics\]'"):
        run("export")
    assert "RotaParked" in run("export", "--rules").output, "the rules need neither"


@pytest.fixture
def served(line: Line) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the address that it prints."""
    environ = {"PYTHONPATH": str(ROOT), "ROTA_ZOOKEEPER": line.group.hosts, "ROTA_PIPELINES": str(line.folder)}
    command = [sys.executable, "-m", "rota", "export", "--port", str(free_port())]
    process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait(LONG)
        process.stdout.close()


def test_the_command_serves_until_it_is_asked_to_end(line: Line, served: tuple[subprocess.Popen[str], str]) -> None:
    process, address = served
    with urllib.request.urlopen(address, timeout=LONG) as answer:
        found = read(answer.read().decode())
    assert found["rota_export_up"] == 1
    assert found["process_cpu_seconds_total"] > 0
    port = address.rpartition(":")[2].partition("/")[0]
    with pytest.raises(
        ConfigError, match=r"cannot be served at 127.0.0.1:\d+ \(Address already in use\). Choose another"
    ):
        Run()("export", "--port", port)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 0
