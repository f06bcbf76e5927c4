"""How long a tick looks, how often, and what ends a pause."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest

from rota.coordination.bell import Bell
from rota.dagster.sensors import polling
from simulator.memory_store import MemoryServer


def test_a_tick_whose_looks_are_slow_is_over_before_dagster_gives_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks of 15 s: the pause after one, three times as long, began within the window and another look followed it.
    Dagster gives a tick up after 60 s."""
    now = [0.0]
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: pass_time(now, s)))
    for seconds in (0.01, 1.0, 6.0, 9.6, 15.0, 18.0):
        began = now[0]
        polling.poll(lambda: pass_time(now, seconds), lambda _: False, 1)  # noqa: B023 (called at once)
        assert now[0] - began <= min(polling.WINDOW + polling.PAUSE + seconds, 59.0)


@pytest.mark.parametrize("name", ["grpc-server-heartbeat", "grpc-server-cleanup"])
def test_a_tick_ends_with_its_code_server(name: str) -> None:
    """Dagster leaves it running after a reload: with the old code it would launch for as long as its window, and the tick of
    the new code waits for it."""
    ended, looks = threading.Event(), list[int]()
    guard = threading.Thread(target=ended.wait, name=name)
    guard.start()

    def look() -> bool:
        looks.append(len(looks))
        if len(looks) == 3:
            ended.set()
            guard.join()
        return False

    polling.poll(look, bool, 1, pause=0.01)
    assert looks == [0, 1, 2]


def test_a_bell_ends_the_pause_and_rings_for_what_happened_while_no_poll_waited() -> None:
    """A look two seconds later would be two seconds more without the partitions of the dead."""
    server = MemoryServer(lambda: 0.0)
    store, other = server.connect(), server.connect()
    store.ensure("/lives")
    bell = Bell()
    looks: list[int] = []

    def look() -> int:
        bell.listen(store, "/lives")
        looks.append(len(store.children("/lives")))
        if len(looks) == 1:
            other.create("/lives/w1", ephemeral=True)  # after the look, before a poll waits
        elif len(looks) == 2:
            other.close()
        return looks[-1]

    began = time.monotonic()
    polling.poll(look, lambda seen: looks[1:] and seen == 0, 1, pause=100.0, rest=bell.wait)
    assert looks == [0, 1, 0]
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
    now, looks = [0.0], list[int]()
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: pass_time(now, s)))

    def look_inside(left: int) -> bool:
        """A look during which as many ticks begin as may wait, and one more."""
        looks.append(left)
        if left and looks.count(left) == 2:
            polling.poll(lambda: look_inside(left - 1), bool, places)
        return False

    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert polling.count_places(instance) == places
    polling.poll(lambda: look_inside(places), bool, places)
    assert looks.count(0) == 1, "one beyond the places looks once"
    assert all(looks.count(left) >= 2 for left in range(1, places + 1))
