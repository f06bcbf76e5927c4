"""The laws of every log (`rota.deltalog.port.Log`). One line tests an implementation:

class TestMyLog(LogSuite):
    log = MyLog  # opened on a folder of the test; the same folder has the same log
"""

import json
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from rota.deltalog.port import Draft, Log, Moved, Version
from rota.ledger.change import commit_change, find_commit, read_back
from rota.ledger.schema import FIRST
from rota.ledger.values import DataFile

MORE = json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})
NUMBERS = count()


def make_file(partition: str, start: int, end: int) -> DataFile:
    """A file whose statistics the log has."""
    low, high = {"_partition": partition, "_offset": start}, {"_partition": partition, "_offset": end - 1}
    said = json.dumps({"numRecords": end - start, "minValues": low, "maxValues": high})
    return DataFile(f"data/{next(NUMBERS)}.parquet", partition, 7, end - start, 0, said, FIRST)


def append(log: Log, **more: Any) -> Version:
    """Commit to the newest version. Return the new one."""
    version = log.open() or log.create(FIRST)
    version.append(Draft(version, **more))
    newest = log.open()
    assert newest
    return newest


class LogSuite:
    """The laws of `Log` and `Version`."""

    log: Callable[[Path], Log]

    @pytest.fixture
    def one(self, tmp_path: Path) -> Log:
        return type(self).log(tmp_path / "main")

    def test_where_there_is_no_table_nothing_is_known_until_one_is_made(self, one: Log) -> None:
        assert one.open() is None
        first = one.create(FIRST)
        assert (first.number, first.files().num_rows, first.transaction("x")) == (0, 0, None)
        again = one.create(MORE)
        assert (again.number, again.table) == (0, first.table), "the first writer makes it"
        assert json.loads(again.schema) == json.loads(FIRST)
        assert one.read_info(0)["version"] == 0
        assert not one.read_info(1)

    def test_a_commit_is_there_as_a_whole(self, one: Log) -> None:
        file = make_file("p", 3, 5)
        newest = append(one, sets={"a": 7, "b c/é": 2**62}, said={"rota.op": "x", "rota.text": "ü\u2028"}, adds=(file,))
        assert (newest.number, newest.transaction("a"), newest.transaction("b c/é")) == (1, 7, 2**62)
        (known,) = newest.files().to_pylist()
        assert (known["path"], known["size_bytes"], known["num_records"]) == (file.path, 7, 2)
        assert [known[f"{end}.{name}"] for end in ("min", "max") for name in ("_partition", "_offset")] == [
            "p", 3, "p", 4,
        ]  # fmt: skip
        info = one.read_info(1)
        assert (info["version"], info["rota.op"], info["rota.text"]) == (1, "x", "ü\u2028")
        actions = list(one.read_actions(1))
        assert [body["path"] for kind, body in actions if kind == "add"] == [file.path]
        assert {body["appId"]: body["version"] for kind, body in actions if kind == "txn"} == {"a": 7, "b c/é": 2**62}
        assert all(body["dataChange"] for kind, body in actions if kind == "add")

    def test_a_version_never_changes(self, one: Log) -> None:
        file = make_file("p", 0, 2)
        then = append(one, sets={"a": 1}, adds=(file,))
        append(one, sets={"a": 2, "b": 2}, removes={file.path: 7}, alone=True)
        append(one, columns=MORE)
        assert (then.number, then.transaction("a"), then.transaction("b")) == (1, 1, None)
        assert json.loads(then.schema) == json.loads(FIRST)
        assert then.files().num_rows == 1

    def test_what_a_draft_sets_must_not_have_been_set_since(self, one: Log) -> None:
        old = append(one, sets={"a": 1, "b": 1})
        append(one, sets={"a": 1})
        with pytest.raises(Moved):
            old.append(Draft(old, {"b": 2, "a": 2}, adds=(make_file("p", 0, 1),)))
        assert one.open().files().num_rows == 0  # type: ignore[union-attr]
        old.append(Draft(old, {"b": 2, "c": 3}))
        newest = one.open()
        assert newest
        assert [newest.transaction(name) for name in "abc"] == [1, 2, 3], "whatever else was set"

    def test_a_number_is_not_compared(self, one: Log) -> None:
        append(one, sets={"a": 9})
        assert append(one, sets={"a": 3}).transaction("a") == 3

    def test_a_draft_that_must_be_alone_loses_to_any_commit(self, one: Log) -> None:
        old = append(one, sets={"a": 1})
        append(one, sets={"b": 1})
        with pytest.raises(Moved):
            old.append(Draft(old, {"c": 1}, alone=True))
        assert append(one, sets={"c": 1}, alone=True).number == 3

    def test_of_two_that_replace_a_file_one_loses(self, one: Log) -> None:
        file = make_file("p", 0, 9)
        old = append(one, adds=(file,))
        again = make_file("p", 0, 9)
        append(one, adds=(again,), removes={file.path: 7}, alone=True, changes=False)
        with pytest.raises(Moved):
            old.append(Draft(old, adds=(make_file("p", 0, 9),), removes={file.path: 7}, alone=True))
        assert [f["path"] for f in one.open().files().to_pylist()] == [again.path]  # type: ignore[union-attr]
        kinds = {kind: body["dataChange"] for kind, body in one.read_actions(2) if kind in ("add", "remove")}
        assert kinds == {"add": False, "remove": False}, "rows only moved"

    @pytest.mark.parametrize("changes", [True, False], ids=["taken", "moved"])
    def test_a_draft_that_adds_rows_loses_to_a_removal_and_not_to_a_move(self, one: Log, changes: bool) -> None:
        file = make_file("p", 0, 9)
        old = append(one, adds=(file,))
        append(one, removes={file.path: 7}, adds=(make_file("p", 0, 9),), changes=changes)
        with pytest.raises(Moved) if changes else nullcontext():
            old.append(Draft(old, {"a": 1}, adds=(make_file("p", 9, 10),)))
        assert one.open().files().num_rows == (1 if changes else 2)  # type: ignore[union-attr]

    def test_columns_that_came_meanwhile_are_a_conflict(self, one: Log) -> None:
        old = append(one, sets={"a": 1})
        newest = append(one, columns=MORE)
        assert [f["name"] for f in json.loads(newest.schema)["fields"]] == ["_partition", "_offset", "n"]
        with pytest.raises(Moved):
            old.append(Draft(old, {"a": 2}))

    def test_a_commit_is_found_by_its_id_behind_a_version(self, one: Log) -> None:
        for name in "xyz":
            append(one, said={"rota.op": "commit", "rota.commit": name})
        assert [getattr(find_commit(one, "y", since), "version", None) for since in (0, 1, 2)] == [2, 2, None]
        newest = one.open()
        assert newest
        assert [said.get("rota.commit") for said in read_back(newest, 2)] == ["z", "y"]

    @pytest.mark.parametrize("seed", range(3))
    def test_in_any_order_each_change_goes_in_once(self, one: Log, seed: int) -> None:
        """Drafts on versions of any age: each counter has the value after as many changes in sequence."""
        random, counts = Random(seed), dict.fromkeys("abc", 0)
        versions = [one.create(FIRST)]
        for _ in range(25):
            name = random.choice("abc")

            def make(tries: int, name: str = name) -> Draft[bool] | bool:
                base = one.open() if tries else random.choice(versions[-4:])
                assert base
                return Draft(base, {name: (base.transaction(name) or 0) + 1}, result=True)

            assert commit_change(one, make)
            counts[name] += 1
            newest = one.open()
            assert newest
            versions.append(newest)
        assert {name: versions[-1].transaction(name) or 0 for name in "abc"} == counts
