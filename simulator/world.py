"""The values of a simulated world: a team, its partitions, and its happenings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rota.core import Partition, Policy, Worker

What = Literal[
    "join",
    "crash",
    "kill",
    "restart",
    "leave",
    "freeze",
    "cut",
    "drain",
    "undrain",
    "cordon",
    "cap",
    "load",
    "lag",
    "die",
]


@dataclass(frozen=True, slots=True)
class Happening:
    """At `at` seconds, `what` happens to `target` (a worker; a partition for `load`).

    `crash` ends a host: agent and runs. `kill` ends only the agent, whose supervisor ends its session at once. `value`:
    seconds for `freeze` (agent and session make no progress, its runs do) and `cut` (no network); partitions for `cap`
    (negative: no cap); a factor for `load` and for `lag` (of every latency of that worker); the number of writes before the
    controller dies for `die`."""

    at: float
    what: What
    target: str
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of the world in seconds; latencies are means of an exponential distribution."""

    session: float = 10.0
    max_shutdown: float = 120.0
    poll: float = 1.0  # between two polls of an agent
    latency: float = 0.01
    under_load: float = 0.0  # added latency for each 100 % of utilization
    backlog: float = 8.0  # between two searches for work
    batch: float = 2.0  # of a run without rows
    report: float = 30.0  # between two load reports


@dataclass(frozen=True, slots=True)
class World:
    """One world. `drift` is the size of each partition's random walk a minute.

    `initial` is partition -> owner at the start; empty: the assignor places them. Measures begin at `begin`. The happenings
    end early enough that owners no longer change at `duration`.
    """

    name: str
    team: tuple[Worker, ...]
    partitions: tuple[Partition, ...]
    happenings: tuple[Happening, ...] = ()
    duration: float = 900.0
    begin: float = 60.0
    initial: Mapping[str, str] = field(default_factory=dict)
    timing: Timing = Timing()
    policy: Policy = field(default_factory=Policy)
    utilization: float = 0.6  # mean at the start
    drift: float = 0.0
    skew: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # own clock: offset, rate

    @property
    def later(self) -> frozenset[str]:
        """Return the workers that join after the start."""
        return frozenset(h.target for h in self.happenings if h.what == "join")
