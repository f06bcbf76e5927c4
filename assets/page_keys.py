"""The keys of what the assets tell Dagster's page, for who writes and who reads them; docs/protocol.md lists them.

Law: what is read back (`READ_BACK`) decides. Renamed, what a killed run could not tell is never told, a run that is needed
is purged, and no alert names a need. So both sides take the key from here, and an older rota's stays readable.
"""

import dagster as dg

from rota.ids import ERROR_KIND

OFFSET, TOKEN = "offset", "token"  # where the page stands with a partition: what lies behind it is still to be told
REPLAYED = "replayed"  # tells of a replay: such a materialization is no batch
NEEDS = "needs"  # of a check: what an alert is made from
ERROR = ERROR_KIND  # of a failed step: how many fail of one thing
READ_BACK = (OFFSET, TOKEN, REPLAYED, NEEDS, ERROR)

ROWS, BAD_ROWS, SECONDS, LAG, EPOCH = "rows", "quarantined rows", "seconds", "lag", "epoch"
OFFSETS, READ_FROM, LAST_READ, FIRST_ROWS = "offsets", "read from", "last read", "first rows"
WORKER, INCARNATION = "worker", "incarnation"
TABLE_VERSION, COMMITTED_BY, HEALED = "table version", "committed by", "healed"
NOTHING_NEW, NOTHING_TO_REPLAY = "nothing new", "nothing to replay"
MERGED, MERGED_INTO, BYTES_WRITTEN = "files put together", "into files", "bytes written"  # of a maintenance
FILES_LEFT, BYTES_LEFT = "files left to the next run", "bytes left to the next run"
COMMITS_PACKED, VACUUMED, TIDIED = "commits packed", "files that nobody needed", "consumed files taken away"
ROW_COUNT, SCHEMA = "dagster/partition_row_count", "dagster/column_schema"  # names of Dagster's


def tells_of_batch(made: dg.AssetMaterialization | None) -> bool:
    """Whether it tells of a batch that was consumed."""
    return made is not None and REPLAYED not in made.metadata
