"""Read the group, plan, and publish the plan.

Laws: `rebalance` publishes what `preview` shows, if nothing changed between the two. An observation finds whether a
decision is due by comparing the group with the basis of the published epoch, and stores nothing. A failed rebalance, a
grace period and a drain are therefore found again at the next observation. A plan that changes no target publishes no
epoch; only the head records the new basis.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rota.coordination.alone import find_own_targets
from rota.coordination.group_state import GroupState
from rota.coordination.publication import publication_of, publish, take_control
from rota.coordination.snapshot import Basis, GroupSnapshot, read_basis, read_snapshot
from rota.core import Plan, Policy, Snapshot, plan
from rota.core.constraints import find_matches, find_valid_owners
from rota.core.measures import find_holders, measure_imbalance
from rota.core.protocols.known_protocols import ASSIGNED
from rota.core.values import Codes
from rota.errors import ConfigError, counted
from rota.group.observed import count_before, find_claim_times, find_unsettled, see
from rota.ids import worker_of

CHANGED = "a record of the group changed"  # the reason if the inputs of the last decision are unknown
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupObservation:
    """One observation by a watcher: the live workers, the changes since the last decision, and whether a decision is due.

    `keys` maps each pipeline's name to its source keys. `problems` maps the name of a thing to its problem.
    """

    epoch: int
    workers: tuple[str, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    keys: Mapping[str, tuple[str, ...]]
    needed: bool
    reason: str
    due: float | None
    basis: str
    problems: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan that was not published, with the snapshot from which it was made."""

    read: GroupSnapshot
    plan: Plan

    @property
    def snapshot(self) -> Snapshot:
        """The input of the planner."""
        return self.read.snapshot


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """The result of a rebalance. If no target changed, `published` is false and `epoch` is the current epoch.

    `imbalance` is max/mean utilization "by count" and "by rows". `doubles` are partitions in more than one effective
    target, read back after the publication; there must be none. `unreadable` are records that could not be read.
    """

    epoch: int
    published: bool
    sentence: str
    joined: tuple[str, ...]
    left: tuple[str, ...]
    plan: Plan
    imbalance: Mapping[str, float | None]
    doubles: Mapping[str, tuple[str, ...]]
    unreadable: Mapping[str, str]


def observe(tree: GroupState, *, slots: bool = False) -> GroupObservation:
    """Observe the group. Write nothing.

    With `slots` it reads every target too: a target that cannot be read stops its worker until a new epoch repairs it.
    Raises NoGroup, Undecodable, Unavailable.
    """
    seen = read_basis(tree)
    others = _find_others(tree, seen.meta.protocol)
    head, said = seen.head.record, seen.head.node.mtime / 1000
    # Also due if the clock went back, to before the head was written.
    due = head.due is not None and not seen.moved and not said <= tree.store.now() < head.due
    torn = _torn(tree) if slots and not seen.moved else ""
    unsettled = find_unsettled(tree, seen) if seen.moved and seen.meta.protocol != ASSIGNED else others
    return GroupObservation(
        epoch=head.epoch,
        workers=tuple(worker.id for worker in seen.workers),
        joined=seen.joined,
        left=seen.left,
        keys={name: record.keys for name, record in seen.partitions.items()},
        needed=(seen.moved or due or bool(torn)) and not unsettled,
        reason=unsettled or torn or _why(seen, due),
        due=head.due,
        basis=seen.digest,
        problems={f"group {tree.group}, its protocol": others} if others else {},
    )


def preview(tree: GroupState) -> Preview:
    """Return the plan that a rebalance of the same state would publish. Write nothing.

    In a group without a controller: what the workers did since the last record.
    """
    if tree.meta().protocol != ASSIGNED:
        return Preview(*see(tree))
    seen = read_snapshot(tree)
    meta, controller = seen.basis.meta, seen.basis.controller.record
    budget = 0 if seen.basis.overrides.paused else meta.budget
    policy = Policy(budget=budget, cooldown=meta.cooldown, grace=meta.grace)
    return Preview(seen, plan(seen.snapshot, meta.assignor, meta.options, controller.memory, policy))


def rebalance(tree: GroupState, run_id: str) -> Rebalanced:
    """Take control, plan, publish. In a group without a controller, record what the workers did.

    Raises Conflict if another process took control meanwhile: then nothing was published. Raises ConfigError if the
    protocol is `assigned` and a live worker runs another protocol.
    """
    protocol = tree.meta().protocol
    if protocol == ASSIGNED and (why := _find_others(tree, protocol)):
        raise ConfigError(why)
    term = take_control(tree)
    found = preview(tree)
    seen, planned = found.read, found.plan
    joined, left = seen.basis.joined, seen.basis.left
    text = sentence(_because(seen.basis, _otherwise(seen)), planned, len(seen.snapshot.partition_ids))
    even = _imbalances(seen.snapshot, planned.assignment.target)
    by = {f"imbalance_by_{what}": value for what, value in even.items()}
    publication = publication_of(seen, planned, text, run_id, by)
    if protocol != ASSIGNED:
        claimed = find_claim_times(tree, planned)
        publication = replace(publication, observed=count_before(seen.snapshot), claimed=claimed)
    done = publish(tree, term, publication)
    doubles = _doubles(tree)
    return Rebalanced(
        epoch=done.epoch,
        published=done.published,
        sentence=f"Epoch {done.epoch}{'' if done.published else ' is unchanged'}: {text}",
        joined=joined,
        left=left,
        plan=planned,
        imbalance=even,
        doubles=doubles,
        unreadable=dict(tree.unreadable),
    )


def sentence(why: str, planned: Plan, total: int) -> str:
    """Return the result of a decision in words, without the epoch: "w2 left. 5 of 16 partitions moved (5 unavoidable).
    Imbalance 1.02."."""
    did, parts = planned.measures, [f"{why}."]
    if did.moves:
        parts.append(f"{did.moves:,} of {counted(total, 'partition')} moved ({did.unavoidable_moves:,} unavoidable).")
    if did.placements:
        parts.append(f"{did.placements:,} of {total:,} placed.")
    if not did.moves and not did.placements:
        parts.append("Nothing moved.")
    if waiting := len(planned.unassigned):
        parts.append(f"{waiting:,} of {total:,} wait: {planned.unassigned[0].reason}.")
    if did.imbalance_after is not None:
        parts.append(f"Imbalance {did.imbalance_after:.2f}.")
    return " ".join(parts)


def because(joined: Iterable[str], left: Iterable[str], otherwise: str) -> str:
    """Return which workers joined and left, in words; "restarted" for a worker that did both."""
    came, gone = set(joined), set(left)
    said = []
    for names, verb in ((gone - came, "left"), (came & gone, "restarted"), (came - gone, "joined")):
        listed = sorted(names, key=str.encode)
        if listed:
            more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
            said.append(f"{', '.join(listed[:5])}{more} {verb}")
    return ", ".join(said) or otherwise


def _find_others(tree: GroupState, protocol: str) -> str:
    """Return which live workers run another protocol than the group's; empty if none does."""
    live = [one for one in tree.newest(tree.live()).values() if one.record is not None]
    others = sorted(one.worker for one in live if one.record is not None and one.record.protocol != protocol)
    if not others:
        return ""
    return (
        f"the protocol of group {tree.group} is {protocol}, and {', '.join(others[:5])} still run another. Stop them; once "
        f"all are gone, start them again"
    )


def _torn(tree: GroupState) -> str:
    """Return which targets cannot be read; empty if all can."""
    tree.assigns()
    lost = tree.find_torn(tree.paths.assigns)
    return f"the target of {', '.join(sorted(lost))} cannot be read" if lost else ""


def _why(seen: Basis, due: bool) -> str:
    if not seen.moved and not due:
        return f"{counted(len(seen.workers), 'worker')}, epoch {seen.head.record.epoch} fits"
    return _because(seen, "it is time to look again" if due else CHANGED)


def _because(seen: Basis, otherwise: str) -> str:
    """Return which workers joined or left, and what operators, pipeline files and sources changed; else `otherwise`."""
    before = {worker_of(incarnation) for incarnation in seen.controller.record.members}
    workers = because(seen.joined, {*seen.left, *before.intersection(seen.joined)}, "")
    return ", ".join([*filter(None, [workers]), *seen.changes]) or otherwise


def _otherwise(seen: GroupSnapshot) -> str:
    """Return why a decision is due if no worker came or went and no input changed."""
    if fresh := int((seen.snapshot.owner == -1).sum()):
        return f"{counted(fresh, 'partition')} had no owner"
    if restless := [f"{w.id} is {w.state}" for w in seen.snapshot.workers if w.state != "active"]:
        return ", ".join(restless[:5])
    alone = seen.basis.meta.protocol != ASSIGNED
    return ("the workers chose anew" if alone else CHANGED) if seen.basis.moved else "looked again"


def _imbalances(snapshot: Snapshot, target: Codes) -> dict[str, float | None]:
    match = find_matches(snapshot)
    able = find_holders(snapshot, match, find_valid_owners(snapshot, match))
    return {
        "count": measure_imbalance(snapshot, target, able, by_count=True),
        "rows": measure_imbalance(snapshot, target, able, by_count=False),
    }


def _doubles(tree: GroupState) -> dict[str, tuple[str, ...]]:
    """Map each partition that is in more than one effective target to its workers."""
    holding: dict[str, list[str]] = {}
    own = {w: t.partitions for w, t in tree.targets()[1].items()}
    for worker, partitions in (own if tree.meta().protocol == ASSIGNED else find_own_targets(tree)).items():
        for partition in partitions:
            holding.setdefault(partition, []).append(worker)
    return {p: tuple(sorted(workers)) for p, workers in holding.items() if len(workers) > 1}
