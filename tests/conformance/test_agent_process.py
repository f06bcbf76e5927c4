"""`rota worker` as a process against a real ZooKeeper: killed, stopped, asked to leave, cut off, doubled."""

import re
import signal
from pathlib import Path

import pytest

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.membership import end_run, register_run
from tests.conformance.processes import Start
from tests.conformance.targets import aim, found_with, incarnation, owners, wait_until_owned
from tests.waiting import wait_until


def test_a_killed_worker_is_followed_by_its_successor(start: Start, real: GroupState) -> None:
    first, second = start("w1", anew=True), start("w2")
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="12", w2="")
    wait_until_owned(real, w1="12")
    loaded = Path(f"/proc/{first.find_pid()}/maps").read_text()
    assert "pydantic" in loaded
    assert "numpy" not in loaded, "under `assigned` a worker plans nothing: it starts in half the processor time"
    first.kill()
    aim(real, w1="", w2="12")
    wait_until_owned(real, w2="12")
    assert "reason=gone" in second.hears("event=claimed partition=s:1")
    assert second.hears("event=wait partition=s:1"), "while the dead one's session lasted"


def test_a_hand_over_waits_for_the_run_and_sigterm_ends_it_cleanly(
    start: Start, real: GroupState, zookeeper: EmbeddedZooKeeper
) -> None:
    first = start("w1")
    wait_until(lambda: incarnation(real, "w1"))
    second = start("w2")
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="12", w2="")
    wait_until_owned(real, w1="12")
    with connect(zookeeper.hosts) as other:
        run = GroupState(other, real.group)
        node = register_run(run, "r1", incarnation(real, "w1") or "", ["s:1"])
        first.signal(signal.SIGTERM)
        wait_until(lambda: next(v for v in real.live() if v.worker == "w1").record.leaving)  # type: ignore[union-attr]
        aim(real, w1="", w2="12")
        wait_until_owned(real, w1="1", w2="2")
        first.hears("event=drain partition=s:1")
        assert first.process.poll() is None
        end_run(run, node)
    wait_until_owned(real, w2="12")
    assert first.ends() == 0
    assert "everything is handed over" in first.hears("event=ended")
    assert not second.said("reason=(gone|forced)")


def test_leaving_without_a_controller_takes_max_shutdown_and_asked_twice_less(start: Start, real: GroupState) -> None:
    first, second = start("w1", max_shutdown=6), start("w2")
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="1", w2="2")
    wait_until_owned(real, w1="1", w2="2")
    first.signal(signal.SIGTERM)
    second.signal(signal.SIGTERM)
    second.hears("event=leaving")
    second.signal(signal.SIGTERM)
    assert (first.ends(), second.ends()) == (0, 0)
    assert owners(real) == {}
    assert first.hears("event=released partition=s:1 reason=leaving")
    assert second.hears("event=released partition=s:2 reason=leaving")


def test_stopped_past_its_session_it_gives_all_up_and_joins_anew(start: Start, real: GroupState) -> None:
    first, _ = start("w1"), start("w2")
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="12", w2="")
    wait_until_owned(real, w1="12")
    before = incarnation(real, "w1")
    first.signal(signal.SIGSTOP)
    wait_until(lambda: incarnation(real, "w1") is None)
    aim(real, w1="1", w2="2")
    wait_until(lambda: owners(real).get("s:2") == "w2")
    first.signal(signal.SIGCONT)
    first.hears("event=lost")
    after = wait_until(lambda: incarnation(real, "w1"))
    assert after != before
    wait_until(lambda: real.owned()["s:1"].incarnation == after)
    assert owners(real)["s:2"] == "w2"


def test_a_restart_takes_over_at_once(start: Start, real: GroupState) -> None:
    """It does not wait for the session of its former life: a killed process leaves nothing else behind."""
    older = start("w1", session=30)  # longer than a process needs to start
    wait_until(lambda: real.live())
    aim(real, w1="12")
    wait_until_owned(real, w1="12")
    older.kill()
    newer = start("w1")
    assert "reason=older" in newer.hears("event=claimed partition=s:1")
    newer.hears("event=claimed partition=s:2")
    assert not newer.said("event=taken")


def test_it_survives_a_restart_of_zookeeper(start: Start, tmp_path: Path, group: str) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        worker = start("w1", hosts=server.hosts)
        with connect(server.hosts) as store:
            tree = found_with(GroupState(store, group))
            wait_until(lambda: tree.live())
            aim(tree, w1="1")
            wait_until_owned(tree, w1="1")
            server.kill()
            server.start()
            aim(tree, w1="12")
            wait_until_owned(tree, w1="12")
        worker.signal(signal.SIGTERM)
        worker.hears("event=leaving")
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0


def test_usage_is_announced(start: Start, real: GroupState) -> None:
    start("w1", "--no-spark", "--zone", "a", "--label", "disk=ssd", "--capacity", "2", "--max-partitions", "7")
    live = wait_until(lambda: next((v.record for v in real.live() if v.record and v.record.usage), None))
    assert {"cpu", "memory"} <= set(live.usage or {})
    assert all(0 <= fraction <= 1 for fraction in (live.usage or {}).values())
    assert (live.zone, dict(live.labels), live.capacity, live.max_partitions) == ("a", {"disk": "ssd"}, 2.0, 7)
    assert live.endpoint is None


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--id", "a/b"], "Bad worker id 'a/b'"),
        (["--no-spark", "--spark", "sc://x:1"], "Give one of --spark, --no-spark"),
        (["--spark", "x:1"], "is no Spark Connect address"),
        (["--no-spark", "--label", "ssd"], "--label 'ssd': give it as KEY=VALUE"),
        (["--no-spark", "--capacity", "nan"], "--capacity nan"),
        (["--no-spark", "--zookeeper", "127.0.0.1:1"], "No ZooKeeper at 127.0.0.1:1"),
        (["--no-spark", "--zookeeper", "here"], "'here' is not host:port"),
    ],
)
def test_a_mistake_is_one_line(start: Start, words: list[str], line: str) -> None:
    worker = start("w1", *words)
    assert worker.ends() == 2
    assert len(worker.log.read_text().splitlines()) == 1
    assert worker.said(re.escape(line))


def test_no_java_is_one_line(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    worker = start("w1", "--master", "local[1]")
    assert worker.ends() == 2
    assert len(worker.log.read_text().splitlines()) == 1
    assert worker.said("Try: apt install openjdk-17")
