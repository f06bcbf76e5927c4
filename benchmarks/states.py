"""The states that are timed.

Law: a state is a balanced group and one event, and every engine of a table plans the same state. rota gets a Snapshot, a
peer gets objects of its own. Neither reading nor printing is timed.
"""

from dataclasses import dataclass, replace

import numpy as np

from rota.core.values import UNOWNED, Codes, Partition, Snapshot, Worker

EVENTS = ("fresh", "noop", "add1", "sub1", "add10")
WORDS = {"fresh": "fresh", "noop": "no-op", "add1": "+1 worker", "sub1": "-1 worker", "add10": "+10 % workers"}


@dataclass(frozen=True, slots=True)
class Case:
    """One state: P partitions in `sources` sources over W workers, and an event. With an `overlap` of -1 each worker may
    hold each partition. Otherwise workers alternate between two groups, each for half of the sources, and both groups
    may hold `overlap` of them."""

    partitions: int
    workers: int
    event: str
    sources: int = 1
    overlap: int = -1

    @property
    def name(self) -> str:
        """The state in words."""
        groups = f", two groups overlapping by {self.overlap}" if self.overlap >= 0 else ""
        sources = "one source" if self.sources == 1 else f"{self.sources} sources"
        return f"{self.partitions:,} x {self.workers:,}, {sources}{groups}: {WORDS[self.event]}"

    @property
    def warm_up(self) -> tuple[int, int]:
        """How many rounds of a JVM are not timed, and how many are."""
        if self.overlap >= 0:
            return (1, 1) if self.event != "fresh" else (3, 3)
        if self.partitions >= 1_000_000:
            return 12, 5
        return (60, 7) if self.partitions >= 100_000 else (300, 15)


def list_grid(quick: bool) -> list[Case]:
    """The states of the speed table."""
    sizes = [(10_000, 100)] if quick else [(10_000, 100), (1_000_000, 2_000)]
    cases = [Case(p, w, event, sources) for p, w in sizes for sources in (1, 10) for event in EVENTS]
    if not quick:
        cases.append(Case(1_000_000, 10_000, "add1"))
    return cases + [Case(20_000, 500, event, 100, 10) for event in ("fresh", "add1")]


def list_growth() -> list[Case]:
    """The states of the picture: one more worker, for growing P and W."""
    return [
        Case(p, w, "add1")
        for p, w in (
            *((p, 100) for p in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)),
            *((1_000_000, w) for w in (10, 1_000, 10_000)),
            *((100_000, w) for w in (10, 30, 300, 1_000, 3_000, 10_000)),
        )
    ]


def _build_worker(index: int, case: Case) -> Worker:
    if case.overlap < 0:
        return Worker(f"w{index:05}")
    return Worker(f"w{index:05}", labels={"even" if index % 2 == 0 else "odd": "yes"})


def _build_labels(source: int, case: Case) -> dict[str, str]:
    half = case.sources // 2
    low, high = half - case.overlap // 2, half + case.overlap - case.overlap // 2
    if low <= source < high:
        return {}
    return {"even": "yes"} if source < low else {"odd": "yes"}


def _build_snapshot(case: Case, workers: list[Worker], owner: Codes, gone: tuple[str, ...] = ()) -> Snapshot:
    each = case.partitions // case.sources
    names = tuple(f"t{s:03}" for s in range(case.sources))
    ids = [f"{names[s]}-{n:07}" for s in range(case.sources) for n in range(each)]
    if case.overlap < 0:
        source = np.repeat(np.arange(case.sources, dtype=np.int32), each)
        alike = Snapshot.of(workers, [Partition(names[0], name) for name in names[:1]], {})
        many, unknown = np.zeros(len(ids), np.int32), np.full(len(ids), np.nan)
        return replace(
            alike, partition_ids=ids, owner=owner, load=np.ones(len(ids)), source=source, sources=names, kind=many,
            rate=unknown, throughput=unknown, gone=gone,
        )  # fmt: skip
    partitions = [
        Partition(ids[s * each + n], names[s], requires=_build_labels(s, case))
        for s in range(case.sources)
        for n in range(each)
    ]
    code = {w.id: i for i, w in enumerate(workers)}
    names_of = [w.id for w in workers]
    owners = {ids[i]: names_of[c] if c >= 0 else gone[-2 - c] for i, c in enumerate(owner.tolist()) if c != UNOWNED}
    assert code.keys().isdisjoint(gone)
    return Snapshot.of(workers, partitions, owners)


def build_group(case: Case) -> Snapshot:
    """A group of W workers whose partitions have no owner yet."""
    return _build_snapshot(
        case, [_build_worker(i, case) for i in range(case.workers)], np.full(case.partitions, UNOWNED, np.int32)
    )


def build_state(case: Case, owner: Codes) -> Snapshot:
    """The state that is timed: `owner` is the target of the group, and then the event happened."""
    count = case.workers
    more = {"add1": 1, "add10": max(1, count // 10)}.get(case.event, 0)
    workers = [_build_worker(i, case) for i in range(count + more)]
    if case.event != "sub1":
        return _build_snapshot(case, workers, owner.copy())
    lost = count // 2
    gone = workers.pop(lost).id
    moved = owner - (owner > lost)
    moved[owner == lost] = -2
    return _build_snapshot(case, workers, moved.astype(np.int32), (gone,))


YARDSTICK = (100, 10, 2, 0.5)  # partitions, workers, seed, sigma


def build_yardstick(size: tuple[int, int, int, float] = YARDSTICK) -> Snapshot:
    """Lognormal weights, placed longest first, then each times U[0.7, 1.4]. The imbalance is 1.1008 at the default size."""
    count, team, seed, sigma = size
    rng = np.random.default_rng(seed)
    weight = rng.lognormal(0, sigma, count)
    loads = np.zeros(team)
    owner = np.zeros(count, np.int32)
    for i in np.argsort(-weight, kind="stable").tolist():
        owner[i] = int(loads.argmin())
        loads[owner[i]] += weight[i]
    weight = weight * rng.uniform(0.7, 1.4, count)
    partitions = [Partition(f"p{i:06}", load=float(x)) for i, x in enumerate(weight)]
    workers = [Worker(f"w{i:05}") for i in range(team)]
    return Snapshot.of(workers, partitions, {f"p{i:06}": f"w{c:05}" for i, c in enumerate(owner.tolist())})
