"""The options of Java with which a worker's Spark is started; tests/conformance/test_agent_spark.py asks a running one."""

import shlex
from pathlib import Path

import pytest

from rota.dataplane.spark.spark_server import LASTING, MEMORY, OPTIONS, SparkSettings


def read_java_options(master: str, **conf: str) -> list[str]:
    return shlex.split(SparkSettings(master, conf, ("-archive of a folder",)).complete(0, Path())[OPTIONS])


def test_the_users_options_for_java_come_after_rotas_and_take_none_of_them_away() -> None:
    ours = [*LASTING, "-XX:+UseSerialGC", "-archive of a folder"]
    assert read_java_options("local[1]") == ours
    theirs = {OPTIONS: '-Dmy.flag=1 -XX:+UsePerfData "-Da=b c"'}
    assert read_java_options("local[1]", **theirs) == [*ours, "-Dmy.flag=1", "-XX:+UsePerfData", "-Da=b c"]
    chosen = {OPTIONS: "-XX:+UseG1GC"}
    assert read_java_options("local[1]", **chosen) == [*LASTING, "-archive of a folder", "-XX:+UseG1GC"], (
        "Java does not start with two collectors"
    )


@pytest.mark.parametrize(
    ("master", "memory", "serial"),
    [
        *(("local", "1g", True), ("local[2]", "2g", True), ("local[2, 4]", "2048MB", True), ("local[1]", "600", True)),
        *(("local[3]", "1g", False), ("local[2]", "3g", False), ("local[1]", "1t", False), ("local[*]", "1g", False)),
        *(("spark://there:7077", "1g", True), ("spark://there:7077", "2049m", False)),
    ],
)
def test_one_thread_collects_where_few_cores_work_in_little_memory(
    monkeypatch: pytest.MonkeyPatch, master: str, memory: str, serial: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    assert ("-XX:+UseSerialGC" in read_java_options(master, **{MEMORY: memory})) == serial


@pytest.mark.parametrize("master", ["local[*]", "local[64]"])
def test_there_are_no_more_cores_than_the_machine_has(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert "-XX:+UseSerialGC" in read_java_options(master)
