"""New pipeline files for a line that runs, and one reload of its code location for all tests of them: each costs a code
server and a process from which runs are forked."""

import time
from dataclasses import dataclass

from rota.settings import Settings
from tests.face.dagster_dev import ROOT
from tests.face.line import Line
from tests.waiting import wait_until

PROTOCOLS = ("claim", "race", "ordinal")
DECLARED = """
from rota import Group, Pipeline, delta, files
group = Group("{name}", protocol="{protocol}")
pipeline = Pipeline(
    source=files("${{ROTA_LANDING}}/{name}", format="json", schema="n int", settle=0.2),
    table=delta("${{ROTA_TABLES}}/{name}"), group="{name}",
)
"""
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour\n"
)
FLIGHT = "2013,1,1,517,515,{delay},830,819,11,{carrier},1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
SENSORS = ("night__membership", "c__backlog")  # of what stays


YOUNG = 4.0  # seconds of its window that a tick has behind it when the reload begins


@dataclass(frozen=True)
class Reload:
    """When the tick began that went on then, when the reload was over, and when the tick ended; in seconds since 1970."""

    began: float
    over: float
    ended: float


def declare_alone(line: Line, **protocols: str) -> None:
    """A group, and a pipeline of its name, in which workers decide alone under the protocol; a reload loads it."""
    for name, protocol in protocols.items():
        (line.pipelines / f"{name}.py").write_text(DECLARED.format(name=name, protocol=protocol))


def forget_day(line: Line) -> None:
    """Remove the pipelines of group `day`, which no later test needs: their ticks would cost time to the end."""
    for name in ("a", "b"):
        (line.pipelines / f"{name}.py").unlink()


def copy_flights(line: Line) -> None:
    """What a user does in the first hour: one file copied, one line changed."""
    text = (ROOT / "pipelines" / "flights.py").read_text()
    (line.pipelines / "mine.py").write_text(text.replace("${ROTA_LANDING}/flights", "${ROTA_LANDING}/mine"))


def land_flights(line: Line) -> None:
    """Two files in folders of the user's own, of two flights each."""
    for carrier, delays in (("UA", (2, 4)), ("AA", (10, "NA"))):
        folder = line.landing / "mine" / carrier
        folder.mkdir(parents=True)
        lines = "".join(FLIGHT.format(delay=delay, carrier=carrier) for delay in delays)
        (folder / "2013-01.csv").write_text(HEADER + lines)


def reload_in_a_tick(line: Line) -> Reload:
    """Reloads while a tick goes on, and waits for the tick's end, until one ends before its window does. A reload that takes
    most of the window does not show it; without the law none does."""
    return wait_until(
        lambda: (done := reload_once(line)).ended - done.began < Settings().tick.total_seconds() - 1 and done
    )


def reload_once(line: Line) -> Reload:
    """Reloads while a young tick goes on."""

    def find_young() -> tuple[str, float] | None:
        newest = ((sensor, tick) for sensor in SENSORS for tick in line.dev.read_ticks(sensor)[:1])
        going = ((sensor, tick["timestamp"]) for sensor, tick in newest if not tick["endTimestamp"])
        return next(((sensor, began) for sensor, began in going if time.time() - began < YOUNG), None)

    sensor, began = wait_until(find_young, pause=0.5)
    line.dev.reload()
    over = time.time()

    def find_end() -> list[float]:
        ticks = line.dev.read_ticks(sensor)
        return [t["endTimestamp"] for t in ticks if t["timestamp"] == began and t["endTimestamp"]]

    (ended,) = wait_until(find_end, pause=0.5)
    return Reload(began, over, ended)
