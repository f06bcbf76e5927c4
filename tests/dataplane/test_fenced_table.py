"""The table alone fences: each law with two handles, and each guard with the fault that it prevents.

The checker reads the log as JSON and the files with pyarrow (see conftest); it shares no code with the table.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rota.errors import Fenced, OffsetGap
from rota.ledger.entries import KEYS
from rota.ledger.ledger import Ledger
from rota.ledger.values import Batch
from tests.dataplane.conftest import NO_DAMAGE, damage, log
from tests.dataplane.delta_tables import META, batch, expect_rows, ledger


def test_a_batch_moves_rows_offset_and_token_together(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    assert table.read_positions(("p",))["p"].offset is None
    assert not Path(table.location).exists()
    claimed = table.claim({"p": 7, "q": 8}, {"p": 0, "q": 0})
    assert table.commit(claimed, one := batch(table, claimed)).version == 2
    assert {p: (s.offset, s.token) for p, s in table.read_positions(("p", "q")).items()} == {"p": (2, 7), "q": (2, 8)}
    assert damage(Path(table.location), expect_rows(p=2, q=2)) == NO_DAMAGE
    (said,) = log(Path(table.location)).said("commit")
    assert {f"rota.{k}" for k in KEYS} <= set(said)
    assert json.loads(str(said["rota.tokens"])) == {"p": 7, "q": 8}
    assert table.read_log()[0].commit == one.id


def test_the_names_of_the_transactions(tmp_path: Path) -> None:
    table = ledger(tmp_path, pipeline="pipe")
    table.claim({"p": 7}, {"p": 5})
    assert log(Path(table.location)).transactions == {
        "rota/g/p/token": 7, "rota/g/p/offset": 5, f"rota/g/id/{META}": 1, "rota/adopted": 1, "rota/pipeline/pipe": 1,
    }  # fmt: skip


def test_a_second_claim_of_the_same_owner_writes_nothing(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    table.claim({"p": 7}, {"p": 0})
    assert table.claim({"p": 7}, {"p": 0}).version == 1


def test_an_owner_that_was_overtaken_is_fenced_whatever_it_tries(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    zombie = table.claim({"p": 1, "q": 1}, {"p": 0, "q": 0})
    late = batch(table, zombie)
    newer = table.claim({"p": 2}, {"p": 0})
    with pytest.raises(Fenced) as fenced:
        table.commit(zombie, late)
    assert fenced.value.partitions == ("p",)
    table.commit(newer, batch(table, newer))
    with pytest.raises(Fenced):
        table.renew(zombie, ("p",))
    assert table.claim({"p": 1}, {"p": 0}).newer == {"p": 2}
    assert damage(Path(table.location), expect_rows(p=2)) == NO_DAMAGE


def test_two_runs_of_one_owner_write_a_range_once(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    one, two = table.claim({"p": 1}, {"p": 0}), table.claim({"p": 1}, {"p": 0})
    table.commit(one, batch(table, one))
    with pytest.raises(OffsetGap) as moved:
        table.commit(two, batch(table, two))
    assert moved.value.facts["partitions"] == ("p",)
    assert damage(Path(table.location), expect_rows(p=2)) == NO_DAMAGE


def test_a_conflict_over_another_partition_is_no_fence(tmp_path: Path) -> None:
    """A batch of p and q after q moved: only p is committed, on the renewed claim."""
    table = ledger(tmp_path)
    both, other = table.claim({"p": 1, "q": 1}, {"p": 0, "q": 0}), table.claim({"q": 2}, {"q": 0})
    table.commit(other, batch(table, other))
    with pytest.raises(Fenced) as fenced:
        table.commit(both, batch(table, both))
    assert fenced.value.partitions == ("q",)
    again = table.renew(both, ("p",))
    table.commit(again, batch(table, again))
    assert damage(Path(table.location), expect_rows(p=2, q=2)) == NO_DAMAGE


def test_ranges_start_where_the_table_ends(tmp_path: Path) -> None:
    table = ledger(tmp_path)
    claimed = table.claim({"p": 1}, {"p": 0})
    gap = batch(table, claimed)
    with pytest.raises(OffsetGap) as gapped:
        table.commit(claimed, Batch(**{**{f: getattr(gap, f) for f in gap.__slots__}, "ranges": {"p": (1, 2)}}))
    assert gapped.value.facts["partitions"] == ("p",)


def test_on_a_fresh_handle_the_zombie_doubles_rows(tmp_path: Path) -> None:
    """delta-rs does not compare versions of transactions: only commits through the handle that read the offset are."""
    table = ledger(tmp_path)
    zombie = table.claim({"p": 1}, {"p": 0})
    late, newer = batch(table, zombie), table.claim({"p": 2}, {"p": 0})
    table.commit(newer, batch(table, newer))
    table.commit(replace(zombie, snapshot=table.open()), late)
    wrong = damage(Path(table.location), expect_rows(p=2))
    assert (wrong["doubled"], wrong["overlaps"], wrong["backwards"]) == (2, 2, 1)


def test_without_tokens_an_old_owner_takes_the_partition_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "find_newer", lambda *_: {})
    table = ledger(tmp_path)
    for token in (1, 2, 1):
        claimed = table.claim({"p": token}, {"p": 0})
        table.commit(claimed, batch(table, claimed))
    assert damage(Path(table.location), expect_rows(p=6))["backwards"] == 1


def test_without_identity_another_zookeeper_writes_into_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "check_owner", lambda *_: None)
    for meta in (META, "1" * 32):
        table = ledger(tmp_path, meta=meta)
        claimed = table.claim({"p": 1}, {"p": 0})
        table.commit(claimed, batch(table, claimed))
    assert len(log(Path(table.location)).said("commit")) == 2
