"""The worlds: what the seeds warn of and what users of such systems complain about, each small enough to be read."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from rota.core import Partition, Policy, Worker
from rota.errors import ConfigError
from rota.sim.world import Happening, Timing, World


def make_team(count: int) -> tuple[Worker, ...]:
    """Workers w01, w02, ..."""
    return tuple(Worker(f"w{i:02}") for i in range(1, count + 1))


def make_partitions(
    count: int, sources: int = 1, weights: Callable[[int], float] = lambda _: 1.0
) -> tuple[Partition, ...]:
    """So many partitions, spread over so many sources; `weights` gives the load of each."""
    each = count // sources
    names = ["orders", "clicks", "trips", "mails"][:sources]
    return tuple(
        Partition(f"{n}:{i:02}", source=n, load=weights(s * each + i)) for s, n in enumerate(names) for i in range(each)
    )


def _lognormal(seed: int, sigma: float) -> Callable[[int], float]:
    rng = Random(seed)
    weights = [rng.lognormvariate(0, sigma) for _ in range(512)]
    return lambda i: weights[i]


def join_storm() -> World:
    """Three workers, then nine more within twenty seconds."""
    joins = tuple(Happening(120 + 2.2 * i, "join", f"w{i + 4:02}") for i in range(9))
    later = frozenset(h.who for h in joins)
    return World(
        "join-storm",
        "nine workers join three within 20 s",
        make_team(12),
        make_partitions(48, 2),
        joins,
        600,
        later=later,
    )


def rolling_restart() -> World:
    """Each of six workers leaves politely and is back 30 s later."""
    happenings = tuple(
        h
        for i in range(6)
        for h in (Happening(120 + 90 * i, "leave", f"w{i + 1:02}"), Happening(150 + 90 * i, "restart", f"w{i + 1:02}"))
    )
    return World(
        "rolling-restart",
        "each of six workers leaves and is back 30 s later",
        make_team(6),
        make_partitions(48, 2),
        happenings,
        960,
    )


def crash() -> World:
    """One of five dies and does not come back."""
    return World(
        "crash",
        "one of five workers dies",
        make_team(5),
        make_partitions(48, 2),
        (Happening(120, "crash", "w02"),),
        600,
    )


def crash_in_hand_over() -> World:
    """A worker joins; while partitions change hands, a giver dies, then a taker."""
    happenings = (
        Happening(120, "join", "w06"),
        Happening(121.5, "crash", "w01"),
        Happening(240, "join", "w07"),
        Happening(242, "crash", "w06"),
    )
    later = frozenset({"w06", "w07"})
    return World(
        "crash-handover",
        "a giver dies during a hand-over, then a taker",
        make_team(7),
        make_partitions(48, 2),
        happenings,
        720,
        later=later,
    )


def flapping() -> World:
    """One slow worker loses its session again and again, while its runs go on as zombies."""
    freezes = tuple(Happening(120 + 75 * i, "freeze", "w03", 25) for i in range(6))
    slow = (Happening(60, "lag", "w03", 40.0),)
    return World(
        "flapping",
        "one slow worker loses its session every 75 s",
        make_team(5),
        make_partitions(40, 2),
        slow + freezes,
        900,
        timing=Timing(max_shutdown=40),
    )


def latency_under_load() -> World:
    """Nothing changes, but every answer is late, the later the busier its worker."""
    timing = Timing(latency=0.2, under_load=1.0)
    return World(
        "latency",
        "every answer is late, and nothing changes",
        make_team(10),
        make_partitions(100, 1),
        (),
        900,
        timing=timing,
    )


def clock_skew() -> World:
    """Clocks that are minutes apart and run at other rates; one worker dies, one joins."""
    skew = {"w01": (200.0, 1.0), "w02": (-200.0, 1.0), "w03": (0.0, 1.02), "w04": (4_000.0, 0.98)}
    happenings = (Happening(120, "crash", "w05"), Happening(300, "join", "w06"))
    return World(
        "clock-skew",
        "clocks are 400 s apart",
        make_team(6),
        make_partitions(48, 2),
        happenings,
        660,
        later=frozenset({"w06"}),
        skew=skew,
    )


OVER_PLACED = {"w01": 20, "w02": 51, "w03": 52, "w04": 80, "w05": 80, "w06": 80}


def over_placement() -> World:
    """The article's case: workers at 20, 51, 52, 80, 80 and 80 %."""
    parts, initial = [], {}
    for worker, score in OVER_PLACED.items():
        for i in range(10):
            name = f"trips:{worker[1:]}{i}"
            parts.append(Partition(name, source="trips", load=score / 10))
            initial[name] = worker
    return World(
        "over-placement",
        "workers at 20, 51, 52, 80, 80, 80 %",
        make_team(6),
        tuple(parts),
        (),
        1_800,
        begin=30,
        initial=initial,
        utilization=sum(OVER_PLACED.values()) / 600,
    )


def hot_partition() -> World:
    """One partition becomes eight times as heavy, later another."""
    happenings = (Happening(180, "load", "orders:03", 8.0), Happening(900, "load", "clicks:11", 8.0))
    return World(
        "hot-partition",
        "one partition becomes 8 times as heavy, later another",
        make_team(6),
        make_partitions(48, 2),
        happenings,
        1_800,
        utilization=0.45,
    )


def drifting() -> World:
    """Skewed loads that wander."""
    return World(
        "drifting-loads",
        "skewed loads wander",
        make_team(8),
        make_partitions(80, 1, _lognormal(7, 0.8)),
        (),
        1_800,
        drift=0.06,
        utilization=0.5,
    )


def drain() -> World:
    """A worker is drained for maintenance and comes back."""
    happenings = (Happening(120, "drain", "w02"), Happening(420, "undrain", "w02"))
    return World(
        "drain",
        "a worker is drained, and allowed again 300 s later",
        make_team(5),
        make_partitions(40, 2),
        happenings,
        720,
    )


def cap_cut() -> World:
    """A worker may hold only three from now on; then it may hold all again."""
    happenings = (Happening(120, "cap", "w01", 3), Happening(420, "cap", "w01", -1))
    return World(
        "cap-cut",
        "a worker may hold only 3, and all again 300 s later",
        make_team(5),
        make_partitions(40, 2),
        happenings,
        720,
    )


def hiccups() -> World:
    """Everybody comes and goes, and stands still for some seconds all the time, never long enough to lose a session."""
    rng = Random(5)
    turns = [
        Happening(60 + 14 * i + rng.uniform(0, 5), "restart" if i % 2 else "leave", f"w{1 + i // 2 % 6:02}")
        for i in range(24)
    ]
    stalls = [
        Happening(60 + rng.uniform(0, 350), "freeze", f"w{rng.randint(1, 6):02}", rng.uniform(2, 9.5))
        for _ in range(150)
    ]
    return World(
        "hiccups",
        "everybody leaves in turn, and stands still for seconds all the time",
        make_team(6),
        make_partitions(30, 2),
        tuple(sorted(turns + stalls, key=lambda h: h.at)),
        600,
        timing=Timing(latency=0.3, max_shutdown=20),
    )


def controller_dies() -> World:
    """The controller dies between two writes of a publication: before its targets, or between them and the flip; what
    it wanted is no longer right when the next one looks."""
    happenings = (
        Happening(119.9, "die", "controller", 3),  # after control, clock and targets, before the head
        Happening(120, "crash", "w02"),
        Happening(132, "restart", "w02"),
        Happening(239.9, "die", "controller", 2),  # before the targets
        Happening(240, "leave", "w04"),
        Happening(252, "restart", "w04"),
        Happening(359.9, "die", "controller", 1),  # control is taken, nothing is written
        Happening(360, "join", "w06"),
        Happening(479.9, "die", "controller", 3),
        Happening(480, "drain", "w05"),
        # the next one wants what there was: what the dead one wrote must not come alive
        Happening(483, "undrain", "w05"),
        Happening(570, "cap", "w05", 7),  # moves one partition: most targets stay as they are
        Happening(660, "cap", "w05", -1),
    )
    return World(
        "controller-dies",
        "the controller dies between two writes of a publication",
        make_team(6),
        make_partitions(48, 2),
        happenings,
        840,
        later=frozenset({"w06"}),
    )


def paced() -> World:
    """At most one voluntary move every 8 s, and 40 s in which a worker may return: one joins, one crashes and is back in
    time, one crashes and is not, one is drained. w04 may hold only as many as there are for it."""
    team = tuple(replace(w, max_partitions=7) if w.id == "w04" else w for w in make_team(6))
    happenings = (
        Happening(120, "join", "w06"),
        Happening(240, "crash", "w02"),
        Happening(265, "restart", "w02"),
        Happening(360, "crash", "w03"),
        Happening(480, "restart", "w03"),
        Happening(600, "drain", "w05"),
        Happening(720, "undrain", "w05"),
    )
    return World(
        "paced",
        "one voluntary move in 8 s, 40 s to return: one joins, one is back in time, one is not, one is drained",
        team,
        make_partitions(36, 2),
        happenings,
        900,
        later=frozenset({"w06"}),
        policy=Policy(budget=1, cooldown=8, grace=40),
    )


WORLDS: dict[str, Callable[[], World]] = {
    "join-storm": join_storm,
    "rolling-restart": rolling_restart,
    "crash": crash,
    "crash-handover": crash_in_hand_over,
    "flapping": flapping,
    "latency": latency_under_load,
    "clock-skew": clock_skew,
    "over-placement": over_placement,
    "hot-partition": hot_partition,
    "drifting-loads": drifting,
    "drain": drain,
    "cap-cut": cap_cut,
    "hiccups": hiccups,
    "controller-dies": controller_dies,
    "paced": paced,
}


def world(name: str) -> World:
    """The world of this name. Raises ConfigError naming those that exist."""
    if name not in WORLDS:
        raise ConfigError(f"Unknown world {name!r}. Known: {', '.join(WORLDS)}")
    return WORLDS[name]()
