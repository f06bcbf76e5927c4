"""The maintenance of a pipeline's tables: files put together, logs shortened, and what nobody needs taken away.

Laws:
1. Nobody waits for it: it takes no partition, no lock and no token, and it needs no ZooKeeper. Beside a run, or another
   maintenance, it is the one that loses, and the next one goes on.
2. It may die anywhere. What it leaves half done nobody sees, and a later one finds it.
3. A step that fails keeps no other from being taken; what failed is told at the end.
4. No run needs it: without it tables only grow. So that it is overdue calls nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from rota.dataplane.ports import Tidied
from rota.errors import ForeignTable, RotaError
from rota.ledger.identity import explain_taken
from rota.ledger.ledger import Ledger
from rota.ledger.merging import A_NIGHT, Merged, merge
from rota.pipeline import Pipeline
from rota.registry import open_source, open_tables
from rota.run.tidy import tidy_all

T = TypeVar("T")
RETENTION = timedelta(days=7)  # of files that no version needs


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a maintenance did: how files were put together, how many commits were packed, and how many files and folders that
    nobody needed are gone; how many consumed files of the source were taken away (`after`), which is left where a run died;
    and what failed, a line each."""

    main: Merged
    quarantine: Merged
    packed: int
    vacuumed: int
    tidied: int
    failed: tuple[str, ...]


def maintain(pipeline: Pipeline) -> Maintained:
    """Maintains the pipeline's tables once; what one call rewrites is bounded. Raises ForeignTable, EnvironmentFailed and
    ConfigError where it cannot begin."""
    tables = open_tables(pipeline, pipeline.group)
    failed: list[str] = []

    def attempt(step: Callable[[], T], without: T) -> T:
        try:
            return step()
        except RotaError as error:
            failed.extend({str(error)}.difference(failed))
            return without

    _check_owner(tables.main)
    tidied = attempt(lambda: tidy_all(open_source(pipeline), tables.main), Tidied())
    return Maintained(
        main=attempt(lambda: merge(tables.main, A_NIGHT), Merged()),
        quarantine=attempt(lambda: merge(tables.quarantine, A_NIGHT), Merged()),
        packed=attempt(tables.shorten_logs, 0),
        vacuumed=attempt(lambda: len(tables.vacuum(RETENTION, dry_run=False)), 0),
        tidied=tidied.taken,
        failed=(*failed, *tidied.stays),
    )


def _check_owner(main: Ledger) -> None:
    """Raises ForeignTable where the table is another pipeline's, whatever the ZooKeeper."""
    table = main.open()
    if table and (whose := explain_taken(table, main.pipeline, main.group)):
        raise ForeignTable(f"{whose}. Nothing was done")
