"""Small files of a table put together, so that its log and its readers stay fast whatever the batches are.

Law: no row, offset, token or schema changes; delta-rs says in the log that no data did (`dataChange`). Nobody waits for it
and nothing fails for it: a commit beside it goes through, a replay beside it plans again, and what was overtaken, or died
halfway, leaves files that nobody sees until the vacuum. It costs a run little: one commit of `EVERY` looks at the sizes, and
puts together the smallest files alone, as far as rewriting them takes some 5 % of the time that Spark took to write them.
"""

import logging
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from rota.ledger.ledger import Ledger

log = logging.getLogger(__name__)
EVERY = 17  # versions; odd, so that it is met where each commit follows a claim
LARGE = 16 << 20  # bytes of a file that is left as it is
FEW = 8  # small files that are left as they are
ONCE, EACH = 64 << 20, 16 << 10  # bytes that are rewritten at most: at all, and for each small file


def is_due(version: int) -> bool:
    """Whether the run that made this version looks: one of all, however many work on the table."""
    return version % EVERY == 0


def compact(ledger: Ledger) -> int:
    """Puts the small files of the table together, if there are many. How many files there are less. Raises nothing."""
    try:
        table = ledger.open()
        return table.compact(partial(_choose_size, ledger)) if table else 0
    except Exception as error:  # whatever it is: the run has done what it was for
        log.warning("table=%s not_compacted=%s", ledger.location, " ".join(str(error).split())[:400])
        return 0


def _choose_size(ledger: Ledger, files: pa.Table) -> int:
    size = choose_target(files["size_bytes"])
    small = files.filter(pc.less_equal(files["size_bytes"], size))["path"].to_pylist()
    if all(map(ledger.files.is_plain, small)):
        return size
    log.warning("table=%s not_compacted=its files hold times that other readers take for others", ledger.location)
    return 0


def choose_target(sizes: pa.ChunkedArray) -> int:
    """The size up to which files are put together, into files of that size; 0: they stay as they are."""
    import numpy as np  # `rota status` opens tables, and does without

    small = np.sort(sizes.filter(pc.less_equal(sizes, LARGE)).to_numpy())
    much = np.cumsum(small) > ONCE + EACH * np.arange(1, len(small) + 1)
    size = int(small[much.argmax()]) - 1 if much.any() else LARGE
    return size if np.searchsorted(small, size, side="right") >= FEW else 0
