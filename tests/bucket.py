"""A folder or a bucket that a test gives a pipeline, and what a bucket holds."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import ObjectStore

from rota.local.bucket import BucketServer
from rota.stores import is_url, open_objects

RACERS = 16


@dataclass(frozen=True)
class Place:
    """What a pipeline calls `address`, and in which folder its files are (`files`), so that a checker reads them without
    asking the server: on a disk the same path, of a bucket the folder in which the server keeps it."""

    address: str
    files: Path

    def __truediv__(self, name: str) -> "Place":
        return Place(f"{self.address}/{name}", self.files / name)

    def put(self, path: str, content: bytes) -> None:
        """Lands one file, or overwrites it."""
        if is_url(self.address):
            open_objects(self.address).put(path, content)
            return
        file = self.files / path
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}")
        aside.write_bytes(content)
        aside.rename(file)


def on_disk(folder: Path) -> Place:
    """This folder."""
    return Place(str(folder), folder)


def in_bucket(server: BucketServer) -> Place:
    """A new bucket."""
    name = server.make_bucket()
    return Place(f"s3://{name}", server.data / name)


def list_objects(store: ObjectStore, prefix: str = "") -> dict[str, int]:
    """Key -> bytes of all below the prefix."""
    return {str(one["path"]): int(one["size"]) for page in obstore.list(store, prefix) for one in page}


def count_won(location: str, keys: int) -> int:
    """How many puts of what is absent went through, where `RACERS` threads at once put each of so many keys."""
    store, barrier = open_objects(location), threading.Barrier(RACERS)

    def race(racer: int) -> int:
        won = 0
        for key in range(keys):
            barrier.wait()
            try:
                obstore.put(store, f"{key}", str(racer).encode() * 2000, mode="create", use_multipart=False)
                won += 1
            except AlreadyExistsError:
                pass
        return won

    with ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(race, range(RACERS)))
