"""How two processes share the tests (`make test`): a file stays together, and so do all files that share one whole line."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LINES = ("face/", "demo/test_demo_end_to_end.py", "demo/test_up.py")  # each runs a `dagster dev`: never two at a time
FIRST = (*LINES, "dataplane/", "conformance/")  # the longest first, the pure ones last


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `face` use one ZooKeeper, one Spark and one `dagster dev`: a second process would start its own."""
    where = {item: item.path.relative_to(TESTS).as_posix() for item in items}
    items.sort(key=lambda item: next((i for i, name in enumerate(FIRST) if where[item].startswith(name)), len(FIRST)))
    for item in items:
        item.add_marker(pytest.mark.xdist_group("lines" if where[item].startswith(LINES) else where[item]))
