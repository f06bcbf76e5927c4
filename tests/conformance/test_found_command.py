"""A group whose workers decide alone, without Dagster: `rota found` founds it, and adds what landed since."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from rota.cli import cli
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from tests.conformance.processes import Start
from tests.waiting import wait_until

FILE = """
from rota import Group, Pipeline, delta, files
group = Group({group!r}, protocol="claim")
pipeline = Pipeline(source=files("land", format="csv", schema="a int"), table=delta("table"), group={group!r})
"""


@pytest.fixture
def folder(tmp_path: Path, zookeeper: EmbeddedZooKeeper, group: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "p.py").write_text(FILE.format(group=group))
    (tmp_path / "land").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_ZOOKEEPER", zookeeper.hosts)
    monkeypatch.setenv("ROTA_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("ROTA_LANDING", str(tmp_path))
    monkeypatch.setenv("ROTA_TABLES", str(tmp_path))
    return tmp_path


def land(folder: Path, *keys: str) -> None:
    for key in keys:
        (folder / "land" / key).mkdir()
        (folder / "land" / key / "0.csv").write_text("1\n")


def type_found(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["found", *words], catch_exceptions=False)
    return done.exit_code, done.output.strip()


def test_workers_that_decide_alone_own_everything_without_dagster(
    folder: Path, group: str, start: Start, zookeeper: EmbeddedZooKeeper
) -> None:
    start("w1").hears("event=no-group")
    land(folder, "a", "b")
    assert type_found("--group", group) == (0, f"Group {group}: 2 partitions, 2 new; its workers decide by claim")
    land(folder, "c")
    assert type_found("--group", group) == (0, f"Group {group}: 3 partitions, 1 new; its workers decide by claim")
    assert type_found("--group", group) == (0, f"Group {group}: 3 partitions, 0 new; its workers decide by claim")
    with connect(zookeeper.hosts) as store:
        tree = GroupState(store, group)
        wait_until(lambda: {p for p, own in tree.owned().items() if own.incarnation} == {"p:a", "p:b", "p:c"})


def test_what_cannot_be_asked_is_said_and_the_rest_is_founded(folder: Path, group: str) -> None:
    (folder / "pipelines" / "q.py").write_text("boom")
    code, said = type_found("--group", group)
    assert code == 1
    assert f"Group {group}: 0 partitions, 0 new" in said
    assert "q.py: " in said


def test_an_unknown_group_is_one_line_with_the_known_ones(folder: Path, group: str) -> None:
    done = CliRunner().invoke(cli, ["found", "--group", "other"])
    assert f"is in group 'other'. Known: {group}" in str(done.exception)
