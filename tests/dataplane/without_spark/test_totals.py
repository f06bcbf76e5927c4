"""The totals of a table are those of its log: whichever run was killed, whatever came between, however often it is read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.dataplane.delta.tables import PipelineTables
from rota.deltalog.delta_log import DeltaLog
from rota.ledger.ledger import Ledger
from rota.ledger.totals import Totals, count_commits
from rota.ledger.values import Batch
from rota.pipeline import Pipeline, delta, files
from simulator.memory_log import MemoryLog


def commit(main: Ledger, number: int, rows: int, bad: int = 0, op: str = "commit") -> None:
    claimed = main.claim({"p:a": 1}, {"p:a": 0})
    at = claimed.offsets["p:a"]
    ranges = {"p:a": (at, at + 1)}
    main.commit(claimed, Batch(f"c{number}", "r", "w", "a", 1, ranges, rows={"p:a": rows}, bad={"p:a": bad}, op=op))


def make_main(folder: Path) -> Ledger:
    source = files(str(folder / "land"), format="json", schema="n int")
    return PipelineTables.of(Pipeline(source, delta(str(folder / "table")), name="p"), "g", "0" * 32).main


def sums(totals: Totals) -> tuple[int, int, int]:
    return totals.commits, totals.rows, totals.quarantined


@given(st.lists(st.tuples(st.sampled_from(["commit", "skip", "claim"]), st.integers(0, 9), st.booleans()), max_size=12))
def test_they_are_the_sums_over_its_commits_however_often_they_are_read(steps: list[tuple[str, int, bool]]) -> None:
    main = replace(make_main(Path("/none")), log=MemoryLog())
    kept = count_commits(main.log.open())
    assert sums(kept) == (0, 0, 0)
    for number, (op, rows, reads) in enumerate(steps):
        if op == "claim":
            main.claim({"p:a": 1}, {"p:a": 0})
        else:
            commit(main, number, rows if op == "commit" else 0, rows // 2 if op == "commit" else 0, op)
        if reads:
            kept = count_commits(main.log.open(), kept)
    consumed = [rows for op, rows, _ in steps if op == "commit"]
    wanted = len(consumed), sum(consumed), sum(rows // 2 for rows in consumed)
    assert sums(count_commits(main.log.open(), kept)) == sums(count_commits(main.log.open())) == wanted


def test_only_new_commits_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = make_main(tmp_path)
    for number in range(3):
        commit(main, number, 10)
    kept = count_commits(main.log.open())
    read: list[int] = []
    whole = DeltaLog.read_commit
    monkeypatch.setattr(DeltaLog, "read_commit", lambda log, number: (read.append(number), whole(log, number))[1])
    assert count_commits(main.log.open(), kept) == kept
    commit(main, 3, 5, 2)
    read.clear()
    assert sums(count_commits(main.log.open(), kept)) == (4, 35, 2)
    assert all(number >= kept.last["version"] for number in read)


def test_a_table_that_is_dropped_or_restored_from_a_copy_is_counted_anew(tmp_path: Path) -> None:
    main = make_main(tmp_path)
    commit(main, 0, 10)
    folder = Path(main.location)
    copy = {path: path.read_bytes() for path in folder.rglob("*.json")}
    commit(main, 1, 10)
    kept = count_commits(main.log.open())
    (log,) = {path.parent for path in copy}
    for path in sorted(set(log.glob("*.json")) - copy.keys()):
        path.unlink()
    again = make_main(tmp_path)
    assert sums(count_commits(again.log.open(), kept)) == (1, 10, 0), "an older copy"
    commit(again, 2, 3)
    commit(again, 3, 3)
    assert sums(count_commits(again.log.open(), kept)) == (3, 16, 0), "it has gone on since"
    other = make_main(tmp_path / "other")
    commit(other, 0, 7)
    assert sums(count_commits(other.log.open(), kept)) == (1, 7, 0)
    assert sums(count_commits(None, kept)) == (0, 0, 0)


def test_commits_of_other_programs_count_nothing(tmp_path: Path) -> None:
    main = make_main(tmp_path)
    commit(main, 0, 10)
    (log,) = {path.parent for path in Path(main.location).rglob("*.json")}
    newest = max(log.glob("*.json"))
    info = {"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}}
    newest.with_name(f"{int(newest.stem) + 1:020}.json").write_text(json.dumps(info))
    assert sums(count_commits(make_main(tmp_path).log.open())) == (1, 10, 0)
