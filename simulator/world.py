"""What a simulated world is: a team, its partitions, and what happens when. Values only."""

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
    """At `at` seconds: `what` strikes `target` (a worker; a partition for `load`).

    `crash` is the end of a host: agent and runs. `kill` is that of the agent alone, whose supervisor ends its session at
    once. `value`: seconds for `freeze` (agent and session make no progress, its runs do) and `cut` (no network), partitions
    for `cap` (negative: none), a factor for `load` and for `lag` (of every latency of that worker), the writes that the
    controller still does for `die`."""

    at: float
    what: What
    target: str
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How fast the world is, in seconds; latencies are means of an exponential."""

    session: float = 10.0
    max_shutdown: float = 120.0
    poll: float = 1.0  # of an agent that nothing woke
    latency: float = 0.01
    under_load: float = 0.0  # more latency for each 100 % of utilization above none
    backlog: float = 8.0  # between two looks for work
    batch: float = 2.0  # of a run without rows
    report: float = 30.0  # between two load reports


@dataclass(frozen=True, slots=True)
class World:
    """One world. `drift` is the size of each partition's random walk a minute.

    `initial` is where the partitions are at the start; empty: where the assignor puts them. Measures begin at `begin`;
    nothing happens any more after `quiet`, so everything must be settled at `duration`.
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
        """The workers that are not there at the start."""
        return frozenset(h.target for h in self.happenings if h.what == "join")
