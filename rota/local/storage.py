"""Where the landing folders and tables of a stack are: in its state folder, or in a bucket.

Law: whoever judges what a stack did opens them here. Nothing of rota's own stores is used.
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
    """`landing` and `tables` are what ROTA_LANDING and ROTA_TABLES say. `environ` is what a process is told that is to come
    there. `open` gives what is below one of the two, as Arrow has files."""

    landing: str
    tables: str
    open: "Callable[[str], fs.FileSystem]"
    environ: Mapping[str, str] = field(default_factory=dict)


def open_folder(path: str | Path) -> "fs.FileSystem":
    """What is below a folder of this machine."""
    from pyarrow import fs

    return fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())


def open_below(files: "fs.FileSystem", *names: str) -> "fs.FileSystem":
    """What is called so below what was opened."""
    from pyarrow import fs

    return fs.SubTreeFileSystem("/".join(names), files)


def store_on_disk(state: StateFolder) -> Storage:
    """Both in the state folder."""
    return Storage(str(state.landing.resolve()), str(state.tables.resolve()), open_folder)


def store_in_bucket(server: BucketServer, name: str = "") -> Storage:
    """Both in the bucket of this name; without a name, in a new one."""
    bucket = server.make_bucket(name)
    plain = {"AWS_ALLOW_HTTP": "true"}  # rota sees it by the address; the authors' own delta-rs wants to be told
    return Storage(f"s3://{bucket}/landing", f"s3://{bucket}/tables", server.open, {**server.environ, **plain})
