"""A page of Parquet whose bytes were damaged on a disk or in transit: its values differ, and the footer is intact."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.dataplane.formats import options
from rota.run.consume import CommittedBatch, ParkedPartition
from tests.dataplane.conftest import log
from tests.dataplane.world import World

NUMBERS = list(range(1000, 1010))


@pytest.mark.parametrize("guarded", [True, False])
def test_a_page_whose_bytes_changed_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    """Wrong values were in the table. A page has a checksum if Spark wrote it, or a writer with that option."""
    if not guarded:
        monkeypatch.setattr(options, "CHECKED", {})
    world.write("pipeline = Pipeline(source=source(format='parquet', schema='n int'), table=delta({table!r}))\n")
    world.give("a")
    file = world.folder / "land/a/0.parquet"
    file.parent.mkdir(parents=True)
    column = pa.array(NUMBERS, pa.int32())
    pq.write_table(pa.table({"n": column}), file, compression="none", use_dictionary=False, write_page_checksum=True)
    whole, plain = file.read_bytes(), column.buffers()[1].to_pybytes()[: 4 * len(NUMBERS)]
    assert whole.count(plain) == 1
    file.write_bytes(whole.replace(plain, plain[:-4] + b"\1\0\0\0"))
    (event,) = (e for e in world.run("a") if isinstance(e, CommittedBatch | ParkedPartition))
    if guarded:
        assert isinstance(event, ParkedPartition)
        assert "(a/0.parquet)" in event.reason
        assert not log(world.table / "main").rows()
    else:
        assert [row["n"] for row in log(world.table / "main").rows()] == [*NUMBERS[:-1], 1]
