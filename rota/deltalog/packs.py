"""Old commits of a log, packed: many in one Parquet file beside the log, byte for byte, so that its folder stays small.

Law: pack n holds the versions from n * PACKED to before (n + 1) * PACKED, all of them. It is published as a whole, never
changes under its name, and is asked where the log has the commit no more.
"""

import uuid
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

FOLDER = "_past"  # beside the log; what begins with `_` no reader of Delta and no vacuum looks at
PACKED = 500  # commits
KEPT = 4  # packs that a process keeps
SCHEMA = pa.schema([("version", pa.int64()), ("commit", pa.binary())])
Pack = Mapping[int, bytes]  # version -> commit
READ: dict[tuple[object, ...], Pack] = {}  # by location, path, time and size


def name_pack(number: int) -> str:
    """Where the pack is, below the table's location."""
    return f"{FOLDER}/{number * PACKED:020}.parquet"


def read_packed(location: str, store: fs.FileSystem, version: int) -> bytes:
    """The commit of this version. Raises FileNotFoundError where it is in no pack, OSError, ArrowException."""
    path = name_pack(version // PACKED)
    found = store.get_file_info(path)
    if found.type != fs.FileType.File:
        raise FileNotFoundError(path)
    key = (location, path, found.mtime_ns, found.size)
    if key not in READ:
        pack = read_pack(store, path)
        while len(READ) >= KEPT:
            READ.pop(next(iter(READ)), None)
        READ[key] = pack
    return READ[key][version]


def read_pack(store: fs.FileSystem, path: str) -> Pack:
    """All of it. Raises OSError, ArrowException."""
    with store.open_input_file(path) as file:
        rows = pq.read_table(file, columns=SCHEMA.names)
    return dict(zip(*(rows[name].to_pylist() for name in SCHEMA.names), strict=True))


def write_pack(store: fs.FileSystem, number: int, commits: Iterable[bytes]) -> None:
    """Publishes the pack: another one with the same commits may be there already. Raises OSError, ArrowException."""
    versions = range(number * PACKED, (number + 1) * PACKED)
    store.create_dir(FOLDER)
    path = f"{FOLDER}/{uuid.uuid4().hex}.tmp"
    with store.open_output_stream(path) as file:
        pq.write_table(pa.table([list(versions), list(commits)], schema=SCHEMA), file, compression="zstd")
    store.move(path, name_pack(number))


def list_packs(store: fs.FileSystem) -> list[int]:
    """The numbers of the packs, in order."""
    found = store.get_file_info(fs.FileSelector(FOLDER, allow_not_found=True))
    names = (one.base_name.removesuffix(".parquet") for one in found if one.base_name.endswith(".parquet"))
    return sorted(int(name) // PACKED for name in names if name.isdigit())
