"""Law: liveness is the loop's. No log stalls the loop, and if something does, the session ends."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.cli.log import MAX_QUEUED_LINES, Log
from rota.cli.watchdog import TICKS, Watchdog
from rota.coordination.group_state import GroupState
from rota.coordination.records import Own, encode
from rota.coordination.store import Create
from tests.conformance.processes import SESSION, Start
from tests.conformance.targets import aim, incarnation, owners, wait_until_owned
from tests.waiting import LONG, wait_until

STALLING = ("-m", "tests.conformance.stalling_worker")
UNREAD = """
import fcntl, os
reader, writer = os.pipe()
fcntl.fcntl(writer, 1031, 4096)  # F_SETPIPE_SZ: some thirty lines
os.dup2(writer, 2)
from rota.cli.worker import command
command()
"""


def test_a_log_without_a_reader_stops_nothing(start: Start, real: GroupState) -> None:
    names = [f"t:{number}" for number in range(200)]
    real.store.multi([Create(real.paths.own(name), encode(Own())) for name in names])
    start("w1", program=("-c", UNREAD))
    wait_until(lambda: real.live())
    aim(real, {"w1": names})
    wait_until(lambda: len(owners(real)) == len(names))


def test_a_stalled_worker_is_not_live(
    start: Start, real: GroupState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside it one without its watchdog, which stays live while it stalls: no worker works on its partitions."""
    flag = tmp_path / "stalls"
    monkeypatch.setenv("STALLS", str(flag))
    first = start("w1", program=STALLING)
    monkeypatch.setenv("UNWATCHED", "yes")
    second = start("w2", program=STALLING)
    wait_until(lambda: len(real.live()) == 2)
    aim(real, w1="1", w2="2")
    wait_until_owned(real, w1="1", w2="2")
    before = incarnation(real, "w1")
    flag.touch()
    wait_until(lambda: incarnation(real, "w1") is None)
    assert incarnation(real, "w2"), "live, and stalled"
    first.hears(f"event=stalled seconds={2 * SESSION:g}")
    flag.unlink()
    first.hears("event=lost")
    after = wait_until(lambda: incarnation(real, "w1"))
    assert after != before
    wait_until(lambda: real.owned()["s:1"].incarnation == after)
    assert not second.said("event=(stalled|lost)")
    assert len(first.said("event=stalled")) == 1


def watch(progress: Callable[[], object], good: Callable[[], bool]) -> list[int]:
    """How often the session was ended, after many looks of the watchdog."""
    looks, ended, enough = 0, [0], threading.Event()

    def look() -> object:
        nonlocal looks
        looks += 1
        if looks > 5 * TICKS:
            enough.set()
        return progress()

    def end() -> None:
        ended[0] += 1

    with Watchdog(look, good, end, bound=0.01 * TICKS, note=print):
        assert enough.wait(LONG)
    return ended


def test_a_standstill_ends_one_session_once() -> None:
    steps = iter(range(10**6))
    assert watch(lambda: 1, lambda: True) == [1]
    assert watch(lambda: next(steps), lambda: True) == [0]
    assert watch(lambda: next(steps) // (2 * TICKS), lambda: True)[0] >= 2, "once for each standstill"
    assert watch(lambda: 1, lambda: False) == [0], "there was no session to end: ZooKeeper is away"


def test_lines_that_do_not_fit_are_counted_where_they_are_missing() -> None:
    reader, writer = os.pipe()
    log = Log(lambda lines: f"dropped {lines}", writer)
    total = MAX_QUEUED_LINES + 5_000
    for number in range(total):
        log.write(f"{number} {'x' * 100}")
    got = b""
    while not log.lines.empty():
        got += os.read(reader, 65_536)
    log.write("the end")
    while not got.endswith(b"the end\n"):
        got += os.read(reader, 65_536)
    expected, missing = 0, 0
    *lines, last = got.decode().splitlines()
    for word, number in (line.split()[:2] for line in lines):
        if word == "dropped":
            missing += int(number)
            expected += int(number)
        else:
            assert word == str(expected), "the count is where the gap is"
            expected += 1
    assert (expected, last) == (total, "the end")
    assert missing > 0
    os.close(reader)
    log.write("without a reader")
    log.close()
    os.close(writer)
