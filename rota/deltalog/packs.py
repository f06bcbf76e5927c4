"""Old commits of a log in packs: many commits in one Parquet file beside the log, byte for byte, so that the log's folder
stays small.

Law: pack n holds the versions [n * PACKED, (n + 1) * PACKED). A pack is published as a whole and never changes under its
name. A commit is read from its pack if the log's folder no longer has the commit.
"""

import uuid
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rota.deltalog.parquet import write_parquet

FOLDER = "_past"  # beside the log; Delta's readers and vacuums ignore names that begin with `_`
PACKED = 500  # commits
MAX_PACKS = 4  # that a log keeps in memory
SCHEMA = pa.schema([("version", pa.int64()), ("commit", pa.binary())])
Pack = Mapping[int, bytes]  # version -> commit
PackKey = tuple[str, int, int]  # path, time and size of a pack


def name_pack(number: int) -> str:
    """Return the path of the pack below the table's location."""
    return f"{FOLDER}/{number * PACKED:020}.parquet"


def read_packed(known: dict[PackKey, Pack], store: fs.FileSystem, version: int) -> bytes:
    """Return the commit of this version.

    Args:
        known: packs that were read before. The call adds the pack of this version, and drops the oldest above `MAX_PACKS`.

    Raises: FileNotFoundError if no pack has the commit, OSError, ArrowException.
    """
    path = name_pack(version // PACKED)
    found = store.get_file_info(path)
    if found.type != fs.FileType.File:
        raise FileNotFoundError(path)
    key = (path, found.mtime_ns, found.size)
    pack = known.get(key) or read_pack(store, path)
    known[key] = pack
    while len(known) > MAX_PACKS:
        known.pop(next(iter(known)), None)
    return pack[version]


def read_pack(store: fs.FileSystem, path: str) -> Pack:
    """Return all commits of the pack. Raises OSError, ArrowException."""
    with store.open_input_file(path) as file:
        rows = pq.read_table(file, columns=SCHEMA.names)
    return dict(zip(*(rows[name].to_pylist() for name in SCHEMA.names), strict=True))


def write_pack(store: fs.FileSystem, number: int, commits: Iterable[bytes]) -> None:
    """Publish the pack. An earlier pack with the same commits is replaced. Raises OSError, ArrowException."""
    versions = range(number * PACKED, (number + 1) * PACKED)
    store.create_dir(FOLDER)
    path = f"{FOLDER}/{uuid.uuid4().hex}.tmp"
    write_parquet(store, path, [pa.table([list(versions), list(commits)], schema=SCHEMA)], SCHEMA, compression="zstd")
    store.move(path, name_pack(number))


def list_packs(store: fs.FileSystem) -> list[int]:
    """Return the numbers of the packs, in order."""
    found = store.get_file_info(fs.FileSelector(FOLDER, allow_not_found=True))
    names = (one.base_name.removesuffix(".parquet") for one in found if one.base_name.endswith(".parquet"))
    return sorted(int(name) // PACKED for name in names if name.isdigit())
