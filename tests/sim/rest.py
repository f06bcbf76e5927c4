"""What of a simulated world is not at rest yet."""

from rota.ids import worker_of
from simulator.stage import Stage


def list_unsettled(stage: Stage) -> list[str]:
    """A line each: placed, owned by the newest, consumed to the end, and noted."""
    truth, lines = stage.truth, []
    newest: dict[str, str] = {}
    for incarnation in sorted(truth.live, key=truth.live.__getitem__):
        newest[worker_of(incarnation)] = incarnation
    for partition in truth.load:
        worker, owner = stage.checker.target.get(partition), truth.owner.get(partition)
        if worker is None:
            lines.append(f"{partition} is not placed")
        elif owner is None or owner != newest.get(worker):
            lines.append(f"{partition} is owned by {owner}, wanted {newest.get(worker)}")
        elif unread := find_unread(stage, partition):
            lines.append(unread)
    return lines


def find_unread(stage: Stage, partition: str) -> str:
    """What of the partition is not consumed up to its end, or not noted; empty if all is."""
    seen, end = stage.checker.log.seen[partition], stage.read_end(partition)
    if seen.offset == end and seen.checkpoint == seen.offset:
        return ""
    return f"{partition}: {end} there, {seen.offset} in the table, {seen.checkpoint} noted"
