"""The keys of the metadata on Dagster's page, for the code that writes and reads them; docs/protocol.md lists them.

Invariant: the keys in `READ_BACK` keep their names. Under another name, a batch of a killed run is never reported, a purge
removes a run that is needed, no alert names a need, and `rota history --since` reads no epoch.
"""

import dagster as dg

from rota import ids

OFFSET, TOKEN = "offset", "token"  # the reported offset of a partition: later batches are not reported yet
REPLAYED = "replayed"  # of a replay: such a materialization is no batch
NEEDS = "needs"  # of a check: what an alert is made from
ERROR = ids.ERROR_KIND  # of a failed step: how many fail of one thing
HAPPENED, EPOCH, MOVES, MOVED, PLACED = ids.HAPPENED, ids.EPOCH, ids.MOVES, ids.MOVED, ids.PLACED  # of an epoch
READ_BACK = (OFFSET, TOKEN, REPLAYED, NEEDS, ERROR, HAPPENED, EPOCH, MOVES, MOVED, PLACED)

ROWS, BAD_ROWS, SECONDS, LAG = "rows", "quarantined rows", "seconds", "lag"
OFFSETS, READ_FROM, LAST_READ, FIRST_ROWS = "offsets", "read from", "last read", "first rows"
WORKER, INCARNATION = "worker", "incarnation"
TABLE_VERSION, COMMITTED_BY, HEALED = "table version", "committed by", "healed"
NOTHING_NEW, NOTHING_TO_REPLAY = "nothing new", "nothing to replay"
MERGED, MERGED_INTO, BYTES_WRITTEN = "files put together", "into files", "bytes written"  # of a maintenance
FILES_LEFT, BYTES_LEFT = "files left to the next run", "bytes left to the next run"
COMMITS_PACKED, VACUUMED, TIDIED = "commits packed", "unused files deleted", "consumed files taken away"
ROW_COUNT, SCHEMA = "dagster/partition_row_count", "dagster/column_schema"  # names of Dagster's


def is_of_batch(made: dg.AssetMaterialization | None) -> bool:
    """Whether the materialization reports a consumed batch."""
    return made is not None and REPLAYED not in made.metadata
