"""How the processes share the tests (`make test`): a file stays together, and so do those that run a whole line."""

import gc
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any

import kazoo.protocol.connection
import kazoo.retry
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.tier import DAY, PUSH, find_left_out

if TYPE_CHECKING:
    from rota.local.bucket import BucketServer

FACE = "face/"  # one ZooKeeper and one Spark for all
# And one `dagster dev`: a second process would start its own. These take as long as the others of the face.
LINE = tuple(f"face/test_{name}.py" for name in ("alone", "clicks", "hour", "lasting", "line", "page"))
# Each starts all of it.
DEMO = (
    "face/test_situations.py", "demo/test_end_to_end.py", "demo/test_from_a_topic.py", "demo/test_off_one_disk.py",
    "demo/test_up.py", "face/test_neighbours.py",
)  # fmt: skip
STACKS = (*DEMO, *LINE)  # one at a time: two of them and the rest want ten times the processors that there are
RABBITMQ = "dataplane/rabbitmq/"  # one broker for all
KAFKA = "dataplane/kafka/"  # one broker for all
ACCESS = "conformance/access/"  # one guarded ZooKeeper for all
HALVES = "conservation/test_differential.py"  # two processes play one half of its cases each
ENSEMBLE = ("conformance/test_ensemble.py", "conformance/test_older_zookeeper.py")  # one of three servers for both
PURE = "core/"  # shares nothing: one by one these fill what room is left at the end
TOGETHER = {
    "stacks": STACKS, "face": FACE, "rabbitmq": RABBITMQ, "kafka": KAFKA, "access": ACCESS, "ensemble": ENSEMBLE,
}  # fmt: skip
REAL = {"bucket_server", "zookeeper", "ensemble", "start", "real", "endpoint", "spark"}  # fixtures that start a process
# The longest first.
FIRST = (*DEMO, FACE, HALVES, "conservation/", "chaos/", "dataplane/", "sim/", "conformance/")


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """What stays together: a file, but for the pure tests, which go where there is room, and what is played in halves."""

    def _split_scope(self, nodeid: str) -> str:
        if _below(nodeid).startswith(PURE):
            return nodeid
        file = nodeid.partition("::")[0]
        if _below(file) == HALVES:
            return file + nodeid.partition("[")[2]
        return next((name for name, of in TOGETHER.items() if _below(file).startswith(of)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is imported here stays: the collector looks for no garbage meanwhile, and passes over it from then on."""
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def import_share(config: pytest.Config) -> None:
    """Each process imports its share of the test files first, and so compiles them for all others, their asserts too:
    that takes as long as all else of a collection. A file that cannot be imported is left to the collection to tell."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    asked = [config.rootpath / arg.partition("::")[0] for arg in config.args]
    files = sorted({file for path in asked for file in (path.rglob("test_*.py") if path.is_dir() else [path])})
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(Exception):
            import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def pytest_report_header() -> str:
    return f"tier: {'push' if PUSH else 'all'}, TEST_DAY={DAY} (see tests/tier.py)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    left = find_left_out([_below(item.nodeid) for item in items])
    left |= {_below(item.nodeid) for item in items if PUSH and item.get_closest_marker("release")}
    items[:] = [item for item in items if _below(item.nodeid) not in left]
    for item in items:
        if needs_nothing(item):
            item.add_marker("fast")
        below = _below(item.nodeid)
        if "line" in getattr(item, "fixturenames", ()) and below.startswith(FACE) and not below.startswith(LINE):
            raise pytest.UsageError(f"{item.nodeid} asks for the line: name its file in LINE of tests/conftest.py")
    items.sort(key=rank)


def rank(item: pytest.Item) -> tuple[int, int]:
    """The position of a test. The face's tests on the whole line come after the others, so that it runs for them only; those
    of pipelines that a reload brings come last, so that no earlier test watches these."""
    below, fixtures = _below(item.nodeid), getattr(item, "fixturenames", ())
    first = next((i for i, folder in enumerate(FIRST) if below.startswith(folder)), len(FIRST))
    return first + below.startswith(PURE), below.startswith(FACE) * (("line" in fixtures) + ("reload" in fixtures))


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the Spark server that all tests share, whichever process they run in."""
    from tests.dataplane.shared_spark import share_spark

    own = tmp_path_factory.getbasetemp()
    with share_spark(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as address:
        yield address


@pytest.fixture(scope="session")
def bucket_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BucketServer]":
    """A server of S3, for all tests of this process."""
    from rota.local.bucket import serve_buckets

    with serve_buckets(tmp_path_factory.mktemp("bucket")) as server:
        yield server


@pytest.fixture
def bucket(bucket_server: "BucketServer", monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket, which the environment of the test speaks to."""
    for name, value in bucket_server.environ.items():
        monkeypatch.setenv(name, value)
    return f"s3://{bucket_server.make_bucket()}"


# A shell's `&` has the tests ignore SIGINT. Dagster, which a test runs, has SIGTERM do what SIGINT does; a process that a
# test starts would inherit both, and never end.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example took, or the making of one, depends on the load of the machine: it fails no test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("push", settings.get_profile("unhurried"), max_examples=25)
settings.load_profile("push" if PUSH else "unhurried")

# kazoo's threads draw from the global generator, and Hypothesis takes that for a draw of the strategy beside them.
kazoo.protocol.connection.random = kazoo.retry.random = Random()


def needs_nothing(item: pytest.Item) -> bool:
    """Whether a test needs no server, no Spark and no Dagster: the pure core, and the stores' tests in memory."""
    if _below(item.nodeid).startswith(PURE):
        return True
    fixtures = set(getattr(item, "fixturenames", ()))
    world = item.callspec.params.get("world") if hasattr(item, "callspec") else None
    return (world == "memory" or "memory" in fixtures) and not fixtures & REAL


def _below(nodeid: str) -> str:
    return nodeid.removeprefix("tests/")
