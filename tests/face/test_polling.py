"""How long a tick polls, how often, and what ends a pause."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from rota.coordination.change_signal import ChangeSignal
from rota.dagster.sensors import polling
from rota.errors import ConfigError
from rota.settings import Settings
from simulator.memory_store import MemoryServer


def test_a_tick_whose_looks_are_slow_is_over_before_dagster_gives_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls of 15 s: the pause after one, three times as long, began within the window and another poll followed it.
    Dagster gives a tick up after 60 s."""
    now = [0.0]
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: pass_time(now, s)))
    for seconds in (0.01, 1.0, 6.0, 9.6, 15.0, 18.0):
        began = now[0]
        polling.poll(lambda: pass_time(now, seconds), lambda _: False, 1)  # noqa: B023 (called at once)
        assert now[0] - began <= min(Settings().tick.total_seconds() + polling.PAUSE + seconds, 59.0)


@pytest.mark.parametrize("tick", [0.0, 4.0, 12.0, 45.0])
def test_a_tick_polls_as_long_as_it_is_set_to(monkeypatch: pytest.MonkeyPatch, tick: float) -> None:
    """Behind a service mesh that ends a request after 15 s, a tick of 28.8 s would fail each time."""
    now = [0.0]
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: pass_time(now, s)))
    monkeypatch.setenv("ROTA_TICK", str(tick))
    polling.poll(lambda: pass_time(now, 0.01), lambda _: False, 1)
    assert tick - polling.PAUSE <= now[0] <= tick + 0.1


@pytest.mark.parametrize("given", ["-1", "46", "soon"])
def test_a_tick_that_dagster_would_end_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="ROTA_TICK="):
        Settings.from_environment({"ROTA_TICK": given})


@pytest.mark.parametrize("name", ["grpc-server-heartbeat", "grpc-server-cleanup"])
def test_a_tick_ends_with_its_code_server(name: str) -> None:
    """Dagster leaves it running after a reload: with the old code it would launch for as long as its window, and the tick of
    the new code waits for it."""
    ended, polls = threading.Event(), list[int]()
    guard = threading.Thread(target=ended.wait, name=name)
    guard.start()

    def poll_once() -> bool:
        polls.append(len(polls))
        if len(polls) == 3:
            ended.set()
            guard.join()
        return False

    polling.poll(poll_once, bool, 1, pause=0.01)
    assert polls == [0, 1, 2]


def test_a_change_ends_the_pause_also_if_it_came_before_the_wait() -> None:
    """A poll two seconds later would be two seconds more without the partitions of the dead."""
    server = MemoryServer(lambda: 0.0)
    store, other = server.connect(), server.connect()
    store.ensure("/lives")
    changed = ChangeSignal()
    polls: list[int] = []

    def poll_once() -> int:
        changed.listen(store, "/lives")
        polls.append(len(store.children("/lives")))
        if len(polls) == 1:
            other.create("/lives/w1", ephemeral=True)  # after the poll, before the pause
        elif len(polls) == 2:
            other.close()
        return polls[-1]

    began = time.monotonic()
    polling.poll(poll_once, lambda seen: polls[1:] and seen == 0, 1, pause=100.0, rest=changed.wait)
    assert polls == [0, 1, 0]
    assert time.monotonic() - began < 100


def pass_time(now: list[float], seconds: float) -> None:
    now[0] += seconds


@pytest.mark.parametrize(
    ("settings", "places"),
    [("", 0), ("sensors: {use_threads: false}", 0), ("sensors: {use_threads: true, num_workers: 8}", 4)],
)
def test_a_tick_waits_only_where_no_sensor_waits_for_it(
    settings: str, places: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Dagster evaluates sensors one after another a group and three pipelines held up all sensors for 75 s."""
    (tmp_path / "dagster.yaml").write_text(settings)
    for server in ("DAGSTER_GRPC_MAX_WORKERS", "DAGSTER_CODE_SERVER_MAX_WORKERS"):
        monkeypatch.setenv(server, "24")
    now, polls = [0.0], list[int]()
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: pass_time(now, s)))

    def poll_inside(left: int) -> bool:
        """A poll during which as many ticks begin as may wait, and one more."""
        polls.append(left)
        if left and polls.count(left) == 2:
            polling.poll(lambda: poll_inside(left - 1), bool, places)
        return False

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert polling.count_places(instance) == places
    polling.poll(lambda: poll_inside(places), bool, places)
    assert polls.count(0) == 1, "one beyond the places polls once"
    assert all(polls.count(left) >= 2 for left in range(1, places + 1))
