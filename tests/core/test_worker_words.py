"""The log lines of a worker: docs/protocol.md lists each word, and usage is announced when it changed."""

import json
import re
from pathlib import Path

import psutil
import pytest

from rota.cli import worker
from rota.cli.worker import EXECUTOR_WAIT, RESTARTS, STARTING, Process
from rota.coordination.records import Live
from rota.dataplane.spark.spark_server import SparkSettings
from rota.errors import EnvironmentFailed
from rota.group.usage import EVERY, STALE, Usage
from rota.settings import Settings

ROOT = Path(__file__).parents[2]


def test_the_protocol_lists_every_word() -> None:
    code = "".join((ROOT / "rota" / p).read_text() for p in ("group/agent.py", "group/chooser.py", "cli/worker.py"))
    said = {*re.findall(r'(?:say(?:_each)?|_idles|_format_line)\(\s*"([a-z-]+)"', code), "wait", "drain"}
    section = (ROOT / "docs" / "protocol.md").read_text().partition("## The words of a worker")[2].partition("\n## ")[0]
    listed = {word for row in re.findall(r"^\| (`.*?) \|", section, re.M) for word in re.findall(r"`([a-z-]+)`", row)}
    assert said == listed


@pytest.mark.parametrize("key", ["AA", "shop=1", "Café Zürich", 'a" event=lost reason="b', "a\\"])
def test_a_partition_of_any_name_is_one_value_of_its_line(capfd: pytest.CaptureFixture[str], key: str) -> None:
    """`a" event=lost reason="b` was a line of its own making."""
    process = Process("g", "w1", Live(), None, Settings.from_environment(), "")
    process.say("claimed", partition=f"p:{key}", reason="free")
    process.log.close()
    (line,) = capfd.readouterr().err.splitlines()
    value = line.partition(" partition=")[2].removesuffix(" reason=free")
    assert (json.loads(value) if value.startswith('"') else value) == f"p:{key}"


class Deaf:
    """A Spark that answered once and, started again, lives and never answers."""

    url, log, silence = "sc://127.0.0.1:1", "spark.log", 30.0
    settings = SparkSettings("yarn")

    def __init__(self) -> None:
        self.pid: int | None = None
        self.answers, self.starts, self.holds, self.executors = True, 0, "", 1

    def mapped(self) -> bool:
        return False

    def start(self) -> int:
        self.starts += 1
        self.pid = self.starts
        return self.pid

    def ready(self) -> bool:
        return self.answers

    def explain_unable(self) -> str:
        return "" if self.executors else "no executor of yarn is there"

    def stuck(self) -> str:
        return self.holds

    def silent(self) -> bool:
        return not self.answers

    def kill(self) -> None:
        self.pid, self.holds = None, ""

    def last_words(self) -> str:
        return "waiting for resources"


@pytest.mark.parametrize("starting", [STARTING, float("inf")])
def test_a_spark_that_never_becomes_ready_again_ends_its_worker(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], starting: float
) -> None:
    """Without the bound it holds its worker's partitions for ever."""
    now, spark = 0, Deaf()
    monkeypatch.setattr(worker.time, "monotonic", lambda: float(now))
    process = Process("g", "w1", Live(), spark, Settings.from_environment(), "", starting)  # type: ignore[arg-type]
    assert process.start_spark()
    spark.answers = False

    def a_day() -> None:
        nonlocal now
        for now in range(24 * 3600):  # noqa: B007
            process.watch_spark()

    if starting != STARTING:
        a_day()
        assert (spark.starts, spark.pid) == (2, 2)
        return
    with pytest.raises(EnvironmentFailed, match="died 3 times: waiting for resources"):
        a_day()
    assert spark.starts == RESTARTS
    assert (RESTARTS - 1) * STARTING < now < RESTARTS * STARTING
    process.log.close()
    silent = [line.split(" ", 3)[3] for line in capfd.readouterr().err.splitlines() if "spark-silent" in line]
    assert silent == [f"event=spark-silent pid={n} seconds={s}" for n, s in ((1, 30), (2, 180), (3, 180))]


@pytest.mark.parametrize("guarded", [True, False])
def test_a_spark_with_a_task_that_cannot_be_ended_is_replaced(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], guarded: bool
) -> None:
    """Without the guard the task holds its slot for ever; the server answers all the while."""
    spark = Deaf()
    process = Process("g", "w1", Live(), spark, Settings.from_environment(), "")  # type: ignore[arg-type]
    assert process.start_spark()
    spark.holds = "Killed task 7 could not be stopped"
    if not guarded:
        monkeypatch.setattr(Deaf, "stuck", lambda _: "")
    for _ in range(9):
        process.watch_spark()
    assert (spark.starts, spark.holds) == ((2, "") if guarded else (1, "Killed task 7 could not be stopped"))
    said = 'event=spark-stuck pid=1 reason="Killed task 7 could not be stopped"'
    process.log.close()
    assert (said in capfd.readouterr().err) == guarded


@pytest.mark.parametrize("at_first", [True, False])
def test_a_worker_without_executors_announces_that_until_it_has_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], at_first: bool
) -> None:
    now, spark = 0, Deaf()
    spark.executors = int(at_first)
    monkeypatch.setattr(worker.time, "monotonic", lambda: float(now))

    def wait(seconds: float) -> None:
        nonlocal now
        now += int(seconds)

    monkeypatch.setattr(worker.time, "sleep", lambda _: wait(1))
    process = Process("g", "w1", Live(), spark, Settings.from_environment(), "")  # type: ignore[arg-type]
    assert process.start_spark()
    assert (now > EXECUTOR_WAIT, process.live.unable == "") == (not at_first, at_first), (
        "it joins, and announces that it cannot work"
    )
    spark.executors = 0
    for seconds, unable in ((EXECUTOR_WAIT - 1, not at_first), (2, True), (STARTING - EXECUTOR_WAIT, True)):
        wait(seconds)
        process.watch_spark()
        assert bool(process.live.unable) == unable
    wait(EXECUTOR_WAIT)
    process.watch_spark()
    assert spark.starts == 2, "an application that no master knows any more gets no executor"
    spark.executors = 1
    process.watch_spark()
    process.watch_spark()
    assert process.live.unable == ""
    process.log.close()
    words = re.findall(r"event=(spark-\w+)", capfd.readouterr().err)
    assert [one for one in words if one.endswith("able")] == ["spark-unable", "spark-unable", "spark-able"]


@pytest.mark.parametrize(
    ("master", "conf", "greedy"),
    [
        ("spark://head:7077", {}, True),
        ("spark://head:7077", {"spark.cores.max": "4"}, False),
        ("local[8]", {}, False),
        ("yarn", {}, False),
    ],
)
def test_a_worker_that_leaves_no_core_to_others_logs_that_once(
    capfd: pytest.CaptureFixture[str], master: str, conf: dict[str, str], greedy: bool
) -> None:
    spark = Deaf()
    spark.settings = SparkSettings(master, conf)
    process = Process("g", "w1", Live(), spark, Settings.from_environment(), "")  # type: ignore[arg-type]
    assert process.start_spark()
    process.log.close()
    said = [line for line in capfd.readouterr().err.splitlines() if "event=notice" in line]
    assert [f"all cores of {master}" in line and "--conf spark.cores.max=N" in line for line in said] == [True] * greedy


def test_usage_is_news_when_it_moved_or_grew_old(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, now = 20.0, 0.0
    monkeypatch.setattr(psutil, "cpu_percent", lambda: cpu)
    usage = Usage(clock=lambda: now)

    def after(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return usage.read_news() is not None

    assert not after(EVERY - 1), "not sampled yet"
    assert after(1), "the first sample"
    assert not after(EVERY), "the same"
    cpu = 45.0
    assert after(EVERY), "half of the way there is 12 points"
    assert not after(EVERY - 1)
    cpu = 33.0
    assert not after(EVERY), "no news"
    assert after(STALE), "old"


def test_bandwidth_is_a_fraction_of_what_the_cards_can(monkeypatch: pytest.MonkeyPatch) -> None:
    now, moved = 0.0, 0
    card = type("Card", (), {"isup": True, "speed": 1000})()
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"lo": card, "eth0": card})
    monkeypatch.setattr(psutil, "net_io_counters", lambda: type("Io", (), {"bytes_recv": moved, "bytes_sent": 0})())
    usage = Usage(clock=lambda: now)
    now, moved = EVERY, int(EVERY * 125_000_000 / 4)
    news = usage.read_news() or {}
    assert news["bandwidth_in"] == pytest.approx(0.25)
    assert news["bandwidth_out"] == 0
