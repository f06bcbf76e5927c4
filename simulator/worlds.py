"""The worlds: known problems of such systems and complaints of their users, each small enough to be read."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from rota.core import Partition, Policy, Worker
from rota.errors import ConfigError
from simulator.world import Happening, Timing, What, World

OVER_PLACED = {"w01": 20, "w02": 51, "w03": 52, "w04": 80, "w05": 80, "w06": 80}


def make_team(count: int) -> tuple[Worker, ...]:
    """Return the workers w01, w02, ..."""
    return tuple(Worker(f"w{i:02}") for i in range(1, count + 1))


def make_partitions(
    count: int, sources: int = 1, weights: Callable[[int], float] = lambda _: 1.0
) -> tuple[Partition, ...]:
    """Return `count` partitions, spread over `sources`; `weights` returns the load of each."""
    each = count // sources
    names = ["orders", "clicks", "trips", "mails"][:sources]
    return tuple(
        Partition(f"{n}:{i:02}", source=n, load=weights(s * each + i)) for s, n in enumerate(names) for i in range(each)
    )


def _lognormal(seed: int, sigma: float) -> Callable[[int], float]:
    rng = Random(seed)
    weights = [rng.lognormvariate(0, sigma) for _ in range(512)]
    return lambda i: weights[i]


def _make(
    name: str, team: int, parts: int | tuple[Partition, ...], duration: float, *happenings: Happening, **more: Any
) -> World:
    """Return a world; if `parts` is a number, its partitions are those of two sources."""
    partitions = make_partitions(parts, 2) if isinstance(parts, int) else parts
    return World(name, make_team(team), partitions, happenings, duration, **more)


def _over_placed() -> World:
    """The article's case: workers at 20, 51, 52, 80, 80 and 80 %."""
    initial = {f"trips:{worker[1:]}{i}": worker for worker in OVER_PLACED for i in range(10)}
    parts = tuple(Partition(p, source="trips", load=OVER_PLACED[worker] / 10) for p, worker in initial.items())
    more = {"begin": 30, "initial": initial, "utilization": sum(OVER_PLACED.values()) / 600}
    return _make("over-placement", 6, parts, 1_800, **more)


def _hiccups() -> World:
    """Each worker leaves in turn, and pauses for some seconds all the time, never long enough to lose a session."""
    rng = Random(5)
    turns = [
        Happening(60 + 14 * i + rng.uniform(0, 5), "restart" if i % 2 else "leave", f"w{1 + i // 2 % 6:02}")
        for i in range(24)
    ]
    stalls = [
        Happening(60 + rng.uniform(0, 350), "freeze", f"w{rng.randint(1, 6):02}", rng.uniform(2, 9.5))
        for _ in range(150)
    ]
    happenings = sorted(turns + stalls, key=lambda h: h.at)
    return _make("hiccups", 6, 30, 600, *happenings, timing=Timing(latency=0.3, max_shutdown=20))


def _list_worlds() -> Iterator[World]:
    # Nine workers join three within 20 s.
    yield _make("join-storm", 12, 48, 600, *(Happening(120 + 2.2 * i, "join", f"w{i + 4:02}") for i in range(9)))

    # Each of six workers leaves in order and is back 30 s later.
    turns: tuple[tuple[int, What], ...] = ((120, "leave"), (150, "restart"))
    restarts = (Happening(at + 90 * i, what, f"w{i + 1:02}") for i in range(6) for at, what in turns)
    yield _make("rolling-restart", 6, 48, 960, *restarts)

    # One of five workers dies and does not come back.
    yield _make("crash", 5, 48, 600, Happening(120, "crash", "w02"))

    # A worker joins; during the handovers, first a giving worker dies, then a taking one.
    yield _make(
        "crash-handover", 7, 48, 720,
        Happening(120, "join", "w06"), Happening(121.5, "crash", "w01"),
        Happening(240, "join", "w07"), Happening(242, "crash", "w06"),
    )  # fmt: skip

    # One slow worker loses its session every 75 s, while its runs continue as zombies.
    freezes = (Happening(120 + 75 * i, "freeze", "w03", 25) for i in range(6))
    slow = Happening(60, "lag", "w03", 40.0)
    yield _make("flapping", 5, 40, 900, slow, *freezes, timing=Timing(max_shutdown=40))

    # Nothing changes, but every answer is late, and later for a busier worker.
    yield _make("latency", 10, make_partitions(100), 900, timing=Timing(latency=0.2, under_load=1.0))

    # Clocks that are 400 s apart and run at other rates; one worker dies, one joins.
    skew = {"w01": (200.0, 1.0), "w02": (-200.0, 1.0), "w03": (0.0, 1.02), "w04": (4_000.0, 0.98)}
    yield _make("clock-skew", 6, 48, 660, Happening(120, "crash", "w05"), Happening(300, "join", "w06"), skew=skew)

    yield _over_placed()

    # One partition becomes 8 times as heavy, later another.
    heavier = Happening(180, "load", "orders:03", 8.0), Happening(900, "load", "clicks:11", 8.0)
    yield _make("hot-partition", 6, 48, 1_800, *heavier, utilization=0.45)

    # Skewed loads drift.
    skewed = make_partitions(80, 1, _lognormal(7, 0.8))
    yield _make("drifting-loads", 8, skewed, 1_800, drift=0.06, utilization=0.5)

    # A worker is drained, and uncordoned 300 s later.
    yield _make("drain", 5, 40, 720, Happening(120, "drain", "w02"), Happening(420, "undrain", "w02"))

    # A worker gets a cap of 3, which is removed 300 s later.
    yield _make("cap-cut", 5, 40, 720, Happening(120, "cap", "w01", 3), Happening(420, "cap", "w01", -1))

    yield _hiccups()

    # The controller dies between two writes of a publication: before its targets, or between them and the head. When the
    # next controller observes, the unpublished target is no longer right.
    yield _make(
        "controller-dies", 6, 48, 840,
        Happening(119.9, "die", "controller", 3),  # after control, clock and targets, before the head
        Happening(120, "crash", "w02"), Happening(132, "restart", "w02"),
        Happening(239.9, "die", "controller", 2),  # before the targets
        Happening(240, "leave", "w04"), Happening(252, "restart", "w04"),
        Happening(359.9, "die", "controller", 1),  # after control
        Happening(360, "join", "w06"),
        Happening(479.9, "die", "controller", 3), Happening(480, "drain", "w05"),
        # the next controller wants the former target: the targets of the dead controller must not become valid
        Happening(483, "undrain", "w05"),
        Happening(570, "cap", "w05", 7),  # moves one partition: most targets do not change
        Happening(660, "cap", "w05", -1),
    )  # fmt: skip

    # A budget of one move, a cooldown of 8 s, a grace of 40 s: one worker joins, one crashes and is back in time, one
    # crashes and is back later, one is drained. The cap of w04 is its fair share.
    paced = _make(
        "paced", 6, 36, 900,
        Happening(120, "join", "w06"),
        Happening(240, "crash", "w02"), Happening(265, "restart", "w02"),
        Happening(360, "crash", "w03"), Happening(480, "restart", "w03"),
        Happening(600, "drain", "w05"), Happening(720, "undrain", "w05"),
        policy=Policy(budget=1, cooldown=8, grace=40),
    )  # fmt: skip
    yield replace(paced, team=tuple(replace(w, max_partitions=7) if w.id == "w04" else w for w in paced.team))


WORLDS = {one.name: one for one in _list_worlds()}


def world(name: str) -> World:
    """Return the world of this name. Raises ConfigError, which lists the worlds."""
    if name not in WORLDS:
        raise ConfigError(f"Unknown world {name!r}. Known: {', '.join(WORLDS)}")
    return WORLDS[name]
