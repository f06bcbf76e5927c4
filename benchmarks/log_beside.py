"""One look and one commit, at the end of a log of many commits: by `rota.deltalog` and by deltalake.

python -m benchmarks.log_beside
"""

from collections.abc import Callable
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import click
from deltalake import CommitProperties, DeltaTable, Transaction

from rota.deltalog.delta_log import DeltaLog
from rota.deltalog.port import Draft
from rota.ledger.ledger import SETTINGS
from rota.ledger.schema import FIRST

LOGS, TIMES = (20, 2_000, 6_000), 21


def commit(log: DeltaLog) -> None:
    """Set the transaction to the next number, by rota."""
    table = log.open()
    assert table
    table.append(Draft(table, {"a": (table.transaction("a") or 0) + 1}))


def commit_by_deltalake(table: DeltaTable) -> None:
    """Set the transaction to the next number, by deltalake."""
    table.update_incremental()
    moved = CommitProperties(app_transactions=[Transaction("a", (table.transaction_version("a") or 0) + 1)])
    table.create_write_transaction([], "append", table.schema(), commit_properties=moved)


def measure(do: Callable[[], None]) -> float:
    """The median in ms."""
    took = []
    for _ in range(TIMES):
        begun = perf_counter()
        do()
        took.append(perf_counter() - begun)
    return median(took) * 1000


def main() -> None:
    """Print one line for each length of the log."""
    for many in LOGS:
        with TemporaryDirectory() as folder:
            log = DeltaLog(folder)
            log.create(FIRST, SETTINGS)
            for _ in range(many):
                commit(log)
            kept = DeltaTable(folder)
            ours, theirs = measure(partial(commit, log)), measure(partial(commit_by_deltalake, kept))
            anew = measure(lambda folder=folder: commit_by_deltalake(DeltaTable(folder)))
            click.echo(
                f"{many:>6,} commits: rota {ours:.1f} ms, deltalake kept {theirs:.1f} ms, opened anew {anew:.1f} ms"
            )


if __name__ == "__main__":
    main()
