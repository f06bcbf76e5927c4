"""The state of each worker and partition of an observation, in one word, for `rota status` and the metrics."""

from rota.coordination.records import Live
from rota.core.values import STATES, Worker
from rota.face.seen import Seen
from rota.ids import worker_of

WORKER_STATES = (*STATES, "leaving", "unable", "starting")
PARTITION_STATES = ("owned", "running", "moving", "unowned", "parked", "unreadable")


def describe_worker(worker: Worker, record: Live | None) -> str:
    """Return one of `WORKER_STATES`. `record`: what the worker announces; None if that cannot be read."""
    if record is None:
        return worker.state
    states = {"leaving": record.leaving, "unable": bool(record.unable), "starting": record.awaits_run}
    return next((state for state, is_so in states.items() if is_so), worker.state)


def list_worker_states(seen: Seen) -> dict[str, str]:
    """Return worker -> its state, of the live workers."""
    lives = seen.facts.lives
    return {one.id: describe_worker(one, lives.get(one.incarnation or "")) for one in (*seen.workers, *seen.starting)}


def list_partition_states(seen: Seen) -> dict[str, str]:
    """Return partition -> the first of these states that it has:

    `unreadable`: a record of it cannot be read; `parked`; `unowned`: no live worker owns it; `moving`: the target of its
    owner does not name it; `running`: a run works on a batch of it; `owned`.
    """
    facts = seen.facts
    busy = {(p, run.incarnation) for run in facts.runs for p in run.partitions}
    found: dict[str, str] = {}
    for p in facts.partitions:
        owner = facts.owns[p].incarnation if p in facts.owns else None
        if p in facts.unreadable:
            found[p] = "unreadable"
        elif p in facts.parked:
            found[p] = "parked"
        elif owner is None or owner not in facts.lives:
            found[p] = "unowned"
        elif p not in facts.targets.get(worker_of(owner), ()):
            found[p] = "moving"
        else:
            found[p] = "running" if (p, owner) in busy else "owned"
    return found
