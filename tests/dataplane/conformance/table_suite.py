"""The laws of a ledger over any log and files. One line tests both:

class TestMyTable(TableSuite):
    bench = MyBench  # makes tables in a folder of the test's own
"""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from rota.errors import EnvironmentFailed, Fenced, ForeignTable, OffsetGap, RotaError
from rota.ledger.ledger import Ledger
from rota.ledger.merging import A_RUN, merge
from rota.ledger.replacing import replace_rows
from rota.ledger.samples import count_rows, read_samples
from rota.ledger.values import Batch, DataFile, Position, TableClaim


class TableBench(Protocol):
    """A place with one table; it reads the rows without the port."""

    def open(self, *, group: str = "g", meta: str = "0" * 32, pipeline: str = "p") -> Ledger:
        """Return the table for this pipeline of this group. Nothing is created yet."""
        ...

    def write(self, attempt: str, partition: str, offsets: range) -> DataFile:
        """Write a file with one row for each offset, which no reader sees yet."""
        ...

    def rows(self) -> list[tuple[str, int]]:
        """Return (partition, offset) of every row that a reader sees."""
        ...


class TableSuite:
    """The laws of the ledger."""

    bench: Callable[[Path], TableBench]

    @pytest.fixture
    def place(self, tmp_path: Path) -> TableBench:
        return type(self).bench(tmp_path)

    # --- no table yet ---

    def test_where_there_is_no_table_nothing_is_known_and_nothing_made(self, place: TableBench) -> None:
        table = place.open()
        assert table.read_positions(("a",)) == {"a": Position(None, None, None)}
        assert (table.read_schema(), table.read_log(), table.read_recent_log()) == (None, (), ())
        assert not table.find_foreign_commits(("a",))
        with pytest.raises(EnvironmentFailed):
            table.open_existing()
        with pytest.raises(EnvironmentFailed):
            table.claim({"a": 1}, {"a": 0}, known=True)
        assert table.read_schema() is None

    # --- claim ---

    def test_a_claim_makes_the_table_and_gives_each_partition_its_start(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7, "b": 8}, {"a": 3, "b": 0, "later": 5})
        assert (dict(claim.offsets), dict(claim.newer)) == ({"a": 3, "b": 0}, {})
        at = table.read_positions(("a", "b", "later", "none"))
        assert {p: (one.offset, one.token) for p, one in at.items()} == {
            "a": (3, 7), "b": (0, 8), "later": (5, None), "none": (None, None),
        }  # fmt: skip
        assert {one.table for one in at.values()} == {claim.table}
        table.open_existing()
        assert table.claim({"later": 9}, {"later": 0}).offsets == {"later": 5}, "where it begins is said once"

    def test_a_partition_that_a_newer_token_claimed_is_left_alone(self, place: TableBench) -> None:
        table = place.open()
        table.claim({"a": 9}, {"a": 0})
        claim = table.claim({"a": 7, "b": 7}, {"a": 0, "b": 0})
        assert (dict(claim.newer), dict(claim.offsets), dict(claim.tokens)) == ({"a": 9}, {"b": 0}, {"b": 7})
        assert table.read_positions(("a",))["a"].token == 9

    # --- commit ---

    def test_rows_offset_and_token_of_a_batch_change_together(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7, "b": 8}, {"a": 0, "b": 0})
        entry = table.commit(claim, one := batch(place, claim))
        assert sorted(place.rows()) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        assert positions(table, "a", "b") == {"a": (2, 7), "b": (2, 8)}
        assert entry == table.read_log()[0]
        assert (entry.version, entry.op, entry.commit, entry.run, entry.group) == (
            max(e.version for e in table.read_log()),
            "commit",
            one.id,
            "run",
            "g",
        )
        assert (entry.ranges, entry.tokens, entry.rows) == (one.ranges, claim.tokens, one.rows)
        assert not table.find_foreign_commits(("a", "b"))

    def test_a_second_batch_on_one_claim_is_refused(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7}, {"a": 0})
        table.commit(claim, batch(place, claim))
        with refused(place, table, OffsetGap, "a"):
            table.commit(claim, batch(place, claim))

    def test_a_batch_must_start_where_the_claim_is_unless_it_need_not_follow(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7}, {"a": 0})
        apart = batch(place, replace(claim, offsets={"a": 4}))
        with refused(place, table, OffsetGap, "a"):
            table.commit(claim, apart)
        table.commit(claim, apart, follows=False)
        assert place.rows() == [("a", 4), ("a", 5)]

    def test_an_overtaken_run_commits_nothing_also_of_other_partitions(self, place: TableBench) -> None:
        table = place.open()
        zombie = table.claim({"a": 7, "b": 7}, {"a": 0, "b": 0})
        place.open().claim({"a": 9}, {"a": 0})
        with refused(place, table, Fenced, "a"):
            table.commit(zombie, batch(place, zombie))
        alone = batch(place, replace(zombie, offsets={"b": 0}))
        table.commit(zombie, alone)
        assert sorted(place.rows()) == [("b", 0), ("b", 1)]

    def test_other_partitions_of_the_table_disturb_no_commit(self, place: TableBench) -> None:
        one, other = place.open(), place.open()
        first, second = one.claim({"a": 7}, {"a": 0}), other.claim({"b": 8}, {"b": 0})
        other.commit(second, batch(place, second))
        one.commit(first, batch(place, first))
        assert positions(one, "a", "b") == {"a": (2, 7), "b": (2, 8)}

    @pytest.mark.parametrize("op", ["skip", "retry"])
    def test_a_step_of_a_person_counts_as_a_batch(self, place: TableBench, op: str) -> None:
        """A skip moves the offset; a retry moves nothing, but no batch that was read before it is committed after it."""
        table = place.open()
        run, person = (table.claim({"a": 7}, {"a": 0}) for _ in range(2))
        end = 2 if op == "skip" else 0
        table.commit(person, Batch(uuid.uuid4().hex, "run", "", "", 0, {"a": (0, end)}, rows={"a": 0}, op=op))
        with refused(place, table, OffsetGap, "a"):
            table.commit(run, batch(place, run))
        assert (table.read_log()[0].op, positions(table, "a")) == (op, {"a": (end, 7)})

    # --- replay ---

    def test_a_replacement_has_its_ranges_for_itself_and_moves_nothing(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7, "b": 8}, {"a": 0, "b": 0})
        table.commit(claim, batch(place, claim, 4))
        again = batch(place, replace(claim, offsets={"a": 1}))
        assert replace_rows(table, replace(again, files=())) == table.read_log()[0]
        assert sorted(place.rows()) == [("a", 0), ("a", 3), ("b", 0), ("b", 1), ("b", 2), ("b", 3)]
        replace_rows(table, again)
        assert sorted(place.rows()) == sorted((p, at) for p in "ab" for at in range(4))
        assert (table.read_log()[0].op, positions(table, "a", "b")) == ("replay", {"a": (4, 7), "b": (4, 8)})

    def test_what_was_not_consumed_is_not_replaced(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7}, {"a": 0})
        with refused(place, table, OffsetGap, "a"):
            replace_rows(table, batch(place, claim))

    def test_a_batch_that_is_appended_moves_nothing(self, place: TableBench) -> None:
        table = place.open()
        claim = table.claim({"a": 7}, {"a": 0})
        table.append(batch(place, claim))
        assert (sorted(place.rows()), positions(table, "a")) == ([("a", 0), ("a", 1)], {"a": (0, 7)})

    # --- whose it is ---

    @pytest.mark.parametrize("owner", [{"group": "h"}, {"meta": "1" * 32}, {"pipeline": "q"}], ids=str)
    def test_a_foreign_table_is_left_as_it_is(self, place: TableBench, owner: dict[str, str]) -> None:
        table = place.open()
        claim = table.claim({"a": 7}, {"a": 0})
        table.commit(claim, batch(place, claim))
        stranger = place.open(**owner)
        for attempt in (
            lambda: stranger.claim({"a": 9}, {"a": 0}),
            lambda: stranger.read_positions(("a",)),
            lambda: replace_rows(stranger, batch(place, claim)),
            lambda: stranger.append(batch(place, claim)),
        ):
            with refused(place, table, ForeignTable):
                attempt()

    # --- the log ---

    def test_the_log_is_read_newest_first_and_back_to_an_offset(self, place: TableBench) -> None:
        table = place.open()
        made = [publish(place, table, p) for p in "abaaba"]
        log = table.read_log()
        assert [one.version for one in log if one.op == "commit"] == made[::-1]
        assert table.read_recent_log() == log
        assert table.read_log(made[2]) == tuple(one for one in log if one.version > made[2])
        assert [one.version for one in table.read_log_back_to({"a": 2, "b": 2})] == [made[i] for i in (5, 4, 3, 2)]
        assert table.read_log_back_to({}) == ()

    def test_merging_changes_no_row_and_no_position(self, place: TableBench) -> None:
        table = place.open()
        for _ in range(20):
            publish(place, table, "a")
        merge(table, A_RUN)
        assert Counter(place.rows()) == Counter(("a", at) for at in range(40))
        assert positions(table, "a") == {"a": (40, 20)}

    # --- samples for a person ---

    def test_the_first_rows_of_a_commit_are_shown_and_all_of_a_partition_are_counted(self, place: TableBench) -> None:
        table = place.open()
        assert (read_samples(table, {"a": 0}, 5), count_rows(table, ("a",)).get("a", 0)) == ({}, 0), "there is no table"
        made = [publish(place, table, p) for p in "aba"]
        seen = read_samples(table, {"a": made[2], "b": made[1], "c": made[2]}, 1)
        assert {p: [row["_offset"] for row in rows] for p, rows in seen.items()} == {"a": [2], "b": [0]}
        assert read_samples(table, {"a": 99}, 5) == {}
        assert count_rows(table, ("a", "b", "c")) == {"a": 4, "b": 2, "c": 0}
        for _ in range(20):
            publish(place, table, "b")
        merge(table, A_RUN)
        claim = table.claim({"a": 99}, {"a": 0})
        again = batch(place, replace(claim, offsets={"a": 1}))
        for files, rows in ((), []), (again.files, [1, 2]):
            version = replace_rows(table, replace(again, files=files)).version
            found = read_samples(table, {"a": version, "b": version}, 5)
            assert [row["_offset"] for row in found.get("a", ())] == rows, "of a replay, and none from before"
            assert "b" not in found
        assert count_rows(table, ("a", "b")) == {"a": 4, "b": 42}, "also where they were put into one file"

    # --- at random ---

    @pytest.mark.parametrize("seed", range(5))
    def test_in_any_order_nothing_is_lost_doubled_or_written_by_a_former_owner(
        self, place: TableBench, seed: int
    ) -> None:
        """Several owners claim, sleep and commit in any order; positions and rows are those of a sequence."""
        random, table, names = Random(seed), place.open(), "abc"
        claims: list[TableClaim] = []
        newest, offsets = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for token in range(1, 25):
            mine = random.sample(names, random.randint(1, 3))
            claims.append(place.open().claim(dict.fromkeys(mine, token), dict.fromkeys(mine, 0)))
            newest |= dict.fromkeys(mine, token)
            claim = random.choice(claims)
            may = all(newest[p] == t and offsets[p] == claim.offsets[p] for p, t in claim.tokens.items())
            try:
                place.open().commit(claim, batch(place, claim))
            except (Fenced, OffsetGap):
                assert not may
            else:
                assert may
                offsets |= {p: at + 2 for p, at in claim.offsets.items()}
        assert Counter(place.rows()) == Counter((p, at) for p in names for at in range(offsets[p]))
        known = {p: at for p, at in positions(table, *names).items() if at != (None, None)}
        assert known == {p: (offsets[p], newest[p]) for p in known}


class refused:  # noqa: N801
    """Assert that the block raises `error`, which names the partitions, and that no row, position or log entry changed."""

    def __init__(self, place: TableBench, table: Ledger, error: type[RotaError], *partitions: str) -> None:
        self.place, self.table, self.error, self.partitions = place, table, error, partitions

    def _look(self) -> object:
        return sorted(self.place.rows()), self.table.read_positions(("a", "b")), self.table.read_log()

    def __enter__(self) -> None:
        self.before = self._look()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        assert isinstance(error, self.error), error
        assert self._look() == self.before
        if self.partitions:
            assert error.facts["partitions"] == self.partitions
        return True


def positions(table: Ledger, *partitions: str) -> dict[str, tuple[int | None, int | None]]:
    """Return partition -> offset and token."""
    return {p: (one.offset, one.token) for p, one in table.read_positions(partitions).items()}


def batch(place: TableBench, claim: TableClaim, size: int = 2) -> Batch:
    """Write the next `size` offsets of each partition of the claim, one row each."""
    ranges: Mapping[str, tuple[int, int]] = {p: (at, at + size) for p, at in claim.offsets.items()}
    attempt = f"run-{uuid.uuid4().hex[:12]}"
    files = tuple(place.write(attempt, p, range(*of)) for p, of in ranges.items())
    return Batch(uuid.uuid4().hex, "run", "w@0", attempt, 3, ranges, files, dict.fromkeys(ranges, size))


def publish(place: TableBench, table: Ledger, partition: str) -> int:
    """Commit one more batch under a new token."""
    token = (table.read_positions((partition,))[partition].token or 0) + 1
    claim = table.claim({partition: token}, {partition: 0})
    return table.commit(claim, batch(place, claim)).version
