"""One pipeline with its files: what is generated, consumed, judged and shrunk."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.conservation.shape import Schema
from tests.conservation.transforms import Transform

STORES = ("disk", "bucket")


@dataclass(frozen=True, slots=True)
class File:
    """`modified` is the time that its file has, in ns; None: that of its writing. In a bucket it is always that."""

    key: str
    name: str
    data: bytes
    modified: int | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """`whence` is the seed and the number that make it again; `engine` is one of `engines`, `store` one of `STORES`, where
    its files and its tables lie, and `drawn` what it was drawn of."""

    whence: str
    format: str
    schema: Schema
    options: Mapping[str, str]
    ratio: float
    files: tuple[File, ...]
    transform: Transform = field(default_factory=Transform)
    engine: str = "compiled"
    store: str = "disk"
    drawn: Counter[str] = field(default_factory=Counter)

    def by_key(self) -> dict[str, list[File]]:
        """The files of each partition in the order of their offsets."""
        found: dict[str, list[File]] = defaultdict(list)
        for file in sorted(self.files, key=lambda f: (f.key, f.name)):
            found[file.key].append(file)
        return dict(found)
