"""`rota why`: which worker owns a partition, why, and what would move it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.errors import counted
from rota.ids import quote, worker_of
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.face.seen import Seen


@click.command("why")
@click.argument("partition")
@group_option
@json_option
@click.option("--at", "time", help="Show which worker had it at this time, such as 2026-01-31T12:00 (local time).")
def command(partition: str, group: str, as_json: bool, time: str | None) -> None:
    """Show which worker owns PARTITION, and why.

    Shows its owner, token, epoch and reason, its offset, and what would move it. With --at: its owner at that time, and why.
    """
    with open_group(group) as tree, view.show_wait("reading the group, the source and the table"):
        found = explain(tree, partition) if time is None else explain_past(tree, partition, time)
    if as_json:
        view.print_document(found)
    elif time is None:
        _print_answer(found)
    else:
        _print_past(found)


def explain(tree: "GroupState", partition: str) -> dict[str, Any]:
    """Return the answer as JSON values; see docs/protocol.md. Raises ConfigError, which names the known partitions."""
    from rota.cli.observer import GroupObserver, concerns, find_rewritten

    check_known("partition", partition, tree.ids())
    found = GroupObserver(tree).observe()
    facts, here = found.seen.facts, {worker.id for worker in found.seen.workers}
    own, done = facts.owns.get(partition), facts.checkpoints.get(partition)
    named = [w for w in sorted(facts.targets) if partition in facts.targets[w]]
    target = next(
        (w for w in named if w in here), named[0] if named else None
    )  # a dead worker's target may name it, too
    epochs = tree.epochs()
    since = next((e for e in reversed(epochs) for m in e.moves if m.partition == partition), None)
    move = next((m for m in since.moves if m.partition == partition), None) if since else None
    at = found.ends.get(partition)
    parked = facts.parked.get(partition)
    return {
        "partition": partition,
        "group": tree.group,
        "epoch": facts.epoch,
        "owner": worker_of(own.incarnation) if own and own.incarnation else None,
        "incarnation": own.incarnation if own else None,
        "live": bool(own and own.incarnation in facts.lives),
        "token": own.token if own else None,
        "target": target,
        "since_epoch": since.epoch if since else None,
        "since": since.find_time(move) if since and move else None,
        "reason": move.reason if move else None,
        "sentence": since.sentence if since else None,
        "offset": done.record.offset if done else None,
        "lag": at[1] - at[0] if at else None,
        "last_commit": {
            "run_id": done.record.run_id,
            "at": done.node.mtime / 1000,
            "rows": done.record.rows,
            "seconds": done.record.seconds,
            "epoch": done.record.epoch,
        }
        if done
        else None,
        "parked": view.describe_park(parked) if parked else facts.unreadable.get(partition),
        "rewritten": find_rewritten(tree, partition),
        "needs": [need.line for need in found.needs if concerns(need, None, partition)],
        "would_move": list(_list_causes(found.seen, partition, target if target in here else None)),
    }  # fmt: skip


def explain_past(tree: "GroupState", partition: str, time: str) -> dict[str, Any]:
    """Return the owner at a time as JSON values; see docs/protocol.md. Raises ConfigError on a bad time or partition."""
    from rota.cli.past import parse_moment, read_epochs
    from rota.face.past import find_past_owner

    at = parse_moment(tree, time)
    targets = tree.targets()[1]
    current = next((w for w in sorted(targets) if partition in targets[w].partitions), None)
    epochs, note = read_epochs(tree, lambda known: find_past_owner(known, partition, at, current).since is not None)
    named = {move.partition for epoch in epochs for move in epoch.moves}
    check_known("partition", partition, {*tree.ids(), *named})  # one that left the group, too
    past = find_past_owner(epochs, partition, at, current)
    since, until = past.since, past.until
    epoch = next((one for one in reversed(epochs) if one.at <= at), None)
    return {
        "partition": partition,
        "group": tree.group,
        "at": at,
        "epoch": epoch.epoch if epoch else None,
        "known": past.known,
        "owner": past.owner,
        "since_epoch": since.epoch.epoch if since else None,
        "since": since.at if since else None,
        "reason": since.move.reason if since and since.move else None,
        "sentence": since.epoch.sentence if since else None,
        "until_epoch": until.epoch.epoch if until else None,
        "until": until.at if until else None,
        "note": note,
    }


def _list_causes(seen: "Seen", partition: str, target: str | None) -> Iterator[str]:
    """Yield what would move the partition to another worker, the most certain cause first."""
    counts = {worker.id: len(seen.facts.targets.get(worker.id, ())) for worker in seen.workers}
    states = {worker.id: worker.state for worker in seen.workers}
    if partition in seen.pins:
        yield f"It is pinned to {seen.pins[partition]}: `rota pin {quote(partition)} --clear` removes the pin"
    if target is None:
        yield "No live worker is its target: see what is in its way, else the next worker that may hold it gets it"
        return
    yield f"{target} leaving, `rota drain {target}`, or its session ending"
    yield f"`rota pin {quote(partition)} WORKER`"
    if states[target] == "draining":
        yield f"{target} is draining: another worker gets it"
    elif idle := sorted(w for w, state in states.items() if state != "active"):
        yield f"`rota uncordon {idle[0]}`, which gets no partitions now"
    elif counts[target] > sum(counts.values()) // (len(counts) + 1):
        yield f"One more worker: {target} holds {counts[target]} partitions, and fewer with {len(counts) + 1} workers"


def _print_past(found: dict[str, Any]) -> None:
    since, until = (f"epoch {found[key]}" if found[key] else None for key in ("since_epoch", "until_epoch"))
    lines = [
        ("owner", found["owner"] or ("no worker" if found["known"] else "unknown"), ""),
        ("since", since, view.format_moment(found["since"])),
        ("reason", found["reason"], ""),
        ("what happened", found["sentence"], ""),
        ("until", until, view.format_moment(found["until"])),
    ]
    title = f"{found['partition']} at {view.format_moment(found['at'])}"
    view.print_parts("", view.make_table(title, ["", "", ""], [(k, v, note or " ") for k, v, note in lines]), "")
    if found["note"]:
        view.print_parts(found["note"])


def _print_answer(found: dict[str, Any]) -> None:
    last = found["last_commit"]
    lines = [
        (
            "owner",
            found["incarnation"] or "no worker",
            "" if found["live"] or not found["owner"] else "its session ended",
        ),
        ("token", found["token"], ""),
        ("target", found["target"], f"epoch {found['epoch']} is current"),
        ("since", f"epoch {found['since_epoch']}" if found["since_epoch"] else None, view.format_time(found["since"])),
        ("reason", found["reason"], ""),
        ("what happened", found["sentence"], ""),
        ("offset", found["offset"], "" if found["lag"] is None else f"{found['lag']} behind"),
        (
            "last commit",
            last and last["run_id"],
            last and f"{view.format_time(last['at'])}, {counted(last['rows'], 'row')}",
        ),
        ("parked", found["parked"], ""),
        ("rewritten", found["rewritten"], ""),
    ]
    view.print_parts(
        "", view.make_table(found["partition"], ["", "", ""], [(k, v, note or " ") for k, v, note in lines]), ""
    )
    if found["needs"]:
        view.print_parts("In its way:", *(f"  {line}" for line in found["needs"]), "")
    view.print_parts("What would move it:", *(f"  {line}" for line in found["would_move"]))
