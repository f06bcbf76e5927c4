"""The storage of a stack's landing folders and tables: its state folder, or a bucket.

Invariant: the verifier opens them by this module, which uses none of rota's own stores.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rota.local.bucket import BucketServer
from rota.local.folder import StateFolder

if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class Storage:
    """The values of ROTA_LANDING and ROTA_TABLES, and the environment of a process that uses them.

    `open` opens a place below one of the two as a filesystem of Arrow."""

    landing: str
    tables: str
    open: "Callable[[str], fs.FileSystem]"
    environ: Mapping[str, str] = field(default_factory=dict)


def open_folder(path: str | Path) -> "fs.FileSystem":
    """Open a folder of this machine."""
    from pyarrow import fs

    return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())


def open_below(files: "fs.FileSystem", *names: str) -> "fs.FileSystem":
    """Open the folder of these names below an open one."""
    from pyarrow import fs

    return fs.SubTreeFileSystem("/".join(names), files)


def store_on_disk(state: StateFolder) -> Storage:
    """Return the storage in the state folder."""
    return Storage(str(state.landing.resolve()), str(state.tables.resolve()), open_folder)


def store_in_bucket(server: BucketServer, name: str = "") -> Storage:
    """Return the storage in the bucket of this name; without a name, in a new bucket."""
    bucket = server.make_bucket(name)
    plain = {"AWS_ALLOW_HTTP": "true"}  # rota derives it from the address; the user's own delta-rs needs the variable
    return Storage(f"s3://{bucket}/landing", f"s3://{bucket}/tables", server.open, {**server.environ, **plain})
