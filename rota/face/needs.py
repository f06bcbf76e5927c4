"""What needs a person, and what heals itself: one pure function of what was read.

`rota status`, `why` and `check`, the lines of `rota up`, the checks on Dagster's page and the alerts are made from it.

Laws:
1. It says what is read now, and since when it was seen so. That time comes from the look before; nothing else does. A clock
   that was put forward makes no need older: of a pause in which nobody looked `UNSEEN` seconds count.
2. What heals itself needs nobody as long as healing takes: until then it is told and `person` is false.
3. What cannot be asked, and what cannot be read, is a need.
4. Each need says what it is about, why, and the next step. A partition has one need for one cause.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from rota.coordination.parking import is_waiting
from rota.coordination.records import Parked
from rota.core.constraints import matches
from rota.core.reasons import explain_unplaceable
from rota.core.values import Kind
from rota.errors import ForeignTable, Unavailable, counted
from rota.face.memory import FIRST, Lag, Memory
from rota.face.need import Need
from rota.face.seen import OPEN, FailedRuns, PipelineSeen, Seen
from rota.ids import pipeline_of, quote, worker_of
from rota.ledger.values import Position
from rota.run.eligibility import Eligibility, Facts, judge

SETTLE = 45.0  # seconds that a rebalance, a restart of a Spark or a reload may take, at most
IDLE = 75.0  # seconds until a run works on what is new: a launch, and a wait for a slot
FAILING = 60.0  # seconds in which ticks may fail: those of `SETTLE`, and those until a tick that is well says so
BEHIND = 600.0  # seconds in which lag has to fall
STOPS = ("source", "table", "unserved", "off", "fails", "runs")  # causes for which no run of a pipeline works
OF_A_SOURCE = ("fails", "runs")  # causes that an unreadable source explains
REFUSED = ("table", "restored")  # causes for which a table refuses runs
REFUSED_RUNS = "refused"  # the state of runs that failed for one of these
SHARED = (Unavailable.__name__,)  # kinds of errors of which many fail at a time, each in words of its own
FAILURES = 3  # at one offset, or of runs in a row: it does not heal itself
KEPT = 1000  # times that a memory holds, the oldest first


@dataclass(frozen=True, slots=True)
class Finding:
    """A need before it is known since when. It needs a person once it has lasted `patience` seconds; None: it never does.
    `state` begins its time anew where it changes. `lasted`: seconds for which it is known to last. `which`: see `Need`."""

    kind: str
    name: str
    cause: str
    why: str
    step: str = ""
    patience: float | None = 0.0
    state: str = ""
    lasted: float = 0.0
    which: str = ""

    @property
    def stops(self) -> bool:
        """Whether no run of its pipeline works for it, unless it heals."""
        return self.kind == "pipeline" and self.cause in STOPS and self.patience is not None

    @property
    def key(self) -> str:
        """Tells one need from another in a memory."""
        return "|".join((self.kind, self.name, self.cause, self.state))


def find_needs(seen: Seen, before: Memory = FIRST) -> tuple[tuple[Need, ...], Memory]:
    """What is not well, those that need a person first, and what the next look has to know."""
    judged, before = judge(seen.facts), before.shorten_pause(seen.now)
    behind = _remember_behind(seen, judged, before.behind)
    found = [
        *find_of_group(seen),
        *_find_of_dagster(seen),
        *find_of_partitions(seen),
        *(finding for one in seen.pipelines for finding in _find_of_pipeline(seen, one, judged)),
    ]
    found = _explain_by_source(found)
    refused = {pipeline_of(one.name) for one in found if one.cause in REFUSED}  # their runs fail of the same
    found = [one for one in found if one.state != REFUSED_RUNS or one.name not in refused]
    in_vain = any(one.kind == "group" and one.cause == "runs" and one.patience is not None for one in found)
    if in_vain:  # these wait for a rebalance
        found = [one for one in found if one.cause != "new" and (one.cause != "unowned" or one.state)]
    stopped = {one.name for one in found if one.stops}
    # who turns it on waits for a run from then on
    off = {one.name for one in found if one.stops and one.cause == "off"}
    found = [
        replace(one, state=f"{one.state} off") if one.cause == "idle" and one.name in off else one for one in found
    ]
    explained = stopped | {one.name for one in found if one.cause == "idle"}  # why their partitions stand still
    found += _find_behind({p: lag for p, lag in behind.items() if pipeline_of(p) not in explained}, seen)
    since = {one.key: min(before.since.get(one.key, seen.now), seen.now - one.lasted) for one in found}
    waits = {one.name: since[one.key] + IDLE for one in found if one.cause == "idle"}
    told = [one for one in found if one.cause != "idle" or one.name not in stopped]
    needs = [_make_need(one, since[one.key], seen.now, waits) for one in told]
    oldest = dict(sorted(since.items(), key=lambda item: item[1])[:KEPT])
    kept = dict(sorted(behind.items(), key=lambda item: item[1][0])[:KEPT])
    return tuple(sorted(needs, key=lambda need: not need.person)), Memory(oldest, kept, seen.now)


def _explain_by_source(found: Sequence[Finding]) -> list[Finding]:
    """Leave out the sensor and the runs that fail because their source cannot be read. The source has failed for as long as
    they have, and needs an operator as soon as one of them would."""
    of = {one.name: [one] for one in found if one.kind == "pipeline" and one.cause == "source"}
    for one in found:
        if one.kind == "pipeline" and one.cause in OF_A_SOURCE and one.name in of:
            of[one.name].append(one)
    joined = {
        alike[0]: replace(
            alike[0],
            patience=min(one.patience for one in alike if one.patience is not None),
            lasted=max(one.lasted for one in alike),
        )
        for alike in of.values()
    }
    left_out = {one for alike in of.values() for one in alike[1:]}
    return [joined.get(one, one) for one in found if one not in left_out]


def _make_need(one: Finding, since: float, now: float, waits: Mapping[str, float]) -> Need:
    """What keeps work from being done is due when the work has waited long enough: `waits` says when, by pipeline."""
    due = float("inf") if one.patience is None else since + one.patience
    if one.stops:
        due = min(due, waits.get(one.name, due))
    return Need(one.kind, one.name, one.cause, one.why, one.step, since, now >= due, due, one.which)


def find_of_group(seen: Seen) -> Iterator[Finding]:
    """What is wrong with the group as a whole, its workers and its records."""
    if seen.facts.partitions and not seen.workers:
        step = f"start one with `rota worker --id NAME{_say_group(seen.group)}`"
        yield Finding("group", seen.group, "workers", "no worker is live", step, SETTLE)
    for worker, protocol in seen.joined_under.items():
        if protocol != seen.protocol:
            why = f"it joined under {protocol!r}, and the group's protocol is {seen.protocol!r}: who joins now waits"
            yield Finding("worker", worker, "protocol", why, "end its process and start it again", SETTLE)
    for worker, why in seen.silent.items():
        step = "see the worker's log; the worker starts its Spark again if that ended"
        yield Finding("worker", worker, "spark", f"its Spark does not answer ({why})", step, SETTLE)
    for worker, why in seen.unable.items():
        step = "give its Spark room (`spark.cores.max` of the others, or more machines); it takes work by itself then"
        yield Finding("worker", worker, "unable", f"{why}, so it owns nothing", step, SETTLE)
    for worker in seen.twice:
        why = "a second process has its id and waits"
        yield Finding("worker", worker, "twice", why, "give it another --id", SETTLE)
    for path, why in seen.records.items():
        own = f"/assign/{path.rpartition('/')[2]}" in path  # its worker, or the next rebalance, writes it anew
        yield Finding("record", path, "record", why, "", SETTLE if own else 0.0)
    for file, why in seen.refused.items():
        yield Finding("file", file, "refused", why)


def _say_group(group: str) -> str:
    return "" if group == "default" else f" --group {group}"


def _find_of_dagster(seen: Seen) -> Iterator[Finding]:
    """What keeps Dagster from deciding and launching. Where it cannot be asked, nothing else is known of it."""
    there = seen.dagster
    if there is None:
        return
    if there.silent:
        step = "start it, or set ROTA_DAGSTER to the address of its page"
        yield Finding("dagster", "Dagster", "silent", there.silent, step, SETTLE)
    for name, why in there.locations.items():
        step = "mend it, then reload it on the page"  # Dagster starts a code server that ended again
        yield Finding("dagster", f"code location {name}", "location", why, step, SETTLE)
    for name, lasted in there.lost.items():
        step = "end it and start it again, or restart Dagster"
        why = "its code server does not answer"
        yield Finding("dagster", f"code location {name}", "location", why, step, SETTLE, lasted=lasted)
    for sensor in there.sensors:
        of, name, about = "dagster", f"sensor {sensor.name}", ""
        if sensor.pipeline:
            of, name, about = "pipeline", sensor.pipeline, f"{name}: "
        if not sensor.on:
            yield Finding(of, name, "off", f"{about}it is turned off", "turn it on, on Dagster's page")
        elif sensor.failing:
            which = sensor.kind if sensor.kind in SHARED else sensor.why
            yield Finding(of, name, "fails", about + sensor.why, "", FAILING, lasted=sensor.failing, which=which)
    ticking = [sensor.quiet for sensor in there.sensors if sensor.on]
    if ticking and min(ticking) >= IDLE:
        why = f"no sensor has begun a tick for {min(ticking):.0f} s"
        step = "see whether Dagster's daemon runs, and start it again"
        yield Finding("dagster", "Dagster", "daemon", why, step, IDLE, lasted=min(ticking))
    for file, why in there.refused.items():
        if file not in seen.refused:  # the load of the catalog reports it already
            yield Finding("file", file, "refused", why)
    for pipeline in there.unserved:
        why = "Dagster does not serve it"
        step = "reload the code location; what it then says of the file is on its page"
        if pipeline in seen.undeclared:
            why = f"no file declares it, and {why}"
            step = f"put its file back, or `rota forget --pipeline {pipeline}{_say_group(seen.group)}`"
        yield Finding("pipeline", pipeline, "unserved", why, step, SETTLE)
    for pipeline, failed in there.failed.items():
        yield from _find_failed_runs(seen, pipeline, failed)
    for group, last in there.rebalances.items():
        if last.ago < BEHIND:  # one that is asked for comes within a minute of the last
            why = f"{last.times} of its rebalances failed in a row: {last.why}"
            yield Finding("group", group, "runs", why, "", 0.0 if last.times >= FAILURES else None)


def _find_failed_runs(seen: Seen, pipeline: str, failed: Sequence[FailedRuns]) -> Iterator[Finding]:
    """The runs of a pipeline that failed in a row.

    Failures are over once a checkpoint of the worker's partitions is newer than the last failure: a run that continues has
    committed. Failures of a worker that owns none of the pipeline's partitions do not count. If no run of another worker
    failed, the worker is at fault, not the data.
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
        patience = 0.0 if last.times >= FAILURES else None
        if patience is not None and last.kind == ForeignTable.__name__:  # after the repair, the next run succeeds
            patience, state = IDLE, REFUSED_RUNS
        yield Finding("pipeline", pipeline, "runs", why, step, patience, state)


def find_of_partitions(seen: Seen) -> Iterator[Finding]:
    """Which partitions nobody works on, and why."""
    facts = seen.facts
    held = Counter({worker: len(target) for worker, target in facts.targets.items()})
    here = {worker.id for worker in seen.workers}
    wanted = {p: w for w, target in facts.targets.items() if w in here for p in target}
    known: dict[object, str] = {}  # many partitions without owner are of one kind
    for p in facts.partitions:
        if p in facts.unreadable:
            yield Finding("partition", p, "record", facts.unreadable[p])
        if p in facts.parked:
            yield _explain_park(seen, p, facts.parked[p])
        if p in facts.unreadable or not seen.workers:
            continue
        owner = facts.owns[p].incarnation if p in facts.owns else None
        if owner not in facts.lives or owner is None:
            yield _explain_unowned(seen, p, owner, wanted.get(p), held, known)
        elif facts.lives[owner] is not None and p not in facts.targets.get(worker_of(owner), ()):
            taker = f"{wanted[p]} waits for it" if p in wanted else "nobody is to have it next"
            why = f"{worker_of(owner)} does not let it go, and {taker}"
            step = f"see the log of {worker_of(owner)}, and what its run does"
            lasted = max(0.0, seen.now - facts.written.get(worker_of(owner), seen.now))
            yield Finding("partition", p, "handover", why, step, seen.handover + SETTLE, owner, lasted)


def _explain_park(seen: Seen, p: str, park: Parked) -> Finding:
    which = park.error or park.reason
    step = park.step or f"mend what it says, then `rota retry {quote(p)}`"
    if park.retry_at is None or park.person or park.failures >= FAILURES:
        times = f" (failed {park.failures}x)" if park.failures > 1 else ""
        lasted = max(0.0, seen.now - park.since) if park.since else 0.0
        why = f"it is parked{times}: {park.reason}"
        return Finding("partition", p, "parked", why, step, lasted=lasted, which=which)
    waits = "is tried again by itself" if is_waiting(park, seen.now) else "is to be tried again now"
    why = f"it failed and {waits}: {park.reason}"
    return Finding("partition", p, "failed", why, park.step, patience=None, which=which)


def _explain_unowned(
    seen: Seen, p: str, owner: str | None, taker: str | None, held: Mapping[str, int], known: dict[object, str]
) -> Finding:
    """Why nobody owns a partition: nobody may, its taker has not taken it, or nobody gave it away. Each of these has its own
    time: a rebalance, then a claim. `known` are the answers of before, by kind and taker."""
    kind = tuple(sorted(seen.labels.get(pipeline_of(p), {}).items())), seen.pins.get(p)
    if (kind, taker) not in known:
        without = Counter(held)
        if taker:
            without[taker] -= 1
        known[kind, taker] = explain_unplaceable(seen.workers, kind, without)
    gone = f"its owner {worker_of(owner)} is gone" if owner else "no worker owns it"
    if why := known[kind, taker]:
        return Finding("partition", p, "unplaceable", f"{gone}: {why}", _choose_step(p, kind, seen), SETTLE)
    # `SETTLE` is always observed: nothing stored states since when a worker could take the partition. The worker may have
    # come back, or been uncordoned, a second ago.
    if taker:
        why, step = f"{gone}, and {taker} does not take it", f"see the log of {taker}"
        return Finding("partition", p, "unowned", why, step, SETTLE, taker)
    if seen.protocol == "assigned":
        missed = seen.absences.get(worker_of(owner)) if owner else None
        grace = 0.0 if missed is None else seen.grace  # a rebalance waits for the worker
        lasted = 0.0 if missed is None else min(grace, max(0.0, seen.now - missed))
        step = f"see whether Dagster's sensor of {seen.group!r} ticks, and its last rebalance"
        why = f"{gone}, and no rebalance gave it to a worker"
        return Finding("partition", p, "unowned", why, step, SETTLE + grace, lasted=lasted)
    step = "see the workers' logs"
    if seen.protocol == "ordinal":
        step += ", and start the worker whose ordinal is missing"
    return Finding("partition", p, "unowned", f"{gone}, and no worker takes it", step, SETTLE)


def _choose_step(p: str, kind: Kind, seen: Seen) -> str:
    """What makes a worker able to hold the partition again."""
    if p in seen.pins:
        return f"start {seen.pins[p]} or make it able, or `rota pin {quote(p)} --clear`"
    able = [worker for worker in seen.workers if matches(worker, kind)]
    if seen.workers and not able:
        return "start a worker with that label, or change `requires`"
    if any(worker.state == "active" for worker in able):
        return "start another worker, or raise a cap"
    return "start another worker, or `rota uncordon` one"


def _find_of_pipeline(seen: Seen, one: PipelineSeen, judged: Eligibility) -> Iterator[Finding]:
    facts = seen.facts
    if one.fault:
        yield Finding("pipeline", one.name, "source", one.fault, "", SETTLE)
    if one.refusal:
        yield Finding("pipeline", one.name, "table", one.refusal, "", 0.0 if one.foreign else SETTLE)
    if one.room:
        yield Finding("pipeline", one.name, "room", one.room)
    elif one.waiting:
        why = f"not in the group yet: {counted(len(one.waiting), 'partition')}, such as {quote(one.waiting[0])}"
        yield Finding("pipeline", one.name, "new", why, f"see whether Dagster's sensor of {seen.group!r} ticks", SETTLE)
    for p, why in one.rewritten.items():
        yield Finding("partition", p, "rewritten", why, f"`rota replay {quote(p)} --changed`")
    for path, why in one.left_out.items():
        yield Finding("pipeline", one.name, "left out", f"{path} is not read: {why}", state=path)
    for cause, wrong in (("stale", one.stale), ("gap", one.gaps)):
        for p, why in wrong.items():
            yield Finding("partition", p, cause, why, "compare the table with its source, then replay what differs")
    for p, held in one.withheld.items():
        step = "end the producer's transaction, or abort it by `kafka-transactions.sh`"
        committed = facts.checkpoints[p].node.mtime / 1000 if p in facts.checkpoints else 0.0
        lasted = min(OPEN, max(0.0, seen.now - committed)) if held.old else 0.0
        yield Finding("partition", p, "withheld", held.why, step, OPEN, str(held.offset), lasted)
    for p, at in one.positions.items():
        if why := _explain_restored(facts, p, at):
            step = "`rota adopt`" if at.table else "mount it, or begin anew with `rota adopt`"
            yield Finding("partition", p, "restored", why, step, SETTLE)
    new = [p for p, (at, end) in one.ends.items() if at < end and p in judged.owners and p not in facts.parked]
    if new and not any(pipeline_of(p) == one.name for run in facts.runs for p in run.partitions):
        moved = max((facts.checkpoints[p].node.mzxid for p in one.ends if p in facts.checkpoints), default=0)
        why = f"no run works on what is new in {counted(len(new), 'partition')}, such as {quote(new[0])}"
        step = f"see whether Dagster's sensor {one.name}__backlog ticks, and what its runs wait for"
        yield Finding("pipeline", one.name, "idle", why, step, IDLE, str(moved))


def _explain_restored(facts: Facts, p: str, at: Position) -> str:
    """Why the table and ZooKeeper are not of one past."""
    if p in facts.owns and (at.token or 0) > facts.owns[p].token and facts.owns[p].incarnation in facts.lives:
        return f"its table has seen token {at.token}, above {facts.owns[p].token} of its owner: ZooKeeper was restored"
    if p not in facts.checkpoints:
        return ""
    said = facts.checkpoints[p].record
    if said.offset and not at.table:
        return f"its checkpoint is at {said.offset}, and there is no table: its disk is away, or it was dropped"
    if said.offset > (at.offset or 0):
        return f"its checkpoint is at {said.offset}, its table at {at.offset or 0}: an older table was restored"
    if at.table and said.table not in ("", at.table):
        return "its table is not the one that it was"
    return ""


def _remember_behind(seen: Seen, judged: Eligibility, before: Mapping[str, Lag]) -> dict[str, Lag]:
    """Partition with lag -> since when its lag has not fallen, with the lag and the offset of then.

    A batch that began before the first look counts from its begin, or from the partition's last checkpoint. A partition
    that is parked or has no owner has a need of its own.
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


def _find_behind(behind: Mapping[str, Lag], seen: Seen) -> Iterator[Finding]:
    """Of those whose lag has not fallen for `BEHIND` seconds: who stands still, and whose lag grows."""
    for p, (since, lag, offset) in behind.items():
        lasted = seen.now - since
        if lasted < BEHIND:
            continue
        if p in seen.facts.checkpoints and seen.facts.checkpoints[p].record.offset > offset:
            why = f"its lag was {lag} and has grown for {BEHIND / 60:.0f} minutes"
            yield Finding("partition", p, "growing", why, "add a worker", None, lasted=lasted)
        else:
            why = f"it stands at {offset} with lag for {BEHIND / 60:.0f} minutes"
            yield Finding("partition", p, "still", why, "look at its runs", lasted=lasted)
