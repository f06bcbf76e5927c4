"""Try a partition that waits for a person again: `rota retry`, also with files that were mended in place.

Law: an offset keeps its file, and what is read is what the index says. Only of offsets that the table has not consumed the
index is told what their files are now; the table's log says so first, and whoever read them as they were commits nothing.
"""

import uuid

from rota.coordination.parking import unpark
from rota.coordination.tree import Tree
from rota.dataplane.landing import Landing
from rota.dataplane.ledger import Tables
from rota.dataplane.table import Batch
from rota.errors import ConfigError, RotaError
from rota.pipeline import Pipeline
from rota.restored import forgotten


def retry(tree: Tree, partition: str, pipeline: Pipeline | None, who: str = "") -> tuple[str, ...]:
    """Lets the partition go on at the next look; the files that are taken as they are now. `pipeline` is None where its
    file is not to be had here. Raises ConfigError where one of the files is still being written: then nothing changed."""
    try:
        taken = _taken(tree, partition, pipeline, who) if pipeline else ()
    except ConfigError:
        raise
    except RotaError:
        taken = ()  # the run that goes on says what is wrong
    unpark(tree, partition)
    return taken


def _taken(tree: Tree, partition: str, pipeline: Pipeline, who: str) -> tuple[str, ...]:
    source = Landing.of(pipeline)
    main = Tables.of(pipeline, tree.group, tree.meta().id).main
    standing = main.standing((partition,))[partition]
    if standing.offset is None or standing.token is None or forgotten(source, main, {partition: standing}):
        return ()
    unread = range(standing.offset, source.given((partition,))[partition])
    changed = source.rewritten({partition: unread})[partition]
    if not changed:
        return ()
    if moving := source.moving(partition, changed):
        raise ConfigError(
            f"{partition}: {', '.join(moving)} changed less than {source.declared.settle:g} s ago. Once nobody writes it "
            f"any more: rota retry {partition}"
        )
    now = source.as_now({partition: (unread.start, unread.stop)})
    claimed = main.claim({partition: standing.token}, {partition: standing.offset})
    if claimed.newer or claimed.offsets[partition] != standing.offset:
        return ()
    here = {partition: (standing.offset, standing.offset)}
    main.commit(claimed, Batch(uuid.uuid4().hex, who or "retry", "", "", 0, here, rows={partition: 0}, op="retry"))
    now.index.keep((partition,))
    return tuple(source.place(partition, offset) for offset in changed)
