"""Lets rota's own path consume a case: a declared pipeline, the verb `consume`, Spark, Delta tables."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rota.dataplane import names
from rota.local.bucket import BucketServer
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.bucket import Place, in_bucket, on_disk
from tests.conservation import checker, transforms
from tests.conservation.case import Case
from tests.conservation.checker import Fault, Judgement
from tests.conservation.engines import ENGINES
from tests.conservation.shape import ddl
from tests.dataplane.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Play:
    """A case whose files were consumed into `table` as far as that goes. `partitions` has the partition of each key, and
    `parked` why a partition went no further."""

    case: Case
    table: Path
    partitions: Mapping[str, str]
    parked: Mapping[str, str]

    def judge(self) -> Judgement:
        """What its tables are now, against the oracle."""
        columns = self.case.transform.names or tuple(c.name for c in self.case.schema)
        return checker.judge(self.case, checker.read_tables(self.table, columns), self.partitions, self.parked)


def pipeline(case: Case) -> str:
    """The pipeline file, after the world's header."""
    transform = ", transform=transform" if case.transform.text else ""
    return (
        f"{transforms.source(case.transform)}pipeline = Pipeline(source=source(format={case.format!r}, "
        f"schema={ddl(case.schema)!r}, options={dict(case.options)!r}), table=delta({{table!r}}), "
        f"max_bad_ratio={case.ratio}{transform})\n"
    )


def land(case: Case, place: Place) -> None:
    for file in case.files:
        place.put(f"{file.key}/{file.name}", file.data)
        if file.modified is not None and case.store == "disk":
            os.utime(place.files / file.key / file.name, ns=(file.modified, file.modified))


def consume_case(
    case: Case, folder: Path, endpoint: str | None, spark: "SparkSession", server: BucketServer | None = None
) -> Play:
    """All of it is consumed that can be. A case that lies in a bucket needs the `server` of one."""
    place = on_disk(folder)
    if case.store == "bucket":
        assert server
        place = in_bucket(server)
    land(case, place / "land")
    table = place / "tables" / "p"
    text = pipeline(case).replace("{table!r}", repr(table.address))
    world = World(folder, endpoint, text=text, spark=spark, landing=(place / "land").address)
    keys = {key: names.key(key) for key in case.by_key()}
    world.give(*keys.values())
    parked: dict[str, str] = {}
    while True:
        events = world.run(*keys.values(), settings=ENGINES[case.engine])
        parked |= {e.partition: e.reason for e in events if isinstance(e, ParkedPartition)}
        if not any(isinstance(e, CommittedBatch) for e in events):
            partitions = {key: world.pipeline.partition(name) for key, name in keys.items()}
            return Play(case, table.files, partitions, parked)


def judge_case(
    case: Case, folder: Path, endpoint: str | None, spark: "SparkSession", server: BucketServer | None = None
) -> Judgement:
    """Consumes the case in `folder`, which is taken away then, or in a bucket, and judges it. What it raises is a fault,
    too."""
    try:
        return consume_case(case, folder, endpoint, spark, server).judge()
    except Exception as error:
        return Judgement((Fault("stopped", 1, "", "", f"raised {type(error).__name__}: {error}"[:2000]),), {})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
