"""A pipeline of a small group whose runs need no Spark."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rota.catalog import load
from rota.registry import open_ports
from rota.run.consume import CommittedBatch, consume
from tests.chaos.plain_job import PlainJob
from tests.demo.small_group import Group

PIPELINE = """
from rota import Pipeline, delta, files
source = files("{folder}/land", format="json", schema="n int", settle=0.0)
pipeline = Pipeline(source=source, table=delta("{folder}/table"))
"""


class Line:
    """The pipeline `flights` of a small group; its runs need no Spark."""

    def __init__(self, group: Group, folder: Path) -> None:
        self.group, self.folder, self.files, self.runs = group, folder, 0, 0
        (folder / "flights.py").write_text(PIPELINE.format(folder=folder))
        self.pipeline = load(folder).pipelines["flights"]

    def land(self, key: str, rows: int) -> None:
        file = self.folder / "land" / key / f"{self.files:03}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{json.dumps({'n': n})}\n" for n in range(rows)))
        self.files += 1

    def consume(self, killed: bool = False) -> int:
        """Run once for w1. Returns the rows of its batches. A run that is killed ends after its commit, before the
        checkpoint."""
        self.runs += 1
        tree = self.group.tree
        ports = open_ports(self.pipeline, "default", tree.meta().id)
        job = PlainJob(ports.source, self.folder / "land", self.folder / "table" / "main")
        events = consume(
            tree, self.pipeline, self.group.w1, ["flights:AA"], f"run-{self.runs}", replace(ports, job=job)
        )
        rows = 0
        for event in events:
            if isinstance(event, CommittedBatch) and not event.healed:
                rows += event.rows
                if killed:
                    events.close()
        return rows


@contextmanager
def open_line(group: Group, folder: Path) -> Iterator[Line]:
    """The pipeline of a group that has other tests, too."""
    yield Line(group, folder)
    checkpoint = group.tree.paths.checkpoint("flights:AA")
    if group.tree.store.get(checkpoint):
        group.tree.store.delete(checkpoint)  # of a table that the next test does not have
