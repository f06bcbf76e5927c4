"""What a table states beyond what this build knows (keys of a commit's info, transactions) is ignored, and left there."""

import json
import shutil
from pathlib import Path

from tests.dataplane.delta_tables import append_batch, fill, ledger

INFO = {"rota.next": '{"p":[1,2]}', "rota.later": "7"}
TRANSACTION = {"txn": {"appId": "rota/g/p/next", "version": 7}}


def add_unknown(table: Path) -> None:
    """Each commit as a build would have written it that states more."""
    for file in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            action.get("commitInfo", {}).update(INFO)
        file.write_text("\n".join(map(json.dumps, [*actions, TRANSACTION])))


def test_a_table_of_another_build_is_read_and_written_on(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    add_unknown(tmp_path / "other" / "main")
    mine, theirs = ledger(tmp_path / "one"), ledger(tmp_path / "other")
    assert theirs.read_positions(("p",)) == mine.read_positions(("p",))
    assert theirs.read_log() == mine.read_log()
    for table in (mine, theirs):
        append_batch(table)
    assert theirs.read_positions(("p",)) == mine.read_positions(("p",))
    version = theirs.log.open()
    assert version is not None
    assert version.transaction("rota/g/p/next") == 7
