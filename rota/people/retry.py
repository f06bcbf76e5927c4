"""Try a partition that waits for a person again: `rota retry`, also with files that were mended in place.

Law: an offset keeps its file, and what is read is what the index says. Only of offsets that the table has not consumed the
index is told what their files are now; the table's log says so first, and whoever read them as they were commits nothing.
"""

import uuid

from rota.coordination.group_state import GroupState
from rota.coordination.parking import unpark
from rota.dataplane.ports import ChangesInPlace, Ports
from rota.errors import ConfigError, RotaError
from rota.ids import quote
from rota.ledger.values import Batch
from rota.run.restored import find_lost_offsets


def retry(tree: GroupState, partition: str, ports: Ports | None, who: str = "") -> tuple[str, ...]:
    """Lets the partition go on at the next look; the files that are taken as they are now. `ports` is None where the
    pipeline's file is not to be had here. Raises ConfigError where one of the files is still being written: then nothing
    changed."""
    try:
        taken = _take_anew(partition, ports, who) if ports else ()
    except ConfigError:
        raise
    except RotaError:
        taken = ()  # the run that goes on says what is wrong
    unpark(tree, partition)
    return taken


def _take_anew(partition: str, ports: Ports, who: str) -> tuple[str, ...]:
    source, main = ports.source, ports.main
    if not isinstance(source, ChangesInPlace):
        return ()
    standing = main.read_positions((partition,))[partition]
    if standing.offset is None or standing.token is None or find_lost_offsets(source, main, {partition: standing}):
        return ()
    unread = standing.offset, source.read_assigned_ends((partition,))[partition]
    changed = source.find_rewritten({partition: [unread]})[partition]
    if not changed:
        return ()
    if unsettled := source.explain_unsettled(partition, changed):
        raise ConfigError(f"{partition}: {unsettled}. Once nobody writes it any more: rota retry {quote(partition)}")
    now = ports.reread({partition: unread}).source
    claimed = main.claim({partition: standing.token}, {partition: standing.offset})
    if claimed.newer or claimed.offsets[partition] != standing.offset:
        return ()
    here = {partition: (standing.offset, standing.offset)}
    main.commit(claimed, Batch(uuid.uuid4().hex, who or "retry", "", "", 0, here, rows={partition: 0}, op="retry"))
    if isinstance(now, ChangesInPlace):
        now.keep_identities((partition,))
    return tuple(source.locate(partition, offset) for offset in changed)
