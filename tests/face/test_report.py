"""What a run reports, and when: sums, seldom, the last one always, and what another run could not report."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.dagster.assets.batch import RunOutput
from rota.dagster.assets.names import Names
from rota.ledger import samples as ledger_samples
from rota.ledger.values import LogEntry
from rota.pipeline import Pipeline, delta, files
from rota.run import progress, samples
from rota.run.consume import CommittedBatch, IdlePartition, make_event
from rota.run.progress import ProgressReport, ReportedOffset, find_unreported_before
from rota.run.replay import ReplayedRange

SCHEMA = "dagster/column_schema"
PIPELINE = replace(Pipeline(files("x", format="csv", schema="a int"), delta("y")), name="p")


class Log:
    """A table that is its log: each commit is one offset, a row and a bad record more than the one before."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.asked = self.counted = 0
        self.sampled: dict[str, tuple[Mapping[str, object], ...]] = {}

    def read_schema(self) -> str:
        """See `Ledger.read_schema`."""
        return '{"fields": [{"name": "n", "type": "integer"}]}'

    def count_rows(self, partitions: Iterable[str]) -> Mapping[str, int]:
        """See `samples.count_rows`."""
        asked = tuple(partitions)
        self.counted += len(asked)
        return dict.fromkeys(asked, 100)

    def read_samples(self, versions: Mapping[str, int], most: int) -> Mapping[str, tuple[Mapping[str, object], ...]]:
        """See `samples.read_samples`."""
        return {p: self.sampled[p][:most] for p in versions if p in self.sampled}

    def commit_one(self, run: str, token: int, partition: str = "p:a") -> CommittedBatch:
        """A batch of a run, as `consume` yields it."""
        n = len([one for one in self.entries if partition in one.ranges])
        entry = LogEntry(
            n, 0.0, "commit", "g", f"c{n}", run, "a", 1, {partition: token}, {partition: (n, n + 1)}, {partition: n + 1},
            {partition: 1}, 0.5,
        )  # fmt: skip
        self.entries.insert(0, entry)
        return make_event(entry, partition, n + 1, healed=False)

    def read_log_back_to(self, offsets: Mapping[str, int]) -> tuple[LogEntry, ...]:
        """See `Ledger.read_log_back_to`."""
        self.asked += 1
        return tuple(one for one in self.entries if any(one.goes_beyond(p, at) for p, at in offsets.items()))


@pytest.fixture(autouse=True, scope="module")
def _log_is_read() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_samples, "count_rows", Log.count_rows)
        patch.setattr(ledger_samples, "read_samples", Log.read_samples)
        yield


class Folder:
    """A source that knows where its records are."""

    def locate(self, partition: str, offset: int) -> str:
        """See `Source.locate`."""
        return f"file {offset} of {partition}"


class Page:
    """The page: the batches reported for each partition."""

    def __init__(self, log: Log) -> None:
        self.log, self.now = log, 0.0
        self.reported: dict[str, list[tuple[float, CommittedBatch]]] = defaultdict(list)

    def report(self, seconds: float = 30.0) -> ProgressReport:
        """A run's report to this page."""
        return ProgressReport(self.read_reported, self.log, seconds, lambda: self.now)

    def read_reported(self, partition: str) -> ReportedOffset | None:
        """The newest reported offset."""
        reported = self.reported[partition]
        return ReportedOffset(reported[-1][1].end, reported[-1][1].token) if reported else None

    def tell(self, of: ProgressReport, *, last: bool = False) -> None:
        """What is due appears."""
        for _, batch in of.take_all() if last else of.take_due():
            self.reported[batch.partition].append((self.now, batch))

    def read_page(self, partition: str = "p:a") -> list[tuple[int, int, int, int]]:
        """Start, end, rows and bad rows of the reports."""
        return [(b.start, b.end, b.rows, b.bad_rows) for _, b in self.reported[partition]]


def test_the_first_is_reported_at_once_then_one_sum_in_a_span_and_the_last_always() -> None:
    page = Page(Log())
    mine = page.report()
    for second in range(100):
        page.now = float(second)
        if second % 7 == 0:
            mine.add("w1@1", page.log.commit_one("r", 1))
        page.tell(mine)
    page.tell(mine, last=True)
    assert [at for at, _ in page.reported["p:a"]] == [0.0, 30.0, 60.0, 90.0, 99.0]
    assert page.read_page() == [(0, 1, 1, 1), (1, 5, 14, 4), (5, 9, 30, 4), (9, 13, 46, 4), (13, 15, 29, 2)]
    assert sum(b.seconds for _, b in page.reported["p:a"]) == 0.5 * 15
    assert page.log.asked == 0, "the log is read only where something is missing"


def tell_after_a_kill() -> Page:
    page = Page(Log())
    killed = page.report()
    for _ in range(4):
        killed.add("w1@1", page.log.commit_one("killed", 1))
        page.tell(killed)
    following = page.report()
    following.add("w2@2", page.log.commit_one("following", 5))
    page.tell(following)
    return page


def test_the_next_run_reports_what_a_killed_run_could_not() -> None:
    page = tell_after_a_kill()
    assert page.read_page() == [(0, 1, 1, 1), (1, 5, 14, 4)]
    assert page.reported["p:a"][-1][1].healed
    assert page.reported["p:a"][-1][1].run_id == "killed"


def test_without_a_look_at_the_page_it_would_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "find_unreported", lambda batch, *_: batch)
    assert tell_after_a_kill().read_page() == [(0, 1, 1, 1), (4, 5, 5, 1)]


def test_a_click_without_new_data_reports_what_is_missing_and_the_run_does_not_repeat_it() -> None:
    page = Page(Log())
    going = page.report()
    for _ in range(3):
        going.add("w1@1", page.log.commit_one("going", 1))
        page.tell(going)
    unreported = find_unreported_before(IdlePartition("p:a", 3, 1, 1), page.read_reported("p:a"), page.log)
    assert unreported is not None
    click = page.report()
    click.add("w1@1", unreported)
    page.tell(click, last=True)
    page.tell(going, last=True)
    assert page.read_page() == [(0, 1, 1, 1), (1, 3, 5, 2)]
    assert find_unreported_before(IdlePartition("p:a", 3, 1, 1), page.read_reported("p:a"), page.log) is None


def test_a_restored_table_is_reported_again() -> None:
    page = Page(Log())
    before = page.report()
    for _ in range(5):
        before.add("w1@1", page.log.commit_one("before", 1))
    page.tell(before, last=True)
    del page.log.entries[:3]
    after = page.report()
    after.add("w1@1", page.log.commit_one("after", 9))
    page.tell(after, last=True)
    assert page.read_page() == [(0, 5, 15, 5), (2, 3, 3, 1)]


def test_an_owner_is_reported_once_and_again_if_its_token_or_the_epoch_changed(tmp_path: Path) -> None:
    log, epoch = Log(), [1]
    shown: dict[str, Mapping[str, Any]] = {}
    columns: list[dg.TableSchema] = []

    def tell(output: RunOutput, token: int) -> list[str]:
        batch = replace(log.commit_one("r", token), epoch=epoch[0])
        reported = output.report_batches([("w1@1", batch)], cast("Any", SimpleNamespace(main=log, source=Folder())))
        made = [one for one in reported if isinstance(one, dg.AssetMaterialization)]
        shown.update({one.asset_key.path[-1]: one.metadata for one in made})
        columns.extend(one.metadata[SCHEMA].value for one in made if SCHEMA in one.metadata)
        lineage = {one.tags["dagster/input_data_version/default/assignment"] for one in made if len(one.tags or {}) > 1}
        assert lineage <= {str(epoch[0])}, "made from the epoch under which the batch was consumed"
        return [one.asset_key.path[-1] for one in made]

    def publish(instance: dg.DagsterInstance) -> None:
        made = dg.AssetMaterialization(["default", "assignment"], tags={"dagster/data_version": str(epoch[0])})
        instance.report_runless_asset_event(made)

    whole, again = ["ownership", "records", "checkpoints"], ["records", "checkpoints"]
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        publish(instance)
        output = RunOutput(cast("Any", SimpleNamespace(instance=instance)), PIPELINE, Names())
        assert [tell(output, 1), tell(output, 1), tell(output, 2), tell(output, 2)] == [whole, again, whole, again]
        epoch[0] = 2
        publish(instance)
        assert [tell(output, 2), tell(output, 2)] == [whole, again]
        assert [[one.name for one in schema.columns] for schema in columns] == [["n"]], "once for a run"
        assert log.counted == 1, "once for a run; then it adds what it reports"
        assert shown["records"]["dagster/partition_row_count"].value == 100 + 2 + 3 + 4 + 5 + 6
        assert shown["records"]["read from"].value == "file 5 of p:a (offset 5)"
        assert shown["checkpoints"]["last read"].value == "file 5 of p:a (offset 5)"


def test_all_of_a_commit_is_reported_together_and_before_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 64 partitions of a first job was reported alone, for 0.2 s of a processor each, before its checkpoint."""
    reported, names = list[list[str]](), ["p:a", "p:b", "p:c"]

    def tell(due: Iterable[tuple[str, CommittedBatch]], _: object) -> Iterator[object]:
        reported.extend(filter(None, [[batch.partition for _, batch in due]]))
        yield from ()

    def commit_twice() -> Iterator[tuple[str, CommittedBatch]]:
        for start in (0, 1):
            for more, p in zip((2, 1, 0), names, strict=True):
                yield (
                    "w1@1",
                    CommittedBatch(p, start, start + 1, 1, 0, 0, 1, 1, start, 0.5, "r", f"c{start}", more=more),
                )
            assert reported == [names] * (start + 1), "also of a run that never rests"

    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        output = RunOutput(cast("Any", SimpleNamespace(instance=instance)), PIPELINE, Names())
        monkeypatch.setattr(output, "report_batches", tell)
        list(output.show_work(commit_twice(), cast("Any", SimpleNamespace(main=Log(), source=Folder())), 0.0))


def test_rows_are_shown_of_as_many_replayed_partitions_as_of_batches_and_of_each_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MAX_SAMPLED_BATCHES", 3)
    log = Log()
    names = [f"p:{n}" for n in range(5)]
    log.sampled = {p: ({"n": at},) for at, p in enumerate(names)}
    tree = cast("Any", SimpleNamespace(owned=lambda _: {}, checkpoints=lambda _: {}))
    ports = cast("Any", SimpleNamespace(main=log, source=Folder()))
    shown: dict[str, tuple[object, object]] = {}
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as instance:
        output = RunOutput(cast("Any", SimpleNamespace(instance=instance)), PIPELINE, Names())
        for p in names:
            for made in output.show_replay(ReplayedRange(p, 4, 6, 1, 0, 9, 0.5, "r", "c"), tree, ports):
                if made.asset_key.path[-1] == "records":
                    rows, places = (made.metadata.get(key) for key in ("first rows", "read from"))
                    shown[str(made.partition)] = rows and rows.value, places and places.value
    assert shown == {
        p: (f"|n|\n|-|\n|{at}|", f"file 4 of {p} (offset 4) to file 5 of {p} (offset 5)") if at < 3 else (None, None)
        for at, p in enumerate(names)
    }


STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "wait", "hand over", "kill", "end"]), st.integers(1, 40)), max_size=40
)


@settings(max_examples=200)
@given(STEPS)
def test_whichever_run_works_and_however_runs_end_the_page_has_each_offset_once(steps: list[tuple[str, int]]) -> None:
    """After a hand-over the former run continues with unreported batches, and reports them when it ends."""
    page, numbers = Page(Log()), itertools.count(1)
    token = next(numbers)
    going = [(f"r{token}", token, page.report())]
    for what, seconds in steps:
        run, token, mine = going[-1]
        if what == "commit":
            mine.add("w@1", page.log.commit_one(run, token))
            page.tell(mine)
        elif what == "wait":
            page.now += seconds
            for _, _, other in going:
                page.tell(other)
        else:
            if what == "end":
                page.tell(mine, last=True)
            if what != "hand over":
                going.pop()
            token = next(numbers)
            going.append((f"r{token}", token, page.report()))
    run, token, mine = going[-1]
    mine.add("w@1", page.log.commit_one(run, token))
    for _, _, other in reversed(going):
        page.tell(other, last=True)
    covered = [(start, end) for start, end, _, _ in page.read_page()]
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    n = len(page.log.entries)
    assert covered[-1][1] == n
    assert sum(rows for _, _, rows, _ in page.read_page()) == n * (n + 1) // 2
