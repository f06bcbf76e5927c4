"""Which index may take consumed files away from a landing folder: a hidden file in the folder names it.

Two tables that take files away from one folder would divide its rows: each file is in the table whose run reads it first,
and no report names the others. So the first index to consume writes its id into the folder, and any other one is refused.

Law: the file is written only where there is none. Of two indexes that write it at once one wins, on a disk or in a bucket.

Law: a folder that is away is not written to: its mount point would look like a folder whose files are gone.
"""

import json

from rota.dataplane.files.landing import Landing
from rota.errors import EnvironmentFailed, ForeignTable
from rota.stores import join, put_new, read

MARK = ".rota-owner"


def claim(landing: Landing, index: str, table: str) -> None:
    """Write the mark if the folder has none.

    Args:
        index: the id of the index that gives the files their offsets.
        table: where the tables of that index are, for the operator.

    Raises: ForeignTable if the folder belongs to another index; OSError if the mark cannot be read or written.
    """
    owner = _read(landing.place)
    if owner is None and index and not landing.is_away():
        put_new(landing.place, MARK, json.dumps({"index": index, "table": table}).encode())
        owner = _read(landing.place)
    if owner and owner["index"] != index:
        raise ForeignTable(
            f"Consumed files of {landing.place} are taken away by the table at {owner['table']} ({MARK}): two such tables "
            f"would divide the rows. Nothing was read. Give each table its own landing folder; if that table was dropped or "
            f"rebuilt, delete {join(landing.place, MARK)}"
        )


def _read(place: str) -> dict[str, str] | None:
    try:
        found = json.loads(read(place, MARK))
        return {"index": str(found["index"]), "table": str(found["table"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise EnvironmentFailed(
            f"{join(place, MARK)} cannot be read. Delete it; the next run writes it again"
        ) from None
