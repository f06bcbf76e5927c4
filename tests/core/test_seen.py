"""A tick that no code server answered is the fault of the server, or of the sensor itself."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rota.face.dagster_state import LOST, SLOW, SensorRow, Tick, blame_sensors, judge_sensors


def lost(at: float, end: float) -> Tick:
    return Tick(at, end, failed=True, why="Could not reach user code server.", kind=LOST)


def late(tick: Tick) -> float:
    return tick.at + (tick.end - tick.at) / 2


def look(*ticks: list[Tick]) -> tuple[float, list[float]]:
    """For how long the code server is silent, and for how long each of its sensors fails."""
    sensors, lost = judge_sensors([SensorRow(str(n), True, of, "here") for n, of in enumerate(ticks)], 0.0)
    return lost.get("here", 0.0), [one.failing for one in sensors]


def test_a_server_that_answers_no_sensor_is_silent_since_its_last_answer() -> None:
    frozen = [Tick(123.0, done=False), lost(63.0, 123.0), lost(2.0, 62.0), Tick(-20.0, -19.0)]
    assert look(frozen, [Tick(30.0, done=False), Tick(-1.0, 1.0)]) == (121.0, [0.0, 0.0])
    assert look(frozen, [Tick(0.0, 4.0)])[0] == 119.0, "it answered another until then"


def test_a_server_that_answers_one_sensor_is_not_silent_and_the_other_is_slow() -> None:
    """Each tick of a sensor took longer than Dagster waits, on a busy machine. The need named the code server, and the
    step was to restart Dagster."""
    slow = [Tick(122.0, done=False), lost(61.0, 121.0), lost(0.0, 60.0), Tick(-9.0, -8.0)]
    quick = [Tick(100.0, 101.0), Tick(50.0, 51.0)]
    assert look(slow, quick) == (0.0, [121.0, 0.0])
    (found, _), _ = judge_sensors([SensorRow("slow", True, slow), SensorRow("quick", True, quick)], 0.0)
    assert found.kind == SLOW
    assert "longer than Dagster waits" in found.why


def test_one_slow_tick_alone_sends_no_alert_however_long_dagster_waits() -> None:
    assert look([lost(0.0, 180.0), Tick(-9.0, -8.0)], [Tick(170.0, 171.0)]) == (0.0, [0.0, 0.0])
    refused = Tick(181.0, 182.0, failed=True, why="No ZooKeeper")
    assert look([refused, lost(0.0, 180.0)], [Tick(170.0, 171.0)]) == (0.0, [182.0, 0.0])


def test_a_slow_tick_is_no_answer_at_its_end() -> None:
    """The server answered another for the last time at 31."""
    assert look([lost(0.0, 60.0)], [Tick(30.0, 31.0)], [lost(20.0, 80.0)])[0] == 49.0


def test_a_server_that_answers_again_is_well() -> None:
    before = [lost(60.0, 120.0), lost(0.0, 60.0)]
    assert look([Tick(121.0, done=False), *before], [Tick(121.0, 122.0), *before]) == (0.0, [0.0, 0.0])
    refused = Tick(121.0, 122.0, failed=True, why="No ZooKeeper")
    assert look(before, [refused, *before]) == (0.0, [0.0, 1.0]), "a refusal is an answer"


TIMES = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 90), st.booleans()), max_size=6)


@given(st.lists(TIMES, min_size=1, max_size=4))
def test_silence_is_a_time_without_any_answer(drawn: list[list[tuple[int, int, bool]]]) -> None:
    """In that time before the end of a lost tick no sensor was answered. A slow sensor had an answer late in its tick."""
    ticks = [
        [
            replace(lost(at, at + took), kind="" if answered else LOST, failed=not answered)
            for at, took, answered in sorted(of)[::-1]
        ]
        for of in drawn
    ]
    blamed, (silence, _) = blame_sensors(ticks), look(*ticks)
    flat = [tick for of in ticks for tick in of]
    answers = [tick.end for tick in flat if not tick.lost]
    if silence:
        last = max(tick.end for tick in flat if tick.lost)
        assert not [answer for answer in answers if answer > last - silence]
    slow = [tick for of in blamed for tick in of if tick.kind == SLOW]
    assert all(any(late(one) < answer < one.end for answer in answers) for one in slow)
    kept = [tick for of in blamed for tick in of if tick.lost]
    assert len(slow) + len(kept) == sum(tick.lost for tick in flat)
    assert not [one for one in kept if any(late(one) < answer < one.end for answer in answers)]
