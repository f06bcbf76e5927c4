"""A transform with random results: rows that a run wrote and did not commit are never visible, and the rows of the
next run are one batch."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch, TableClaim
from rota.run.consume import CommittedBatch
from tests.dataplane.conftest import log
from tests.dataplane.world import World

CHANCE = {
    "drops by chance": "df.where(F.rand() < 0.5)",
    "explodes by chance": "df.withColumn('k', F.explode(F.sequence(F.lit(1), (F.rand() * 3 + 1).cast('int'))))",
}


class Died(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("body", CHANCE.values(), ids=CHANCE)
def test_a_retry_leaves_one_attempt_in_the_table(world: World, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    world.write(f"""
def transform(df):
    from pyspark.sql import functions as F
    return {body}
pipeline = Pipeline(source=source(), table=delta({{table!r}}), transform=transform)
""")
    world.give("a", "b")
    for key in "ab":
        for name in "01":
            world.rows(key, name, 50, 50 * int(name))
    real, died = Ledger.commit, list[Path]()

    def commit(table: Ledger, claim: TableClaim, batch: Batch, *more: Any) -> int:
        if len(died) < 2:
            died.append(Path(table.location) / "data" / batch.attempt)
            raise Died
        return real(table, claim, batch, *more)

    monkeypatch.setattr(Ledger, "commit", commit)
    for _ in range(2):
        with pytest.raises(Died):
            world.run("a", "b")
    events = world.run("a", "b")
    assert all(isinstance(e, CommittedBatch) for e in events), events
    rows = log(world.table / "main").rows()
    assert len(rows) == sum(e.rows for e in events if isinstance(e, CommittedBatch))
    keys = Counter((r["_partition"], r["n"], r.get("k")) for r in rows)
    assert set(keys.values()) == {1}, "no row of another attempt"
    assert all(r["_offset"] == int(str(r["n"])) // 50 for r in rows)
    assert 0 < len({n for _, n, _ in keys}) <= 100
    assert len({*died}) == 2
    assert all(any(one.rglob("*.parquet")) for one in died), "they were written, and no reader sees them"
