"""One observation of a group: everything that a decision reads, and its digest, which shows whether a new decision is
due.

Laws:
1. Level, not edge: two observations of the same incarnations, states, overrides, partitions and settings have the same
   basis, and the head contains the basis of its epoch. A watcher compares, and remembers nothing. The basis does not
   contain a worker's usage and read rate. Where workers decide alone, it contains each worker's choice.
2. The owner is the worker of the effective target. If that worker is gone or there is no target, it is the owner in the
   own record: a partition that waits for a worker to return (grace) still has that owner.
3. An unreadable record is never taken for an empty one. A worker with an unreadable record or override keeps what it
   holds and gets nothing new. An unreadable pipeline or group stops the observation.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from rota.coordination.checkpoint import read_load
from rota.coordination.group_reader import GroupReader
from rota.coordination.inputs import KEY, SETTINGS, Inputs, explain_changes, note_inputs
from rota.coordination.records import Controller, GroupOverrides, Head, Live, Meta, Partitions, WorkerOverrides
from rota.coordination.views import LiveView, Read, Target
from rota.core import Partition, Snapshot, Worker
from rota.core.reasons import explain_refusal
from rota.ids import partition_id, pipeline_of, worker_of


@dataclass(frozen=True, slots=True)
class Basis:
    """What a decision is made from, without loads and owners: cheap to read again and again.

    A worker that awaits its first run counts as not there. It is in `starting`.
    """

    digest: str
    meta: Meta
    head: Read[Head]
    controller: Read[Controller]
    overrides: GroupOverrides
    workers: tuple[Worker, ...]
    partitions: Mapping[str, Partitions]
    members: tuple[str, ...]
    inputs: Inputs
    starting: tuple[Worker, ...] = ()

    @property
    def moved(self) -> bool:
        """Whether the current epoch was made from another basis."""
        return self.digest != self.head.record.basis

    @property
    def joined(self) -> tuple[str, ...]:
        """Workers that are not in the last published observation, by incarnation."""
        return tuple(sorted(worker_of(i) for i in set(self.members) - set(self.controller.record.members)))

    @property
    def changes(self) -> tuple[str, ...]:
        """What operators, pipeline files and sources changed since the last published observation, a sentence each."""
        before = self.controller.record.memory.get(KEY)
        return explain_changes(before if isinstance(before, Mapping) else None, self.inputs)

    @property
    def left(self) -> tuple[str, ...]:
        """Workers of the last published observation that are no longer there, by worker."""
        here = {worker_of(i) for i in self.members}
        return tuple(sorted({worker_of(i) for i in self.controller.record.members} - here))


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A basis with the snapshot for the planner.

    `now` is the server's clock; `absences` maps each missing worker to the time since when it is missing.
    """

    basis: Basis
    snapshot: Snapshot
    targets: Mapping[str, Target]
    absences: Mapping[str, float]
    now: float


def read_basis(tree: GroupReader) -> Basis:
    """The basis of a decision now. Raises Undecodable, Unavailable, ConfigError (no such group)."""
    meta, head, controller, overrides = tree.meta(), tree.head(), tree.controller(), tree.overrides()
    pipelines = tree.pipelines()
    partitions = {p: read.record for p, read in pipelines.items()}
    views = tree.live()
    live = tree.newest(view for view in views if not _awaits_run(view))
    starting = {w: view for w, view in tree.newest(filter(_awaits_run, views)).items() if w not in live}
    people = {worker: read.record for worker, read in tree.worker_overrides().items()}
    unreadable = tree.find_torn(tree.paths.workers)

    def merge(of: Mapping[str, LiveView]) -> tuple[Worker, ...]:
        names = sorted(of, key=str.encode)
        return tuple(merge_worker(of[w], people.get(w, WorkerOverrides()), doubtful=w in unreadable) for w in names)

    workers = merge(live)
    members = tuple(sorted(v.incarnation for v in live.values()))
    alone = tree.assigns() if meta.protocol != "assigned" else {}  # each worker's target is its own choice
    chosen = {w: sha256(read.node.data).hexdigest() for w, read in sorted(alone.items()) if w in live}
    return Basis(
        _digest(meta, overrides, workers, pipelines, chosen),
        meta,
        head,
        controller,
        overrides,
        workers,
        partitions,
        members,
        note_inputs(meta, overrides, people, live, unreadable, partitions),
        merge(starting),
    )


def _awaits_run(view: LiveView) -> bool:
    return view.record is not None and view.record.awaits_run


def read_snapshot(tree: GroupReader, known: Mapping[str, str] | None = None) -> GroupSnapshot:
    """Everything the planner reads. `known` are the owners, if they are not to be read."""
    seen = read_basis(tree)
    head, targets = tree.targets()
    now = tree.store.now()
    ids = {partition_id(p, key): (p, key) for p, record in seen.partitions.items() for key in record.keys}
    here = {w.id for w in seen.workers}
    if known is None:
        owners, gone = _owners(tree, targets, here, ids)
    else:
        owners = {p: w for p, w in known.items() if p in ids}
        gone = {w for w in owners.values() if w not in here}
    missed = seen.controller.record.absences
    absences = {w: min(missed.get(w, now), now) for w in sorted(gone)}  # the clock may have gone back
    snapshot = Snapshot.of(
        seen.workers,
        _partitions(tree, seen, ids, now),
        owners,
        epoch=head.record.epoch,
        now=now,
        absences=absences,
    )
    return GroupSnapshot(seen, snapshot, targets, absences, now)


def merge_worker(view: LiveView, overrides: WorkerOverrides, *, doubtful: bool) -> Worker:
    """The announced worker with its overrides. A worker that cannot work has no room, whatever the overrides."""
    live = view.record or Live()
    state = "active"
    if overrides.draining or live.leaving:
        state = "draining"
    elif overrides.cordoned or doubtful or view.record is None:
        state = "cordoned"
    cap = live.max_partitions if overrides.max_partitions is None else overrides.max_partitions
    return Worker(
        id=view.worker,
        incarnation=view.incarnation,
        capacity=live.capacity if overrides.capacity is None else overrides.capacity,
        zone=live.zone,
        labels={**live.labels, **overrides.labels},
        state=state,
        usage=dict(live.usage) if live.usage else None,
        max_partitions=cap if live.has_room else 0,
    )


def explain_pin(tree: GroupReader, partition: str, worker: str) -> str:
    """Why no worker would get the partition if it were pinned to this one, in words that follow its name; empty if it
    may.

    Other pins to this worker fill its cap; unpinned partitions would make room. Raises as `read_basis` does.
    """
    seen = read_basis(tree)
    if (one := next((w for w in seen.workers if w.id == worker), None)) is None:
        return "is not live"
    known = seen.partitions.get(pipeline_of(partition))
    own = tree.owned((partition,)).get(partition)
    keeps = own is not None and worker_of(own.incarnation or "") == worker  # a cordoned worker keeps what it has
    pinned = Counter(to for p, to in seen.overrides.pins.items() if p != partition)
    kind = (tuple(sorted(known.requires.items())) if known else (), worker)
    return explain_refusal(replace(one, state="active") if keeps and one.state == "cordoned" else one, kind, pinned)


def _digest(
    meta: Meta,
    overrides: GroupOverrides,
    workers: Iterable[Worker],
    pipelines: Mapping[str, Read[Partitions]],
    chosen: Mapping[str, str],
) -> str:
    content = [
        meta.model_dump(include={"id", *SETTINGS}),
        overrides.dump_known(exclude_defaults=True),  # a build that has one more field gets the same digest
        [[w.incarnation, w.capacity, w.zone, dict(w.labels), w.state, w.max_partitions] for w in workers],
        {p: [read.node.czxid, read.version] for p, read in pipelines.items()},  # it changes only when its content does
        *([chosen] if chosen else []),
    ]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _owners(
    tree: GroupReader, targets: Mapping[str, Target], here: set[str], ids: Mapping[str, object]
) -> tuple[dict[str, str], set[str]]:
    """Maps each partition to its owner by law 2, and returns the gone workers that are still some partition's owner."""
    owners: dict[str, str] = {}
    orphans: dict[str, str] = {}
    for worker, target in targets.items():
        for partition in target.partitions:
            if partition in ids:
                (owners if worker in here else orphans)[partition] = worker
    unknown = [p for p in ids if p not in owners]
    held = tree.owned(unknown) if unknown else {}
    for partition in unknown:
        view = held.get(partition)
        owner = worker_of(view.incarnation) if view is not None and view.incarnation else None
        chosen = owner if owner in here or partition not in orphans else orphans[partition]
        if chosen is not None:
            owners[partition] = chosen
    return owners, {w for w in owners.values() if w not in here}


def _partitions(tree: GroupReader, seen: Basis, ids: Mapping[str, tuple[str, str]], now: float) -> list[Partition]:
    """The partitions with loads: measured rows a second, else the mean of the measured ones, else 1."""
    rates = {p: read_load(one, now) for p, one in tree.checkpoints(ids).items()}
    known = [rate for rate in rates.values() if rate is not None]
    usual = sum(known) / len(known) if known and sum(known) > 0 else 1.0
    pins = seen.overrides.pins
    found: list[Partition] = []
    for partition, (pipeline, _) in ids.items():
        rate = rates.get(partition)
        found.append(
            Partition(
                id=partition,
                source=pipeline,
                load=usual if rate is None else rate,
                requires=seen.partitions[pipeline].requires,
                pin=pins.get(partition),
                rate=rate,
            )
        )
    return found
