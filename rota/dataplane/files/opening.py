"""Open the landing folder of a declared path, on a disk or in a bucket."""

from pathlib import Path

from rota.dataplane.files.bucket import BucketLanding
from rota.dataplane.files.disk import DiskLanding
from rota.dataplane.files.landing import Landing
from rota.settings import resolve_place
from rota.stores import READ_BY_SPARK, is_url


def open_landing(path: str) -> Landing:
    """Return the landing folder at the path; the environment's variables are filled in."""
    place = resolve_place(path, READ_BY_SPARK)
    return BucketLanding(place) if is_url(place) else DiskLanding(Path(place))
