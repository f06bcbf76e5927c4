"""`rota retry`: retries a partition that waits for an operator, also with files that were repaired in place.

Law: an offset keeps its file, and a run reads what the index describes. The index gets the files' new identities only
for offsets that the table has not consumed. The table's log records the retry before that, so that no run that read the
former files can commit.
"""

import uuid

from rota.coordination.group_state import GroupState
from rota.coordination.parking import unpark
from rota.dataplane.ports import ASSIGN, Consumed, HasFiles, Ports, Query
from rota.errors import ConfigError, RotaError
from rota.ids import quote
from rota.ledger.values import Batch
from rota.run.spans import find_changed


def retry(tree: GroupState, partition: str, ports: Ports | None, user: str = "") -> tuple[str, ...]:
    """Unpark the partition. Return the changed files that the next run reads in their present state.

    `ports` is None if the pipeline's file is not available here. Raises ConfigError if one of the files is still being
    written; then nothing changed.
    """
    try:
        taken = _take_anew(partition, ports, user) if ports else ()
    except ConfigError:
        raise
    except RotaError:
        taken = ()  # the next run reports what is wrong
    unpark(tree, partition)
    return taken


def _take_anew(partition: str, ports: Ports, user: str) -> tuple[str, ...]:
    source, main = ports.source, ports.main
    if not isinstance(source, HasFiles):
        return ()
    position = main.read_positions((partition,))[partition]
    if position.offset is None or position.token is None:
        return ()
    seen = source.observe((partition,), Query(consumed=Consumed({partition: position}, main)))
    if seen.lost:
        return ()
    unread = position.offset, seen.assigned[partition]
    changed = find_changed(source, {partition: [unread]}).get(partition, [])
    if not changed:
        return ()
    if changing := ", ".join(one.name for one in changed if one.state == "changing"):
        raise ConfigError(
            f"{partition}: {changing} changed a moment ago. Once it is no longer written: rota retry {quote(partition)}"
        )
    now = ports.reread({partition: unread}).source
    claimed = main.claim({partition: position.token}, {partition: position.offset})
    if claimed.newer or claimed.offsets[partition] != position.offset:
        return ()
    here = {partition: (position.offset, position.offset)}
    main.commit(claimed, Batch(uuid.uuid4().hex, user or "retry", "", "", 0, here, rows={partition: 0}, op="retry"))
    now.observe((partition,), ASSIGN)
    return tuple(one.name for one in changed)
