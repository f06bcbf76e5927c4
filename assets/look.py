"""A look at a whole pipeline: the evaluation of each of its checks, whoever consumed what.

Law: the look takes what it cannot see in one instant from the look before it: which versions of the log were read and what
was wrong in them, since when a partition has no owner, since when its lag does not fall. Without that, as at the first look
and at a click, it reads the whole log and waits anew. Durations are on ZooKeeper's clock.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from rota.dagster.assets import checks
from rota.dagster.assets.failure import in_one_line
from rota.dagster.assets.names import Names
from rota.dagster.resources.zookeeper import ZooKeeperResource
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.eligibility import Facts

UNOWNED = 120.0  # seconds without a live owner that a hand-over may take, beyond the grace of the group
BEHIND = 600.0  # seconds in which lag has to fall
KEPT = 1000  # partitions of which a look remembers since when; the rest is remembered once these are well
OVERLAP = 500  # versions of the log before the newest that every look reads, too

Lag = tuple[float, int, int]  # since when, lag then, offset then


@dataclass(frozen=True, slots=True)
class Memory:
    """What one look leaves to the next. It fits into a sensor's cursor."""

    upto: int = -1  # newest version of the log that was read
    stale: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, str] = field(default_factory=dict)
    unowned: Mapping[str, float] = field(default_factory=dict)
    behind: Mapping[str, Lag] = field(default_factory=dict)
    at: float = 0.0  # when the look ended, on the clock of who looked, in seconds since 1970
    took: float = 0.0  # seconds

    def dump(self) -> str:
        """The memory as JSON."""
        return json.dumps(asdict(self))


def load_memory(text: str | None) -> Memory:
    """The memory of a dump. Without one, and of one that another version of rota wrote: that of a first look."""
    try:
        said = json.loads(text or "{}")
        return Memory(**{**said, "behind": {p: (*lag,) for p, lag in said.get("behind", {}).items()}})
    except (ValueError, TypeError, AttributeError):
        return Memory()


def look(
    tree: "GroupState", pipeline: Pipeline, names: Names, memory: Memory
) -> tuple[list[dg.AssetCheckEvaluation], Memory]:
    """The evaluations in the order of `checks.list_checks`, and the memory for the next look. Raises RotaError."""
    from rota.backlog import measure_lags
    from rota.eligibility import judge, read_facts
    from rota.registry import open_source, open_tables
    from rota.rewritten import explain_rewritten

    source, main = open_source(pipeline), open_tables(pipeline, tree.group, tree.meta().id).main
    keys = tree.partitions().get(pipeline.name)
    ids = tuple(map(pipeline.partition, keys.keys)) if keys else ()
    facts, now = read_facts(tree, ids), tree.store.now()
    past = main.read_log(memory.upto - OVERLAP if memory.upto > OVERLAP else -1)
    newest = max((one.version for one in past), default=-1)
    if newest < memory.upto:  # another table stands there: what was found is not of this one
        memory, past = Memory(unowned=memory.unowned, behind=memory.behind), main.read_log()
        newest = max((one.version for one in past), default=-1)
    stale, gaps = {**memory.stale, **checks.find_stale(past)}, {**memory.gaps, **checks.find_gaps(past)}
    unowned = remember_unowned(facts, judge(facts).obstacles, memory.unowned, now)
    lags = measure_lags(source, facts.checkpoints, (p for p in ids if p not in facts.unreadable))
    behind = remember_behind(_find_lags(lags, facts, unowned), memory.behind, now)
    patience = UNOWNED + tree.meta().grace
    parked, final = checks.find_parked(tree.parked(), pipeline)
    growing, standing = find_behind(behind, facts, now)
    wrong: list[tuple[Mapping[str, str], dg.AssetCheckSeverity]] = [
        (stale, checks.ERROR),
        ({p: why for p, (since, why) in unowned.items() if now - since >= patience}, checks.ERROR),
        (gaps, checks.ERROR),
        (parked, checks.ERROR if final else checks.WARN),
        (explain_rewritten(source, past), checks.ERROR),
        (source.list_ignored(), checks.ERROR),
        (checks.find_ahead(facts.checkpoints, main.read_positions(ids)), checks.ERROR),
        ({**growing, **standing}, checks.ERROR if standing else checks.WARN),
    ]
    specs = checks.list_checks(pipeline, names)
    said = [checks.evaluate(spec, found, ids, severity) for spec, (found, severity) in zip(specs, wrong, strict=True)]
    left = Memory(
        newest,
        stale,
        gaps,
        {p: since for p, (since, _) in list(unowned.items())[:KEPT]},
        dict(list(behind.items())[:KEPT]),
    )
    return said, left


def remember_unowned(
    facts: "Facts", obstacles: Mapping[str, str], before: Mapping[str, float], now: float
) -> dict[str, tuple[float, str]]:
    """Partition without a live owner -> since when it was seen so, and why. Those that were seen first stand first."""
    found: dict[str, tuple[float, str]] = {}
    for p in facts.partitions:
        own = facts.owns.get(p)
        if own is None or own.incarnation not in facts.lives:
            found[p] = min(before.get(p, now), now), obstacles.get(p) or "nobody owns it"
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


def _find_lags(
    seen: Mapping[str, tuple[int, int]], facts: "Facts", unowned: Mapping[str, object]
) -> dict[str, tuple[int, int]]:
    """The lags that nothing else explains: what is parked or has no owner is told by its own check."""
    return {p: at for p, at in seen.items() if p not in facts.parked and p not in unowned}


def remember_behind(seen: Mapping[str, tuple[int, int]], before: Mapping[str, Lag], now: float) -> dict[str, Lag]:
    """Partition with lag -> since when its lag has not fallen, with the lag and the offset of then."""
    found: dict[str, Lag] = {}
    for p, (at, end) in seen.items():
        if end > at:
            since, lag, offset = before.get(p, (now, end - at, at))
            falls = at > offset and end - at <= lag
            found[p] = (now, end - at, at) if falls or since > now else (since, lag, offset)
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


def find_behind(behind: Mapping[str, Lag], facts: "Facts", now: float) -> tuple[dict[str, str], dict[str, str]]:
    """Of those whose lag has not fallen for `BEHIND` seconds: whose lag grows, and who stands still."""
    growing: dict[str, str] = {}
    standing: dict[str, str] = {}
    for p, (since, lag, offset) in behind.items():
        if now - since >= BEHIND:
            moved = p in facts.checkpoints and facts.checkpoints[p].record.offset > offset
            if moved:
                growing[p] = f"its lag was {lag} and has grown for {BEHIND / 60:.0f} minutes. Add a worker"
            else:
                standing[p] = f"it stands at {offset} with lag for {BEHIND / 60:.0f} minutes. Look at its runs"
    return growing, standing


def make_checks(pipeline: Pipeline, names: Names) -> dg.AssetChecksDefinition:
    """The checks of a pipeline, for those who click on them. The sensor of the pipeline's checks reports them by itself.

    The step reads no asset of its run, so a click on "Materialize" does not skip it where nothing is new.
    """
    specs = checks.list_checks(pipeline, names)

    @dg.op(
        name=names.checks(pipeline.name),
        out={spec.get_python_identifier(): dg.Out(dg.Nothing, is_required=False) for spec in specs},
    )
    def check(context: dg.OpExecutionContext, rota_zookeeper: ZooKeeperResource) -> Iterator[object]:
        with in_one_line(), rota_zookeeper.tree(pipeline.group) as tree:
            said, _ = look(tree, pipeline, names, Memory())
        for one in said:
            if one.asset_check_key in context.selected_asset_check_keys:
                yield checks.make_result(one)

    made: dg.AssetChecksDefinition = dg.AssetChecksDefinition.create(
        keys_by_input_name={},
        node_def=check,
        check_specs_by_output_name={spec.get_python_identifier(): spec for spec in specs},
        can_subset=True,
    )
    return made
