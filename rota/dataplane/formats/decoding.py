"""Decodes bytes in a Spark task, and checks the headers of CSV files. The module is sent to Spark's workers as code: it
needs pyarrow there, and nothing of rota.

Invariant: the text of a value is null if its bytes are not in the encoding; no character is replaced. The header of a file
is its first line, wherever Spark splits the file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Batches = Iterable[pa.RecordBatch]


def make_decoder(encoding: str) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that adds the text of the first column.

    The text is null for bytes that are not in the encoding.
    """

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
    names: Sequence[str], split: Callable[[str], list[str]], encoding: str
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that drops the header of each file.

    Args:
        names: the declared columns, in order.
        split: returns the fields of a line.
        encoding: a name that Python knows.

    The function takes columns of the line, the partition, the offset, and whether the line may be the first of its file. It
    raises ValueError if a header does not have these names.
    """

    def check(line: bytes) -> None:
        found = split(line.decode(encoding, "replace").rstrip("\r\n").removeprefix("\ufeff"))
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
