"""Finds the needs of a group: a pure function of one observation and of the memory of the one before.

`rota status`, `why` and `check`, the lines of `rota up`, the checks on Dagster's page and the alerts report its result.

Laws:
1. A need exists if the observation has it. Its age comes from stored times and from the memory, which holds nothing else.
   A clock that is set forward makes no need older: a gap between two observations adds at most `UNSEEN` seconds.
2. A need that may heal needs no operator for its patience: until then it is reported and `person` is false.
3. A part of the group that does not answer, or cannot be read, is a need.
4. Each need states its subject, the reason and the next step. A partition has one need for one cause.
5. `rota.face.causes` alone decides patience, steps, and which need explains another.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from rota.coordination.parking import is_waiting
from rota.coordination.records import Parked
from rota.core.constraints import matches
from rota.core.reasons import explain_unplaceable
from rota.core.values import Kind
from rota.errors import ForeignTable, Unavailable, counted
from rota.face.causes import BEHIND, CAUSES, IDLE, RANKS, make_need
from rota.face.dagster_state import FailedRuns
from rota.face.memory import FIRST, Lag, Memory
from rota.face.need import Need
from rota.face.seen import OPEN, PipelineSeen, Seen
from rota.ids import pipeline_of, quote, worker_of
from rota.run.eligibility import Eligibility, judge
from rota.run.restored import explain_older_table, explain_older_zookeeper

SHARED = (Unavailable.__name__,)  # kinds of errors that many sensors report at a time, with different texts
FAILURES = 3  # failures in a row, at one offset or of runs, after which the cause does not heal itself
MAX_REMEMBERED = 1000  # times that a memory holds, the oldest first


def find_needs(seen: Seen, before: Memory = FIRST) -> tuple[tuple[Need, ...], Memory]:
    """Return the needs, those of an operator first, and the memory for the next observation.

    Args:
        seen: the observation.
        before: the memory of the observation before.
    """
    judged, before = judge(seen.facts), before.shorten_pause(seen.now)
    behind = _remember_behind(seen, judged, before.behind)
    found: list[Need] = []
    since: dict[str, float] = {}
    explaining: dict[
        tuple[str, str], list[int]
    ] = {}  # row and scope -> indices in `found` of the needs that explain it
    for one in sorted(_list_needs(seen, judged, behind), key=lambda need: RANKS[need.row]):
        begun = min(before.since.get(one.key, seen.now), seen.now - one.lasted)
        need = replace(one, since=begun, due=begun + one.patience)
        places = [place for scope in {need.scope, ""} for place in explaining.get((need.row, scope), ())]
        covered = all(need.row in CAUSES[found[place].row].covers for place in places)
        if covered:
            since[need.key] = begun
            for place in places:
                found[place] = replace(found[place], due=min(found[place].due, need.due))
        if not places:
            for row in (*CAUSES[need.row].explains, *CAUSES[need.row].covers):
                explaining.setdefault((row, need.scope), []).append(len(found))
            found.append(need)
    needs = [replace(need, person=seen.now >= need.due) for need in found]
    oldest = dict(sorted(since.items(), key=lambda item: item[1])[:MAX_REMEMBERED])
    kept = dict(sorted(behind.items(), key=lambda item: item[1][0])[:MAX_REMEMBERED])
    return tuple(sorted(needs, key=lambda need: not need.person)), Memory(oldest, kept, seen.now)


def _list_needs(seen: Seen, judged: Eligibility, behind: Mapping[str, Lag]) -> Iterator[Need]:
    """Yield all needs, also those that another one explains."""
    yield from find_of_group(seen)
    yield from _find_of_dagster(seen)
    yield from find_of_partitions(seen)
    for one in seen.pipelines:
        yield from _find_of_pipeline(seen, one, judged)
    yield from _find_behind(behind, seen)


def find_of_group(seen: Seen) -> Iterator[Need]:
    """Yield the needs of the group as a whole, of its workers and of its records."""
    if seen.facts.partitions and not seen.workers:
        yield make_need("workers", seen.group, "no worker is live", option=_make_option(seen.group))
    for worker, protocol in seen.joined_under.items():
        if protocol != seen.protocol:
            why = f"it joined under {protocol!r}, and the group's protocol is {seen.protocol!r}: newly joined workers wait"
            yield make_need("protocol", worker, why)
    for worker, why in seen.silent.items():
        yield make_need("spark", worker, f"its Spark does not answer ({why})")
    for worker, why in seen.unable.items():
        yield make_need("unable", worker, f"{why}, so it owns nothing")
    for worker in seen.twice:
        yield make_need("twice", worker, "a second process has its id and waits")
    for path, why in seen.records.items():
        yield make_need("target" if f"/assign/{path.rpartition('/')[2]}" in path else "record", path, why)
    for file, why in seen.refused.items():
        yield make_need("refused", file, why)


def _make_option(group: str) -> str:
    return "" if group == "default" else f" --group {group}"


def _find_of_dagster(seen: Seen) -> Iterator[Need]:
    """Yield what keeps Dagster from deciding and launching. If Dagster does not answer, that is all."""
    there = seen.dagster
    if there is None:
        return
    if there.silent:
        yield make_need("silent", "Dagster", there.silent)
    for name, why in there.locations.items():
        yield make_need("location", f"code location {name}", why)
    for name, lasted in there.lost.items():
        yield make_need("lost", f"code location {name}", "its code server does not answer", lasted=lasted)
    for sensor in there.sensors:
        kind, name, about = "dagster", f"sensor {sensor.name}", ""
        if sensor.pipeline:
            kind, name, about = "pipeline", sensor.pipeline, f"{name}: "
        if not sensor.on:
            yield make_need("off", name, f"{about}it is turned off", kind=kind)
        elif sensor.failing:
            which = sensor.kind if sensor.kind in SHARED else sensor.why
            yield make_need("fails", name, about + sensor.why, kind=kind, lasted=sensor.failing, which=which)
    quiet = min((sensor.quiet for sensor in there.sensors if sensor.on), default=0.0)
    if quiet >= IDLE:
        yield make_need("daemon", "Dagster", f"no sensor has begun a tick for {quiet:.0f} s", lasted=quiet)
    for file, why in there.refused.items():
        if file not in seen.refused:  # the load of the catalog reports it already
            yield make_need("refused", file, why)
    for pipeline in there.unserved:
        why, step = "Dagster does not serve it", ""
        if pipeline in seen.undeclared:
            why = f"no file declares it, and {why}"
            step = f"put its file back, or `rota forget --pipeline {pipeline}{_make_option(seen.group)}`"
        yield make_need("unserved", pipeline, why, step=step)
    for pipeline, failed in there.failed.items():
        yield from _find_failed_runs(seen, pipeline, failed)
    for group, last in there.rebalances.items():
        if last.ago < BEHIND:  # while rebalances are requested, one begins within a minute of the last
            row = "rebalances" if last.times >= FAILURES else "rebalances retried"
            yield make_need(row, group, f"{last.times} of its rebalances failed in a row: {last.why}")


def _find_failed_runs(seen: Seen, pipeline: str, failed: Sequence[FailedRuns]) -> Iterator[Need]:
    """Yield the runs of a pipeline that failed in a row.

    Failures are over once a checkpoint of the worker's partitions is newer than the last failure: a later run committed.
    Failures of a worker that owns none of the pipeline's partitions do not count. If another worker's runs did not fail,
    the worker is at fault, not the data.
    """
    facts = seen.facts
    owned: dict[str, float] = {}  # worker -> when the newest checkpoint of its partitions was written
    for p in facts.partitions:
        if pipeline_of(p) == pipeline and p in facts.owns and (owner := facts.owns[p].incarnation):
            committed = facts.checkpoints[p].node.mtime / 1000 if p in facts.checkpoints else 0.0
            owned[worker_of(owner)] = max(owned.get(worker_of(owner), 0.0), committed)
    newest = {**owned, "": max(owned.values(), default=0.0)}
    lasting = [one for one in failed if not owned or newest.get(one.worker, inf) <= seen.now - one.ago]
    alone = "" not in (one.worker for one in lasting) and owned.keys() - {one.worker for one in lasting}
    for last in lasting if alone else sorted(lasting, key=lambda one: -one.times)[:1]:
        why, state, step = f"{last.times} of its runs failed in a row: {last.why}", "", ""
        if alone:
            why = f"{last.times} of its runs for {last.worker} failed in a row, and none for other workers: {last.why}"
            state, step = last.worker, f"see the log and the disks of {last.worker}, or `rota drain {last.worker}`"
        row = "runs" if last.times >= FAILURES else "runs retried"
        if row == "runs" and last.kind == ForeignTable.__name__:  # after the repair, the next run succeeds
            row = "refused runs"
        yield make_need(row, pipeline, why, step=step, state=state)


def find_of_partitions(seen: Seen) -> Iterator[Need]:
    """Yield the partitions that no worker works on, with the reason."""
    facts = seen.facts
    held = Counter({worker: len(target) for worker, target in facts.targets.items()})
    here = {worker.id for worker in seen.workers}
    wanted = {p: w for w, target in facts.targets.items() if w in here for p in target}
    known: dict[object, str] = {}  # many partitions without owner are of one kind
    for p in facts.partitions:
        if p in facts.unreadable:
            yield make_need("own record", p, facts.unreadable[p])
        if p in facts.parked:
            yield _explain_park(seen, p, facts.parked[p])
        if p in facts.unreadable:
            continue
        owner = facts.owns[p].incarnation if p in facts.owns else None
        if owner not in facts.lives or owner is None:
            yield _explain_unowned(seen, p, owner, wanted.get(p), held, known)
        elif facts.lives[owner] is not None and p not in facts.targets.get(worker_of(owner), ()):
            worker = worker_of(owner)
            taker = f"{wanted[p]} waits for it" if p in wanted else "no target names it"
            why = f"{worker} does not release it, and {taker}"
            lasted = max(0.0, seen.now - facts.written.get(worker, seen.now))
            yield make_need("handover", p, why, wait=seen.handover, lasted=lasted, state=owner, worker=worker)


def _explain_park(seen: Seen, p: str, park: Parked) -> Need:
    which = park.error or park.reason
    if park.retry_at is None or park.person or park.failures >= FAILURES:
        times = f" (failed {park.failures}x)" if park.failures > 1 else ""
        lasted = max(0.0, seen.now - park.since) if park.since else 0.0
        why = f"it is parked{times}: {park.reason}"
        return make_need("parked", p, why, step=park.step, lasted=lasted, which=which, partition=quote(p))
    waits = "is retried automatically" if is_waiting(park, seen.now) else "is to be retried now"
    return make_need("failed", p, f"it failed and {waits}: {park.reason}", step=park.step, which=which)


def _explain_unowned(
    seen: Seen, p: str, owner: str | None, taker: str | None, held: Mapping[str, int], known: dict[object, str]
) -> Need:
    """Explain why no worker owns a partition: none may, its taker has not claimed it, or no target names it.

    No stored time states since when a worker could take the partition: the worker may have come back, or been uncordoned,
    a second ago. So the patience counts from the first observation, except for the grace of a rebalance.

    Args:
        known: earlier answers, by kind and taker.
    """
    kind = tuple(sorted(seen.labels.get(pipeline_of(p), {}).items())), seen.pins.get(p)
    if (kind, taker) not in known:
        without = Counter(held)
        if taker:
            without[taker] -= 1
        known[kind, taker] = explain_unplaceable(seen.workers, kind, without)
    gone = f"its owner {worker_of(owner)} is gone" if owner else "no worker owns it"
    if why := known[kind, taker]:
        return make_need("unplaceable", p, f"{gone}: {why}", step=_choose_step(p, kind, seen))
    if taker:
        return make_need("unowned", p, f"{gone}, and {taker} does not take it", state=taker, taker=taker)
    if seen.protocol == "assigned":
        missed = seen.absences.get(worker_of(owner)) if owner else None
        grace = 0.0 if missed is None else seen.grace  # a rebalance waits for the worker
        lasted = 0.0 if missed is None else min(grace, max(0.0, seen.now - missed))
        why = f"{gone}, and no rebalance gave it to a worker"
        return make_need("unassigned", p, why, wait=grace, lasted=lasted, group=seen.group)
    more = ", and start the worker whose ordinal is missing" if seen.protocol == "ordinal" else ""
    return make_need("unclaimed", p, f"{gone}, and no worker takes it", more=more)


def _choose_step(p: str, kind: Kind, seen: Seen) -> str:
    """Return what makes a worker able to hold the partition again."""
    if p in seen.pins:
        return f"start {seen.pins[p]} or make it able, or `rota pin {quote(p)} --clear`"
    able = [worker for worker in seen.workers if matches(worker, kind)]
    if seen.workers and not able:
        return "start a worker with that label, or change `requires`"
    if any(worker.state == "active" for worker in able):
        return "start another worker, or raise a cap"
    return "start another worker, or `rota uncordon` one"


def _find_of_pipeline(seen: Seen, one: PipelineSeen, judged: Eligibility) -> Iterator[Need]:
    """Yield the needs that the source and the table of a pipeline have, and new records without a run."""
    facts = seen.facts
    if one.fault:  # the ticks of its sensor fail for it, too
        sensors = seen.dagster.sensors if seen.dagster else ()
        lasted = max((sensor.failing for sensor in sensors if sensor.pipeline == one.name), default=0.0)
        yield make_need("source", one.name, one.fault, lasted=lasted)
    if one.refusal:
        yield make_need("foreign table" if one.foreign else "table", one.name, one.refusal)
    if one.room:
        yield make_need("room", one.name, one.room)
    elif one.waiting:
        why = f"not in the group yet: {counted(len(one.waiting), 'partition')}, such as {quote(one.waiting[0])}"
        yield make_need("new", one.name, why, group=seen.group)
    for path, why in one.left_out.items():
        yield make_need("left out", one.name, f"{path} is not read: {why}", state=path)
    for row, wrong in (("rewritten", one.rewritten), ("stale", one.stale), ("gap", one.gaps)):
        for p, why in wrong.items():
            yield make_need(row, p, why, partition=quote(p))
    for p, held in one.withheld.items():
        committed = facts.checkpoints[p].node.mtime / 1000 if p in facts.checkpoints else 0.0
        lasted = min(OPEN, max(0.0, seen.now - committed)) if held.old else 0.0
        yield make_need("withheld", p, held.why, lasted=lasted, state=str(held.offset))
    for p, at in one.positions.items():
        own, was = facts.owns.get(p), facts.checkpoints.get(p)
        owned = own and own.incarnation in facts.lives
        restored = explain_older_zookeeper(own.token, at) if own and owned else None
        if restored := restored or explain_older_table(was.record if was else None, at):
            yield make_need("restored", p, restored.what, step=restored.step[0].lower() + restored.step[1:])
    new = [p for p, (at, end) in one.ends.items() if at < end and p in judged.owners and p not in facts.parked]
    if new and not any(pipeline_of(p) == one.name for run in facts.runs for p in run.partitions):
        moved = max((facts.checkpoints[p].node.mzxid for p in one.ends if p in facts.checkpoints), default=0)
        why = f"no run works on the new records of {counted(len(new), 'partition')}, such as {quote(new[0])}"
        yield make_need("idle", one.name, why, state=str(moved), sensor=f"{one.name}__backlog")


def _remember_behind(seen: Seen, judged: Eligibility, before: Mapping[str, Lag]) -> dict[str, Lag]:
    """Return partition with lag -> since when its lag has not fallen, with the lag and the offset at that time.

    A batch that began before the first observation counts from its start, or from the partition's last checkpoint. A
    partition that is parked or has no owner has another need.
    """
    found: dict[str, Lag] = {}
    batches = {p: run.since for run in seen.facts.runs for p in run.partitions}
    for one in seen.pipelines:
        for p, (at, end) in one.ends.items():
            if at < end and p not in seen.facts.parked and (p in judged.owners or p in judged.busy):
                read = seen.facts.checkpoints.get(p)
                begun = max(batches.get(p, seen.now), read.node.mtime / 1000 if read else 0.0)
                since, lag, offset = before.get(p, (seen.now, end - at, at))
                fresh = since > seen.now or (at > offset and end - at <= lag)
                found[p] = (seen.now, end - at, at) if fresh else (min(since, begun), lag, offset)
    return found


def _find_behind(behind: Mapping[str, Lag], seen: Seen) -> Iterator[Need]:
    """Yield the partitions whose lag has not fallen for `BEHIND` seconds: they make no progress, or too little."""
    for p, (since, lag, offset) in behind.items():
        lasted = seen.now - since
        if lasted < BEHIND:
            continue
        if p in seen.facts.checkpoints and seen.facts.checkpoints[p].record.offset > offset:
            why = f"its lag was {lag} and has grown for {BEHIND / 60:.0f} minutes"
            yield make_need("growing", p, why, lasted=lasted)
        else:
            why = f"it has been at {offset} with lag for {BEHIND / 60:.0f} minutes"
            yield make_need("still", p, why, lasted=lasted)
