"""The maintenance of a pipeline's tables: it merges small files, packs the logs, vacuums, and removes consumed files.

Laws:
1. A maintenance claims no partition, lock or token, and needs no ZooKeeper. If it conflicts with a run or with another
   maintenance, it gives up that step, and the next maintenance continues.
2. A maintenance may be killed at any point. No reader sees unfinished work. A later maintenance repeats or deletes it.
3. A failed step does not stop the other steps. The result lists the failures.
4. Without maintenance runs still work, and tables grow. So an overdue maintenance causes no alert.
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
    """The result of a maintenance.

    `main` and `quarantine`: merged files. `packed`: number of commits. `vacuumed`: number of deleted files and folders.
    `tidied`: number of consumed files that it removed (`after`) for a dead run. `failed`: one line per failure.
    """

    main: Merged
    quarantine: Merged
    packed: int
    vacuumed: int
    tidied: int
    failed: tuple[str, ...]


def maintain(pipeline: Pipeline) -> Maintained:
    """Maintain the pipeline's tables once. One call rewrites a bounded amount.

    Raises:
        ForeignTable: the table belongs to another pipeline.
        EnvironmentFailed: the table or the source does not answer.
        ConfigError: the pipeline's settings are not valid.
    """
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
    """Raise ForeignTable if the table belongs to another pipeline, in any ZooKeeper."""
    table = main.open()
    if table and (whose := explain_taken(table, main.pipeline, main.group)):
        raise ForeignTable(f"{whose}. Nothing was done")
