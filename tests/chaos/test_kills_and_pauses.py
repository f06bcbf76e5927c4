"""Half a minute of kills and pauses under each protocol, on real processes, every row counted; and whether it can count."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.local.bucket import BucketServer
from tests.chaos.rows import count, read_files
from tests.chaos.stage import EARLY, Stage
from tests.dataplane.kafka.broker import Broker


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = Broker(tmp_path_factory.mktemp("kafka"))
    yield running
    running.stop()


@pytest.fixture
def buckets(request: pytest.FixtureRequest) -> BucketServer | None:
    """A server of S3 where the group's files and table lie in a bucket."""
    if request.param == "disk":
        return None
    request.getfixturevalue("bucket")  # for the environment
    return request.getfixturevalue("bucket_server")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("protocol", "buckets"), [("claim", "bucket"), ("race", "disk"), ("ordinal", "disk")], indirect=["buckets"]
)
def test_nothing_is_lost_or_doubled(
    protocol: str, buckets: BucketServer | None, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """Nothing is published: the stage founds the group and is silent from then on. On a machine that is slow it plays
    longer, for a strike waits for the middle of a batch."""
    stage = Stage(tmp_path / protocol, zookeeper.hosts, protocol, buckets=buckets)
    found = stage.play(30, until=lambda: stage.done.total() > 5 and stage.count().commits > 10)
    assert found.right, (found, stage.done)
    assert found.commits > 10


@pytest.mark.parametrize("protocol", ["claim", "assigned"])
def test_a_frozen_run_of_a_topic_writes_nothing_after_it_was_overtaken(
    protocol: str, zookeeper: EmbeddedZooKeeper, broker: Broker, tmp_path: Path
) -> None:
    stage = Stage(tmp_path / f"topic-{protocol}", zookeeper.hosts, protocol, strikes=("hang", "zombie"), broker=broker)
    found = stage.play(15, until=lambda: stage.done.total() > 5 and bool(stage.tree.refusals().ring))
    assert found.right, (found, stage.done)
    assert stage.refused > 0


@pytest.mark.parametrize("fenced", [True, False])
def test_the_table_refuses_what_a_supervisor_that_ends_a_living_session_would_double(
    fenced: bool, zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """The ablation of the session guard's first law."""
    stage = Stage(tmp_path / f"early-{fenced}", zookeeper.hosts, "claim", strikes=(EARLY,), fenced=fenced)
    found = stage.play(0, until=lambda: bool(stage.tree.refusals().ring) if fenced else stage.count().doubled > 0)
    assert stage.done[EARLY] > 0
    assert found.right is fenced, (found, stage.done)
    assert (found.doubled > 0) is not fenced


@pytest.mark.parametrize("source", ["files", "topic"])
def test_without_the_tables_fence_rows_are_doubled_and_counted(
    source: str, zookeeper: EmbeddedZooKeeper, broker: Broker, tmp_path: Path
) -> None:
    folder = tmp_path / f"unfenced-{source}"
    topic = broker if source == "topic" else None
    stage = Stage(folder, zookeeper.hosts, "claim", strikes=("hang", "zombie"), fenced=False, broker=topic)
    found = stage.play(0, until=lambda: stage.count().doubled > 0)
    assert found.doubled > 0
    assert not found.right


# --- the verifier


class Table:
    """A landing folder and a table beside it, both right."""

    def __init__(self, folder: Path) -> None:
        self.landing, self.table, self.version = folder / "land", folder / "table", 0
        (self.landing / "a").mkdir(parents=True)
        (self.table / "_delta_log").mkdir(parents=True)
        for offset in range(3):
            (self.landing / "a" / f"{offset}.json").write_text(f'{{"n": {offset}}}\n')
            pq.write_table(pa.table({"_partition": ["p:a"], "n": [offset]}), self.table / f"{offset}.parquet")
            self.commit({"add": {"path": f"{offset}.parquet"}}, (offset, offset + 1), 5)

    def commit(self, action: dict[str, object], span: tuple[int, int] | None = None, token: int = 5) -> None:
        """One more version; with a span as rota records a batch."""
        info = {
            "rota.op": "commit",
            "rota.ranges": json.dumps({"p:a": span}),
            "rota.tokens": json.dumps({"p:a": token}),
        }
        lines = [action, *([{"commitInfo": info}] if span else [])]
        path = self.table / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        self.version += 1


@pytest.mark.parametrize(
    ("action", "span", "token", "found"),
    [
        ({"remove": {"path": "1.parquet"}}, None, 5, "lost"),
        ({"add": {"path": "1.parquet"}}, None, 5, "doubled"),
        ({"txn": {}}, (4, 5), 5, "gaps"),
        ({"txn": {}}, (2, 3), 5, "overlaps"),
        ({"txn": {}}, (3, 4), 4, "stale"),
    ],
)
def test_planted_damage_is_counted(
    action: dict[str, object], span: tuple[int, int] | None, token: int, found: str, tmp_path: Path
) -> None:
    planted = Table(tmp_path)
    assert count(read_files(planted.landing), planted.table).right
    planted.commit(action, span, token)
    counted = count(read_files(planted.landing), planted.table)
    assert getattr(counted, found) == 1
    assert not counted.right
