"""One case on one engine, in a process of its own: its raw times, what it reached, its peak memory."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.install import HERE, Command
from benchmarks.states import Case

TIME_LIMIT = 900


@dataclass(frozen=True, slots=True)
class Timing:
    """What one engine did with one state; `missing` says why there is nothing."""

    engine: str
    state: str
    ms: tuple[float, ...] = ()
    answer: Mapping[str, Any] | None = None
    missing: str = ""

    @property
    def median(self) -> float | None:
        """The median in milliseconds."""
        return statistics.median(self.ms) if self.ms else None

    def get(self, name: str) -> Any:
        """One field of the answer."""
        return (self.answer or {}).get(name)


def child(engine: str, state: str, command: Command, words: list[str], given: str | None = None) -> Timing:
    """Runs a command that prints one JSON line."""
    if command.missing:
        return Timing(engine, state, missing=command.missing)
    env = os.environ | {"PYTHONPATH": str(HERE.parent), "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            [*command.words, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
            cwd=HERE.parent,
            env=env,
        )
    except subprocess.TimeoutExpired:
        return Timing(engine, state, missing=f"more than {TIME_LIMIT} s")
    if done.returncode != 0:
        return Timing(engine, state, missing=(done.stderr.strip().splitlines() or ["failed"])[-1][:160])
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return Timing(engine, state, tuple(answer.pop("ms")), answer)


OURS = Command((sys.executable, "-m", "benchmarks.ours"))


def rota(case: Case) -> Timing:
    """Our engine on a state of the table of speed."""
    return child("rota", case.name, OURS, [json.dumps({"case": asdict(case)})])


def rota_weighted(partitions: int, workers: int, budget: int | None) -> Timing:
    """Our engine on a weighted state."""
    how = {"partitions": partitions, "workers": workers, "budget": budget}
    return child("rota", weighted_name(partitions, workers, budget), OURS, [json.dumps({"weighted": how})])


def weighted_name(partitions: int, workers: int, budget: int | None) -> str:
    """The weighted state in words."""
    return f"weighted {partitions:,} x {workers:,}, " + ("no budget" if budget is None else f"{budget} moves")


def kafka_java(command: Command, assignor: str, case: Case) -> Timing:
    """One of Kafka's own assignors, JIT-hot."""
    warm, runs = case.warm_up
    words = [assignor, case.event, case.partitions, case.workers, case.sources, case.overlap, warm, runs]
    return child(f"Kafka {assignor} (Java)", case.name, command, [str(w) for w in words])


def kafka_python(command: Command, case: Case) -> Timing:
    """kafka-python's sticky assignor; once, it takes seconds."""
    how = asdict(case) | {"runs": 1}
    del how["overlap"]
    return child("kafka-python sticky", case.name, command, [json.dumps(how)])


def kazoo(command: Command, case: Case) -> Timing:
    """kazoo's partitioner: not sticky, no sources."""
    how = {"partitions": case.partitions, "workers": case.workers, "event": case.event}
    return child("kazoo partitioner", case.name, command, [json.dumps(how)])


def kafka_utils(command: Command, weight: list[float], owner: list[int], workers: int, budget: int) -> Timing:
    """Yelp's genetic balancer on the weighted yardstick."""
    given = json.dumps({"weight": weight, "owner": owner, "workers": workers, "budget": budget})
    return child("kafka-utils genetic", weighted_name(len(weight), workers, budget), command, [], given)


def azure(command: Command, partitions: int, workers: int, event: str, strategy: str) -> Timing:
    """Azure's ownership manager: rounds and owner changes rather than milliseconds."""
    how = {
        "partitions": partitions,
        "workers": workers,
        "event": event,
        "strategy": strategy,
        "seed": 1,
        "cap": 4 * partitions,
    }
    return child(f"Azure {strategy}", f"{partitions:,} x {workers:,}: {event}", command, [json.dumps(how)])
