"""How two processes share the tests (`make test`): a file stays together, and so do all files that run a whole line."""

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

LINES = ("face/", "demo/test_demo_end_to_end.py", "demo/test_up.py")  # each runs a `dagster dev`: never two at a time
FIRST = (*LINES, "dataplane/", "conformance/")  # the longest first, the pure ones last


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """The tests of `face` use one ZooKeeper, one Spark and one `dagster dev`: a second process would start its own."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "lines" if _below(file).startswith(LINES) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((i for i, f in enumerate(FIRST) if _below(item.nodeid).startswith(f)), len(FIRST)))


def _below(nodeid: str) -> str:
    return nodeid.removeprefix("tests/")
