"""How a task of Spark makes text of bytes. It runs where Spark's workers do and is sent there as code: it needs pyarrow
there, and nothing of rota.

Law: a value whose bytes are not in the encoding has no text; nothing is replaced in it. The header of a file is the first of
its lines, wherever Spark cut the file.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterable[pa.RecordBatch]


def make_decoder(encoding: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` runs: it adds the text of the first column, which is null where that is not in the encoding."""

    def read(value: bytes | None) -> str | None:
        try:
            return None if value is None else value.decode(encoding)
        except UnicodeError:
            return None

    def decode(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = pa.array([read(value) for value in batch.column(0).to_pylist()], pa.string())
            yield pa.RecordBatch.from_arrays([*batch.columns, texts], names=[*batch.schema.names, "text"])

    return decode


def make_header_reader(
    names: Sequence[str], sep: str, quote: str, escape: str, encoding: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` runs: it drops the header of each file, and raises ValueError if it has not these names.

    The columns are the line, the partition, the offset, and whether the line is of the beginning of its file."""

    def split(line: str) -> list[str]:
        if len(sep) > 1:
            return [one.strip(quote or None) for one in line.split(sep)]
        how = {"delimiter": sep, "quotechar": quote} if quote else {"delimiter": sep, "quoting": csv.QUOTE_NONE}
        escapes = {"escapechar": escape, "doublequote": False} if quote and escape != quote else {}
        return next(csv.reader([line], **how, **escapes), [])  # type: ignore[arg-type]

    def check(line: bytes) -> None:
        found = split(line.decode(encoding, "replace").removeprefix("\ufeff"))
        if [one.lower() for one in found] != [one.lower() for one in names]:
            raise ValueError(f"CSV header does not conform to the schema. Expected: {list(names)} but found: {found}")

    def drop(batches: Batches) -> Iterator[pa.RecordBatch]:
        done: set[tuple[str, int]] = set()
        for batch in batches:
            lines, *place, begins = batch.columns
            keep, begun = [True] * len(batch), pc.indices_nonzero(begins).to_pylist()
            places = zip(*(of.take(pa.array(begun, pa.int32())).to_pylist() for of in place), strict=True)
            for at, where in zip(begun, places, strict=True):
                if where not in done:
                    check(lines[at].as_py())
                    done.add(where)
                    keep[at] = False
            yield batch.select(range(3)).filter(pa.array(keep, pa.bool_()))

    return drop
