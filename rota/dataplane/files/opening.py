"""Which landing folder a declared path is: one on a disk, or one in a bucket."""

from pathlib import Path

from rota.dataplane.files.bucket import BucketLanding
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.landing import Landing
from rota.settings import resolve_place
from rota.stores import READ_BY_SPARK, is_url


def open_landing(path: str, stage: Path) -> Landing:
    """The landing folder that is declared so, with the environment's variables filled in; `stage` is for a disk's links."""
    place = resolve_place(path, READ_BY_SPARK)
    return BucketLanding(place) if is_url(place) else DiskLanding(Path(place), stage)
