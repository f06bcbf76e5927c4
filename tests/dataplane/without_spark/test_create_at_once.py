"""Several runs that create one table at the same time: it has one id from the first commit on."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError

from rota.deltalog.delta_log import DeltaLog, DeltaVersion
from rota.ledger.ledger import SETTINGS
from rota.ledger.schema import FIRST


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "by delta-rs in place"])
def test_of_several_that_create_a_table_at_once_the_first_gives_its_id(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second create was committed as version 1 and changed the id: checkpoints named a table that did not exist."""

    def create_in_place(log: DeltaLog, schema: str, settings: dict[str, str]) -> DeltaVersion | None:
        with suppress(CommitFailedError):
            DeltaTable.create(log.location, Schema.from_json(schema), mode="ignore", configuration=settings)
        return log.open()

    if not guarded:
        monkeypatch.setattr(DeltaLog, "create", create_in_place)
    ids: set[int] = set()
    for number in range(40):
        log, barrier, made = DeltaLog(str(tmp_path / str(number) / "main")), threading.Barrier(4), list[str]()

        def create(log: DeltaLog = log, barrier: threading.Barrier = barrier, made: list[str] = made) -> None:
            barrier.wait()
            made.append(log.create(FIRST, SETTINGS).table)

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ids.add(len({*made, DeltaTable(log.location).metadata().id}))
        assert not guarded or DeltaTable(log.location).version() == 0
    assert (ids == {1}) == guarded
