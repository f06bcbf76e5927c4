"""`rota why`: why a partition is where it is, and what would move it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rota.cli import view
from rota.cli.group import group_option, json_option, open_group
from rota.cli.recent import read_source_of
from rota.ids import quote, worker_of
from rota.settings import check_known

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState


@click.command("why")
@click.argument("partition")
@group_option
@json_option
def command(partition: str, group: str, as_json: bool) -> None:
    """Show why PARTITION is where it is.

    Its owner, token, epoch and reason, how far it is, and what would move it.
    """
    with open_group(group) as tree, view.show_wait("reading the group, the source and the table"):
        found = explain(tree, partition)
    if as_json:
        view.print_document(found)
    else:
        _print_answer(found)


def explain(tree: "GroupState", partition: str) -> dict[str, Any]:
    """The answer as JSON values; see docs/protocol.md. Raises ConfigError, which names the known partitions."""
    from rota.coordination.parking import explain_unreadable

    check_known("partition", partition, tree.ids())
    own = tree.owned([partition]).get(partition)
    live = tree.newest(tree.live())
    head, targets = tree.targets()
    target = next((w for w, t in sorted(targets.items()) if partition in t.partitions), None)
    epochs = tree.epochs()
    since = next((e for e in reversed(epochs) for m in e.moves if m.partition == partition), None)
    move = next((m for m in since.moves if m.partition == partition), None) if since else None
    done = tree.checkpoints([partition]).get(partition)
    parked = tree.parked().get(partition)
    counts = {w: len(targets[w].partitions) for w in targets if w in live}
    holder = worker_of(own.incarnation) if own and own.incarnation else None
    lag, changed = read_source_of(tree, partition)
    return {
        "partition": partition,
        "group": tree.group,
        "epoch": head.record.epoch,
        "owner": holder,
        "incarnation": own.incarnation if own else None,
        "live": bool(own and own.incarnation in {one.incarnation for one in live.values()}),
        "token": own.token if own else None,
        "target": target,
        "since_epoch": since.epoch if since else None,
        "since": since.find_time(move) if since and move else None,
        "reason": move.reason if move else None,
        "offset": done.record.offset if done else None,
        "lag": lag,
        "last_commit": {
            "run_id": done.record.run_id,
            "at": done.node.mtime / 1000,
            "rows": done.record.rows,
            "seconds": done.record.seconds,
            "epoch": done.record.epoch,
        }
        if done
        else None,
        "parked": view.describe_park(parked.record) if parked else explain_unreadable(tree, partition) or None,
        "rewritten": changed,
        "would_move": list(_list_causes(tree, partition, target, counts)),
    }  # fmt: skip


def _list_causes(tree: "GroupState", partition: str, target: str | None, counts: dict[str, int]) -> Iterator[str]:
    """What would move the partition to another worker, the most certain cause first."""
    pins, overrides = tree.overrides().pins, tree.worker_overrides()
    if partition in pins:
        yield f"It is pinned to {pins[partition]}: `rota pin {quote(partition)} --clear` lets it go"
    if target is None:
        yield "It has no owner: the next worker that may hold it gets it"
        return
    yield f"{target} leaving, `rota drain {target}`, or its session ending"
    yield f"`rota pin {quote(partition)} WORKER`"
    if target in overrides and overrides[target].record.draining:
        yield f"{target} is draining: another worker gets it"
    elif idle := sorted(
        w for w in counts if w in overrides and (overrides[w].record.draining or overrides[w].record.cordoned)
    ):
        yield f"`rota uncordon {idle[0]}`, which takes nothing now"
    elif counts and counts.get(target, 0) > sum(counts.values()) // (len(counts) + 1):
        yield f"One more worker: {target} holds {counts[target]}, and with {len(counts) + 1} it would hold fewer"


def _print_answer(found: dict[str, Any]) -> None:
    last = found["last_commit"]
    lines = [
        ("owner", found["incarnation"] or "nobody", "" if found["live"] or not found["owner"] else "its session ended"),
        ("token", found["token"], ""),
        ("target", found["target"], f"epoch {found['epoch']} is current"),
        ("since", f"epoch {found['since_epoch']}" if found["since_epoch"] else None, view.format_time(found["since"])),
        ("reason", found["reason"], ""),
        ("offset", found["offset"], "" if found["lag"] is None else f"{found['lag']} behind"),
        ("last commit", last and last["run_id"], last and f"{view.format_time(last['at'])}, {last['rows']:,} rows"),
        ("parked", found["parked"], ""),
        ("rewritten", found["rewritten"], ""),
    ]
    view.print_parts(
        "", view.make_table(found["partition"], ["", "", ""], [(k, v, note or " ") for k, v, note in lines]), ""
    )
    view.print_parts("What would move it:", *(f"  {line}" for line in found["would_move"]))
