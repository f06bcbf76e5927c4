"""The keys of the metadata on Dagster's page, for the code that writes and reads them; docs/protocol.md lists them.

Invariant: the keys in `READ_BACK` keep their names. Under another name, a batch of a killed run is never reported, a purge
removes a run that is needed, no alert names a need, and `rota history --since` reads no epoch.
"""

import dagster as dg

from rota import ids

OFFSET, TOKEN = "offset", "token"  # of the newest reported batch of a partition
REPLAYED = "replayed"  # of a replay: such a materialization is no batch
NEEDS = "needs"  # of a check: alerts are made from them
ERROR = ids.ERROR_KIND  # of a failed step: the kind of its error
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
    """Return whether the materialization reports a consumed batch."""
    return made is not None and REPLAYED not in made.metadata
