"""Runs one case on one engine, in a process of its own."""

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
class Measurement:
    """The times of one engine on one state, in milliseconds, and its answer. `missing` states why there is none."""

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
        """One field of the answer, None if it has none."""
        return (self.answer or {}).get(name)


def run_command(engine: str, state: str, command: Command, words: list[str], given: str | None = None) -> Measurement:
    """Runs a command that prints one JSON line. A failure or a timeout is the `missing` of the measurement."""
    if command.missing:
        return Measurement(engine, state, missing=command.missing)
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
        return Measurement(engine, state, missing=f"more than {TIME_LIMIT} s")
    if done.returncode != 0:
        return Measurement(engine, state, missing=(done.stderr.strip().splitlines() or ["failed"])[-1][:160])
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return Measurement(engine, state, tuple(answer.pop("ms")), answer)


OURS = Command((sys.executable, "-m", "benchmarks.ours"))


def time_rota(case: Case) -> Measurement:
    """Times rota's `sticky`."""
    return run_command("rota", case.name, OURS, [json.dumps({"case": asdict(case)})])


def time_rota_weighted(partitions: int, workers: int, budget: int | None) -> Measurement:
    """Times rota's `sticky-load`."""
    how = {"partitions": partitions, "workers": workers, "budget": budget}
    return run_command("rota", name_weighted_state(partitions, workers, budget), OURS, [json.dumps({"weighted": how})])


def name_weighted_state(partitions: int, workers: int, budget: int | None) -> str:
    """The weighted state in words."""
    return f"weighted {partitions:,} x {workers:,}, " + ("no budget" if budget is None else f"{budget} moves")


def time_kafka_java(command: Command, assignor: str, case: Case) -> Measurement:
    """Times one of Kafka's own assignors after the JIT compiled it."""
    warm, runs = case.warm_up
    words = [assignor, case.event, case.partitions, case.workers, case.sources, case.overlap, warm, runs]
    return run_command(f"Kafka {assignor} (Java)", case.name, command, [str(w) for w in words])


def time_kafka_python(command: Command, case: Case) -> Measurement:
    """Times kafka-python's sticky assignor once, because it takes seconds."""
    how = asdict(case) | {"runs": 1}
    del how["overlap"]
    return run_command("kafka-python sticky", case.name, command, [json.dumps(how)])


def time_kazoo(command: Command, case: Case) -> Measurement:
    """Times kazoo's partitioner, which is not sticky and knows no sources."""
    how = {"partitions": case.partitions, "workers": case.workers, "event": case.event}
    return run_command("kazoo partitioner", case.name, command, [json.dumps(how)])


def time_kafka_utils(command: Command, weight: list[float], owner: list[int], workers: int, budget: int) -> Measurement:
    """Times Yelp's genetic balancer on the weighted yardstick."""
    given = json.dumps({"weight": weight, "owner": owner, "workers": workers, "budget": budget})
    return run_command("kafka-utils genetic", name_weighted_state(len(weight), workers, budget), command, [], given)


def time_azure(command: Command, partitions: int, workers: int, event: str, strategy: str) -> Measurement:
    """Counts the rounds and owner changes of Azure's ownership manager."""
    how = {
        "partitions": partitions,
        "workers": workers,
        "event": event,
        "strategy": strategy,
        "seed": 1,
        "cap": 4 * partitions,
    }
    return run_command(f"Azure {strategy}", f"{partitions:,} x {workers:,}: {event}", command, [json.dumps(how)])
